//! Answers to `initialize`, remembered so that a client can be greeted without a process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use trilogue_domain::{Json, lock};
use trilogue_sdk::agent_client::peer::RawJson;

use super::profile::Profile;
use crate::agent_client::launch::Launch;

const MAX_PROFILES: usize = 64;

#[derive(Debug)]
pub(crate) struct GreetingCache(Mutex<Greetings>);

#[derive(Debug)]
struct Greetings {
    /// The launch of the processes that sent these greetings.
    launch: Arc<Launch>,
    by_profile: HashMap<Profile, Json>,
    newest: Option<Json>,
}

// === impl GreetingCache ===

impl GreetingCache {
    pub(crate) fn new(launch: Arc<Launch>) -> Self {
        Self(Mutex::new(Greetings { launch, by_profile: HashMap::new(), newest: None }))
    }

    /// The answer of the process that was started last.
    pub(crate) fn newest(&self) -> Option<Json> {
        lock(&self.0).newest.clone()
    }

    pub(crate) fn get(&self, profile: &Profile) -> Option<Json> {
        lock(&self.0).by_profile.get(profile).cloned()
    }

    /// Remembers a greeting, unless its process's launch has been replaced since.
    pub(super) fn insert(&self, launch: &Arc<Launch>, profile: &Profile, greeting: Json) {
        let mut greetings = lock(&self.0);
        if !Arc::ptr_eq(&greetings.launch, launch) {
            return;
        }
        if greetings.by_profile.len() >= MAX_PROFILES && !greetings.by_profile.contains_key(profile)
        {
            greetings.by_profile.clear();
        }
        greetings.newest = Some(greeting.clone());
        greetings.by_profile.insert(profile.clone(), greeting);
    }

    /// Forgets all greetings, because the agent's launch was replaced.
    pub(crate) fn reset(&self, launch: Arc<Launch>) {
        *lock(&self.0) = Greetings { launch, by_profile: HashMap::new(), newest: None };
    }
}

/// A result in the runtime's form: `null`, and JSON that is too deep, become an empty object.
pub(crate) fn json_of(text: RawJson) -> Json {
    if text.as_str() == "null" {
        return Json::empty_object();
    }
    Json::parse_mended(text.into_bytes()).unwrap_or_else(|_| Json::empty_object())
}
