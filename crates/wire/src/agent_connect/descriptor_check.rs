//! The rules for descriptors, beyond their shape.

use std::collections::HashSet;

use serde_json::Value;

use super::{Descriptor, Json, Violation};

/// The smallest number of an agent's own error.
const FIRST_AGENT_ERROR: u32 = 10_000;

// === impl Descriptor ===

impl Descriptor {
    /// Returns the violations of the rules; empty for a valid descriptor.
    pub fn check(&self) -> Vec<Violation> {
        let mut found = Found(Vec::new());
        self.check_names(&mut found);
        self.check_capabilities(&mut found);
        self.check_interrupts(&mut found);
        self.check_errors(&mut found);
        let specs = &self.specs;
        found.schema("/specs/input", &specs.input);
        found.schema("/specs/output", &specs.output);
        found.schema("/specs/config", &specs.config);
        for (path, schema) in [
            ("/specs/thread_state", &specs.thread_state),
            ("/specs/custom_streaming_update", &specs.custom_streaming_update),
        ] {
            if let Some(schema) = schema {
                found.schema(path, schema);
            }
        }
        found.0
    }

    fn check_names(&self, found: &mut Found) {
        for (path, text) in [
            ("/metadata/ref/name", &self.metadata.reference.name),
            ("/metadata/ref/version", &self.metadata.reference.version),
            // Clients of the protocol refuse an agent without a description.
            ("/metadata/description", &self.metadata.description),
        ] {
            if text.trim().is_empty() {
                found.add(path, "must not be empty");
            }
        }
    }

    fn check_capabilities(&self, found: &mut Found) {
        let specs = &self.specs;
        if !specs.capabilities.threads && specs.thread_state.is_some() {
            found.add(
                "/specs/thread_state",
                "Cannot define `thread_state` if `capabilities.threads` is `false`",
            );
        }
        let declares = specs.interrupts.as_ref().is_some_and(|interrupts| !interrupts.is_empty());
        match (specs.capabilities.interrupts, declares) {
            (true, false) => found.add(
                "/specs/interrupts",
                "Missing interrupt definitions with `spec.capabilities.interrupts=true`",
            ),
            (false, true) => found.add(
                "/specs/interrupts",
                "Interrupts defined with `spec.capabilities.interrupts=false`",
            ),
            _ => {}
        }
        let streaming = specs.capabilities.streaming.unwrap_or_default();
        match (streaming.custom.unwrap_or_default(), specs.custom_streaming_update.is_some()) {
            (false, true) => found.add(
                "/specs/custom_streaming_update",
                "custom_streaming_update defined with `spec.capabilities.streaming.custom=false`",
            ),
            (true, false) => found.add(
                "/specs/custom_streaming_update",
                "Missing custom_streaming_update definitions with `spec.capabilities.streaming.custom=true`",
            ),
            _ => {}
        }
    }

    fn check_interrupts(&self, found: &mut Found) {
        let mut known = HashSet::new();
        for (place, declared) in self.specs.interrupts.iter().flatten().enumerate() {
            let at = format!("/specs/interrupts/{place}");
            if declared.interrupt_type.is_empty() {
                found.add(format!("{at}/interrupt_type"), "must not be empty");
            }
            if !known.insert(&declared.interrupt_type) {
                found.add(format!("{at}/interrupt_type"), "is declared twice");
            }
            found.schema(&format!("{at}/interrupt_payload"), &declared.interrupt_payload);
            found.schema(&format!("{at}/resume_payload"), &declared.resume_payload);
        }
    }

    fn check_errors(&self, found: &mut Found) {
        let (mut codes, mut numbers) = (HashSet::new(), HashSet::new());
        for (place, declared) in self.specs.errors.iter().flatten().enumerate() {
            let at = format!("/specs/errors/{place}");
            if declared.code.is_empty() {
                found.add(format!("{at}/code"), "must not be empty");
            }
            if !codes.insert(&declared.code) {
                found.add(format!("{at}/code"), "is declared twice");
            }
            if declared.errcode < FIRST_AGENT_ERROR {
                found.add(
                    format!("{at}/errcode"),
                    "must be at least 10000: smaller ones are the protocol's",
                );
            }
            if !numbers.insert(declared.errcode) {
                found.add(format!("{at}/errcode"), "is declared twice");
            }
            if let Some(schema) = &declared.schema {
                found.schema(&format!("{at}/schema"), schema);
            }
        }
    }
}

struct Found(Vec<Violation>);

// === impl Found ===

impl Found {
    fn add(&mut self, path: impl Into<String>, message: &str) {
        self.0.push(Violation::new(path, message));
    }

    /// Checks that a schema is an object or a boolean, and that it refers only to itself: nothing is ever fetched.
    fn schema(&mut self, path: &str, schema: &Json) {
        let value = schema.to_value();
        if !value.is_object() && !value.is_boolean() {
            return self.add(path, "must be a JSON Schema: an object or a truth value");
        }
        self.references(path, &value);
    }

    fn references(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let at = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                    match member {
                        Value::String(to) if key == "$ref" && !to.starts_with('#') => {
                            self.add(at, "must be a local reference: it begins with '#'");
                        }
                        other => self.references(&at, other),
                    }
                }
            }
            Value::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    self.references(&format!("{path}/{place}"), item);
                }
            }
            _ => {}
        }
    }
}
