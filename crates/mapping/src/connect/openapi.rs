use serde_json::{Map, Value, json};
use trilogue_domain::AgentCard;

use super::agent::{agent_id, capabilities, is_configurable, name, schemas};

/// The authentication of the agent's callers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Security {
    /// OpenAPI security schemes by name: an object.
    pub schemes: Value,
    /// The alternatives: OpenAPI security requirements, an array.
    pub requirements: Value,
}

/// Returns the face's OpenAPI document with the agent's own schemas, and without operations that the agent does not support.
pub fn openapi(base: Value, card: &AgentCard, security: &Security) -> Value {
    let mut document = base;
    let can = capabilities(card);
    describe(&mut document, card);
    set_schemas(&mut document, card);
    set_default_agent(&mut document, &agent_id(card));
    let streaming = can.streaming.unwrap_or_default();
    let modes: Vec<&str> = [("values", streaming.values), ("custom", streaming.custom)]
        .into_iter()
        .filter_map(|(mode, on)| (on == Some(true)).then_some(mode))
        .collect();
    if !can.threads {
        remove_paths(&mut document, |path| has_segment(path, "threads"));
        remove_tags(&mut document, &["Threads", "Thread Runs"]);
    }
    if !is_configurable(card) {
        remove_paths(&mut document, |path| has_segment(path, "configurations"));
        remove_request_member(&mut document, "configuration_id");
    }
    if !can.interrupts {
        remove_interrupts(&mut document);
    }
    narrow_streaming(&mut document, &modes);
    if !can.callbacks {
        remove_request_member(&mut document, "webhook");
        remove_request_member(&mut document, "callback");
    }
    if let Some(components) = object_at(&mut document, "/components") {
        components.insert("securitySchemes".to_owned(), security.schemes.clone());
    }
    if let Some(top) = document.as_object_mut() {
        top.insert("security".to_owned(), security.requirements.clone());
    }
    document
}

fn describe(document: &mut Value, card: &AgentCard) {
    if let Some(info) = object_at(document, "/info") {
        info.insert("title".to_owned(), name(card).into());
        info.insert("version".to_owned(), card.version.clone().into());
        info.insert("description".to_owned(), card.description.clone().into());
    }
}

fn set_schemas(document: &mut Value, card: &AgentCard) {
    let own = schemas(card);
    let mut put = |name: &str, schema: Value| {
        let Some(all) = object_at(document, "/components/schemas") else { return };
        all.insert(name.to_owned(), rebased(schema, name));
    };
    put("InputSchema", own.input_schema.to_value());
    put("OutputSchema", own.output_schema.to_value());
    put("ConfigSchema", own.config_schema.to_value());
    if let Some(state) = &own.state_schema {
        put("ThreadStateSchema", state.to_value());
    }
    if let Some(update) = &own.custom_streaming_update {
        put("StreamUpdateSchema", update.to_value());
    }
    if own.interrupts.is_empty() {
        return;
    }
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    for interrupt in &own.interrupts {
        let kind = &interrupt.interrupt_type;
        let word: String = kind.chars().map(|c| if is_word(c) { c } else { '_' }).collect();
        let (payload, resume) = (format!("{word}InterruptPayload"), format!("{word}ResumePayload"));
        put(&payload, interrupt.interrupt_payload.to_value());
        put(&resume, interrupt.resume_payload.to_value());
        asked.push(keyed(kind, &payload));
        answered.push(keyed(kind, &resume));
    }
    put("InterruptPayloadSchema", json!({ "oneOf": asked }));
    put("ResumePayloadSchema", json!({ "oneOf": answered }));
}

/// Whether a component's name may contain a character.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Returns an object with this one member.
fn keyed(kind: &str, component: &str) -> Value {
    json!({
        "type": "object",
        "properties": { kind: { "$ref": format!("#/components/schemas/{component}") } },
        "required": [kind],
        "additionalProperties": false
    })
}

/// Returns a schema with its internal references rebased to its new location.
fn rebased(mut schema: Value, name: &str) -> Value {
    rebase(&mut schema, name);
    schema
}

fn rebase(schema: &mut Value, name: &str) {
    match schema {
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(to) if key == "$ref" => {
                        if let Some(rest) = to.strip_prefix('#')
                            && (rest.is_empty() || rest.starts_with('/'))
                            && !rest.starts_with("/components/")
                        {
                            *to = format!("#/components/schemas/{name}{rest}");
                        }
                    }
                    other => rebase(other, name),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rebase(item, name)),
        _ => {}
    }
}

