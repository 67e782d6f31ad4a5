use serde::Serialize;

use super::{Extra, Time};

/// More about an agent. Nothing is checked beyond its shape.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ManifestMetadata {
    /// For programs.
    pub annotations: Option<Annotations>,
    /// Documentation in Markdown.
    pub documentation: Option<String>,
    /// The SPDX id of its licence.
    pub license: Option<String>,
    /// What it is written in.
    pub programming_language: Option<String>,
    /// The languages it speaks, as ISO 639-1 codes.
    pub natural_languages: Option<Vec<String>>,
    /// What it is built with.
    pub framework: Option<String>,
    /// What it can do.
    pub capabilities: Option<Vec<Capability>>,
    /// The fields it knows.
    pub domains: Option<Vec<String>>,
    /// Words to find it by.
    pub tags: Option<Vec<String>>,
    /// When it was made.
    pub created_at: Option<Time>,
    /// When it was changed.
    pub updated_at: Option<Time>,
    /// Who made it.
    pub author: Option<Person>,
    /// Who helped.
    pub contributors: Option<Vec<Person>>,
    /// Where to read on.
    pub links: Option<Vec<Link>>,
    /// What it needs.
    pub dependencies: Option<Vec<Dependency>>,
    /// Models that suit it.
    pub recommended_models: Option<Vec<String>>,
    /// Members that the protocol has no word for.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What programs may want to know of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Annotations {
    /// How a user interface shows it.
    pub beeai_ui: Option<PlatformUi>,
    /// Members that the protocol has no word for.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How a user interface shows an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlatformUi {
    /// The kind of interface.
    pub ui_type: UiType,
    /// What it says first.
    pub user_greeting: Option<String>,
    /// Its name for people.
    pub display_name: Option<String>,
    /// The tools it shows.
    pub tools: Vec<UiTool>,
    /// Members that the protocol has no word for.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The kinds of user interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UiType {
    /// A conversation.
    Chat,
    /// One task at a time.
    HandsOff,
}

/// A tool that an interface shows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UiTool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
}

/// Something an agent can do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Capability {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
}

/// Somebody.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The address for mail.
    pub email: Option<String>,
    /// The address on the web.
    pub url: Option<String>,
}

/// A place to read on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Link {
    /// What is there.
    #[serde(rename = "type")]
    pub kind: LinkType,
    /// Where it is.
    pub url: String,
}

/// What a link leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkType {
    /// Source code.
    SourceCode,
    /// A container image.
    ContainerImage,
    /// A home page.
    Homepage,
    /// Documentation.
    Documentation,
}

/// Something an agent needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Dependency {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: DependencyType,
    /// Its name.
    pub name: String,
}

/// What an agent can depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DependencyType {
    /// Another agent.
    Agent,
    /// A tool.
    Tool,
    /// A model.
    Model,
}
