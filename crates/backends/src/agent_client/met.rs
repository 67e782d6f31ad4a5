//! How an agent greets its clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use trilogue_domain::Json;

use super::profile::Profile;
use super::{Launch, lock};

/// The most profiles whose greetings are remembered.
const MAX_PROFILES: usize = 64;

/// How the agent greets clients of each profile, as the process said that was started last for one.
#[derive(Debug)]
pub(super) struct Met(Mutex<Greetings>);

#[derive(Debug)]
struct Greetings {
    /// How the processes were started that these are of.
    launch: Arc<Launch>,
    known: HashMap<Profile, Json>,
}

// === impl Met ===

impl Met {
    pub(super) fn new(launch: Arc<Launch>) -> Self {
        Self(Mutex::new(Greetings { launch, known: HashMap::new() }))
    }

    pub(super) fn get(&self, profile: &Profile) -> Option<Json> {
        lock(&self.0).known.get(profile).cloned()
    }

    /// A process has greeted. What one says that was started in another way than is wanted by now does not count.
    pub(super) fn set(&self, launch: &Arc<Launch>, profile: &Profile, greeting: Json) {
        let mut met = lock(&self.0);
        if !Arc::ptr_eq(&met.launch, launch) {
            return;
        }
        if met.known.len() >= MAX_PROFILES && !met.known.contains_key(profile) {
            met.known.clear();
        }
        met.known.insert(profile.clone(), greeting);
    }

    /// The agent is started so from now on.
    pub(super) fn renew(&self, launch: Arc<Launch>) {
        *lock(&self.0) = Greetings { launch, known: HashMap::new() };
    }
}