/// Sets the agent as the default of every request's `agent_id`.
fn set_default_agent(document: &mut Value, id: &str) {
    if let Some(all) = object_at(document, "/components/schemas") {
        for request in REQUESTS.iter().chain(&["RunSearchRequest"]) {
            let property = all.get_mut(*request).and_then(|it| property(it, "agent_id"));
            if let Some(Value::Object(property)) = property {
                property.insert("default".to_owned(), id.into());
            }
        }
    }
    if let Some(paths) = object_at(document, "/paths") {
        for item in paths.values_mut() {
            name_agent(item, id);
        }
    }
}

fn name_agent(value: &mut Value, id: &str) {
    if let Some(Value::Array(parameters)) = value.get_mut("parameters") {
        for parameter in parameters {
            if parameter.get("name") == Some(&json!("agent_id"))
                && let Some(Value::Object(schema)) = parameter.get_mut("schema")
            {
                schema.insert("default".to_owned(), id.into());
            }
        }
    }
    for verb in VERBS {
        if let Some(operation) = value.get_mut(verb) {
            name_agent(operation, id);
        }
    }
}

const REQUESTS: [&str; 3] = ["RunCreate", "RunCreateStateless", "RunCreateStateful"];
const VERBS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Removes the resumption of runs for an agent without interrupts.
fn remove_interrupts(document: &mut Value) {
    if let Some(paths) = object_at(document, "/paths") {
        for (path, item) in paths.iter_mut() {
            if path.ends_with("/runs/{run_id}")
                && let Some(item) = item.as_object_mut()
            {
                item.remove("post");
            }
        }
    }
    drop_branches(document, "interrupt", &["RunInterrupt", "ValueRunInterruptUpdate"]);
}

/// Keeps the modes that the agent has; removes streams if it has none.
fn narrow_streaming(document: &mut Value, modes: &[&str]) {
    if modes.is_empty() {
        remove_paths(document, |path| path.ends_with("/stream"));
        remove_request_member(document, "stream_mode");
        return;
    }
    if let Some(all) = object_at(document, "/components/schemas") {
        for mode in ["StreamMode", "StreamingMode"] {
            if let Some(schema) = all.get_mut(mode) {
                *schema = json!({ "type": "string", "enum": modes });
            }
        }
    }
    if !modes.contains(&"custom") {
        drop_branches(document, "custom", &["CustomRunResultUpdate"]);
    }
}

/// Removes the branch of this type from every choice between outputs.
fn drop_branches(document: &mut Value, kind: &str, components: &[&str]) {
    let Some(all) = object_at(document, "/components/schemas") else { return };
    for name in ["RunOutput", "StreamPayload", "RunOutputStream"] {
        let Some(schema) = all.get_mut(name) else { continue };
        drop_branch(schema, kind, components);
        if let Some(data) = property(schema, "data") {
            drop_branch(data, kind, components);
        }
    }
}

fn drop_branch(schema: &mut Value, kind: &str, components: &[&str]) {
    for choice in ["oneOf", "anyOf"] {
        if let Some(Value::Array(branches)) = schema.get_mut(choice) {
            branches.retain(|branch| !is_branch(branch, kind, components));
        }
    }
    if let Some(Value::Object(mapping)) = schema.pointer_mut("/discriminator/mapping") {
        mapping.remove(kind);
    }
}

fn is_branch(branch: &Value, kind: &str, components: &[&str]) -> bool {
    let to = branch.get("$ref").and_then(Value::as_str).unwrap_or_default();
    let named = to.rsplit('/').next().is_some_and(|name| components.contains(&name));
    let word = branch.pointer("/properties/type");
    let said = word.is_some_and(|word| {
        word.get("const") == Some(&json!(kind)) || word.get("enum") == Some(&json!([kind]))
    });
    named || said
}

fn remove_paths(document: &mut Value, is_gone: impl Fn(&str) -> bool) {
    if let Some(paths) = object_at(document, "/paths") {
        paths.retain(|path, _| !is_gone(path));
    }
}

fn remove_tags(document: &mut Value, names: &[&str]) {
    if let Some(Value::Array(tags)) = document.get_mut("tags") {
        tags.retain(|tag| {
            !tag.get("name").and_then(Value::as_str).is_some_and(|name| names.contains(&name))
        });
    }
}

fn remove_request_member(document: &mut Value, member: &str) {
    let Some(all) = object_at(document, "/components/schemas") else { return };
    for request in REQUESTS {
        let Some(schema) = all.get_mut(request) else { continue };
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.remove(member);
        }
    }
}

fn has_segment(path: &str, segment: &str) -> bool {
    path.split('/').any(|part| part == segment)
}

fn object_at<'a>(document: &'a mut Value, pointer: &str) -> Option<&'a mut Map<String, Value>> {
    document.pointer_mut(pointer)?.as_object_mut()
}

fn property<'a>(schema: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    schema.get_mut("properties")?.get_mut(name)
}
