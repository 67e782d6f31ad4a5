use super::Time;
use super::object::object;
use super::time::short_or_null;
use crate::json::member::{optional, required};
use crate::json::words::words;

object! {
    /// More information about an agent. Only its shape is checked.
    pub open struct ManifestMetadata: Default {
        annotations: Option<Annotations> = kept;
        /// Markdown.
        documentation: Option<String> = kept;
        /// An SPDX id.
        license: Option<String> = kept;
        programming_language: Option<String> = kept;
        /// ISO 639-1 codes.
        natural_languages: Option<Vec<String>> = kept;
        framework: Option<String> = kept;
        capabilities: Option<Vec<Capability>> = kept;
        domains: Option<Vec<String>> = kept;
        tags: Option<Vec<String>> = kept;
        #[serde(serialize_with = "short_or_null")]
        created_at: Option<Time> = kept;
        #[serde(serialize_with = "short_or_null")]
        updated_at: Option<Time> = kept;
        author: Option<Person> = kept;
        contributors: Option<Vec<Person>> = kept;
        links: Option<Vec<Link>> = kept;
        dependencies: Option<Vec<Dependency>> = kept;
        recommended_models: Option<Vec<String>> = kept;
    }

    pub open struct Annotations: Default {
        beeai_ui: Option<PlatformUi> = kept;
    }

    pub open struct PlatformUi {
        ui_type: UiType = required;
        user_greeting: Option<String> = optional;
        display_name: Option<String> = optional;
        tools: Vec<UiTool> = kept;
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
