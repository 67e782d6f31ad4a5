use super::super::{
    Annotations, Capability, Dependency, DependencyType, Link, LinkType, ManifestMetadata, Person,
    PlatformUi, Time, UiTool, UiType,
};
use super::leaf::{List, Moment, Text};
use super::manifest::strings;
use super::members::Members;
use super::message::each;
use super::metadata::text;
use super::{At, Read, Violation, quoted};

/// Reads an object by its members.
macro_rules! read_by_members {
    ($($type:ty: $members:ident, $at:ident => $body:expr;)+) => {$(
        impl Read for $type {
            type Draft = Members;
            fn finish(mut $members: Members, $at: &At<'_>) -> Result<Self, Violation> {
                $body
            }
        }
    )+};
}

read_by_members! {
    ManifestMetadata: members, at => Ok(Self {
        annotations: members.take_or_leave("annotations", at)?,
        documentation: string(&mut members, "documentation", at)?,
        license: string(&mut members, "license", at)?,
        programming_language: string(&mut members, "programming_language", at)?,
        natural_languages: words(&mut members, "natural_languages", at)?,
        framework: string(&mut members, "framework", at)?,
        capabilities: items(&mut members, "capabilities", at)?,
        domains: words(&mut members, "domains", at)?,
        tags: words(&mut members, "tags", at)?,
        created_at: moment(&mut members, "created_at", at)?,
        updated_at: moment(&mut members, "updated_at", at)?,
        author: members.take_or_leave("author", at)?,
        contributors: items(&mut members, "contributors", at)?,
        links: items(&mut members, "links", at)?,
        dependencies: items(&mut members, "dependencies", at)?,
        recommended_models: words(&mut members, "recommended_models", at)?,
        extra: members.rest(),
    });
    Annotations: members, at => Ok(Self {
        beeai_ui: members.take_or_leave("beeai_ui", at)?,
        extra: members.rest(),
    });
    PlatformUi: members, at => Ok(Self {
        ui_type: choice(&mut members, "ui_type", at, &UI_TYPES)?,
        user_greeting: text(&mut members, "user_greeting", at)?,
        display_name: text(&mut members, "display_name", at)?,
        tools: items(&mut members, "tools", at)?.unwrap_or_default(),
        extra: members.rest(),
    });
    UiTool: members, at => Ok(Self {
        name: required(&mut members, "name", at)?,
        description: required(&mut members, "description", at)?,
    });
    Capability: members, at => Ok(Self {
        name: required(&mut members, "name", at)?,
        description: required(&mut members, "description", at)?,
    });
    Person: members, at => Ok(Self {
        name: required(&mut members, "name", at)?,
        email: text(&mut members, "email", at)?,
        url: text(&mut members, "url", at)?,
    });
    Link: members, at => Ok(Self {
        kind: choice(&mut members, "type", at, &LINK_TYPES)?,
        url: required(&mut members, "url", at)?,
    });
    Dependency: members, at => Ok(Self {
        kind: choice(&mut members, "type", at, &DEPENDENCY_TYPES)?,
        name: required(&mut members, "name", at)?,
    });
}

const UI_TYPES: [(&str, UiType); 2] = [("chat", UiType::Chat), ("hands-off", UiType::HandsOff)];

const LINK_TYPES: [(&str, LinkType); 4] = [
    ("source-code", LinkType::SourceCode),
    ("container-image", LinkType::ContainerImage),
    ("homepage", LinkType::Homepage),
    ("documentation", LinkType::Documentation),
];

const DEPENDENCY_TYPES: [(&str, DependencyType); 3] = [
    ("agent", DependencyType::Agent),
    ("tool", DependencyType::Tool),
    ("model", DependencyType::Model),
];

fn required(members: &mut Members, name: &str, at: &At<'_>) -> Result<String, Violation> {
    Ok(members.take::<Text>(name, at)?.required(&at.key(name))?.0)
}

fn choice<T: Copy>(
    members: &mut Members,
    name: &str,
    at: &At<'_>,
    choices: &[(&str, T)],
) -> Result<T, Violation> {
    let given = required(members, name, at)?;
    choices.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let words = words.join(", ");
        at.key(name).violation(format!("must be one of {words}, not {}", quoted(&given)))
    })
}

/// A member of one of the shapes below; what a peer sends in another shape stays among the unknown members.
struct Shaped<T>(T);

macro_rules! read_shape {
    ($($draft:ty => $type:ty: $value:ident => $body:expr;)+) => {$(
        impl Read for Shaped<$type> {
            type Draft = $draft;
            fn finish($value: $draft, _: &At<'_>) -> Result<Self, Violation> {
                Ok(Self($body))
            }
        }
    )+};
}

read_shape! {
    Text => String: value => value.0;
    List<Text> => Vec<String>: value => strings(value);
    Moment => Time: value => value.0;
}

/// An array of objects.
struct Items<T>(Vec<T>);

impl<T: Read> Read for Items<T> {
    type Draft = List<T::Draft>;
    fn finish(list: List<T::Draft>, at: &At<'_>) -> Result<Self, Violation> {
        each(list, at).map(Self)
    }
}

fn string(members: &mut Members, name: &str, at: &At<'_>) -> Result<Option<String>, Violation> {
    Ok(members.take_or_leave::<Shaped<String>>(name, at)?.map(|shaped| shaped.0))
}

fn words(members: &mut Members, name: &str, at: &At<'_>) -> Result<Option<Vec<String>>, Violation> {
    Ok(members.take_or_leave::<Shaped<Vec<String>>>(name, at)?.map(|shaped| shaped.0))
}

fn moment(members: &mut Members, name: &str, at: &At<'_>) -> Result<Option<Time>, Violation> {
    Ok(members.take_or_leave::<Shaped<Time>>(name, at)?.map(|shaped| shaped.0))
}

fn items<T: Read>(
    members: &mut Members,
    name: &str,
    at: &At<'_>,
) -> Result<Option<Vec<T>>, Violation> {
    Ok(members.take_or_leave::<Items<T>>(name, at)?.map(|items| items.0))
}
