use super::Time;
use super::object::object;
use super::time::short_or_null;
use crate::json::member::{optional, required};
use crate::json::words::words;

object! {
    /// More information about an agent. Only its shape is checked.
    #[derive(Default)]
    pub struct ManifestMetadata {
    } keep {
        annotations: Option<Annotations>;
        /// Markdown.
        documentation: Option<String>;
        /// An SPDX id.
        license: Option<String>;
        programming_language: Option<String>;
        /// ISO 639-1 codes.
        natural_languages: Option<Vec<String>>;
        framework: Option<String>;
        capabilities: Option<Vec<Capability>>;
        domains: Option<Vec<String>>;
        tags: Option<Vec<String>>;
        #[serde(serialize_with = "short_or_null")]
        created_at: Option<Time>;
        #[serde(serialize_with = "short_or_null")]
        updated_at: Option<Time>;
        author: Option<Person>;
        contributors: Option<Vec<Person>>;
        links: Option<Vec<Link>>;
        dependencies: Option<Vec<Dependency>>;
        recommended_models: Option<Vec<String>>;
    }

    #[derive(Default)]
    pub struct Annotations {
    } keep {
        beeai_ui: Option<PlatformUi>;
    }

    pub struct PlatformUi {
        ui_type: UiType = required;
        user_greeting: Option<String> = optional;
        display_name: Option<String> = optional;
    } keep {
        tools: Vec<UiTool>;
    }
}

words! {
    pub enum UiType {
        Chat = "chat";
        /// The agent handles one task at a time.
        HandsOff = "hands-off";
    }
}

object! {
    pub struct UiTool {
        name: String = required;
        description: String = required;
    }

    pub struct Capability {
        name: String = required;
        description: String = required;
    }

    pub struct Person {
        name: String = required;
        email: Option<String> = optional;
        url: Option<String> = optional;
    }

    pub struct Link {
        kind as "type": LinkType = required;
        url: String = required;
    }
}

words! {
    pub enum LinkType {
        SourceCode = "source-code";
        ContainerImage = "container-image";
        Homepage = "homepage";
        Documentation = "documentation";
    }
}

object! {
    pub struct Dependency {
        kind as "type": DependencyType = required;
        name: String = required;
    }
}

words! {
    pub enum DependencyType {
        Agent = "agent";
        Tool = "tool";
        Model = "model";
    }
}
