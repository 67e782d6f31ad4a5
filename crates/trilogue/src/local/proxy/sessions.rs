//! How far the editor has been told of each session.

use std::collections::HashMap;

use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::Id;

/// The most sessions of an editor that are taken up again.
const MAX_SESSIONS: usize = 4_096;

/// The sessions of an editor.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: HashMap<String, Session>,
    /// How many of them are being loaded.
    loading: usize,
}

/// A session.
#[derive(Clone, Debug, Default)]
struct Session {
    /// The thread number of the last event that was passed on.
    position: u64,
    /// The editor was told that it has the session.
    is_attached: bool,
    /// What the editor opened it with: where its agent works, and with which servers for tools.
    opening: Option<String>,
    /// The `session/load` that is open.
    loading: Option<Loading>,
}

/// A `session/load` that is open. Its history is the same each time it is told.
#[derive(Clone, Debug)]
struct Loading {
    request: Id<'static>,
    /// How many updates of the history have been passed on.
    told: u64,
    /// How many of them are to come once more on this connection.
    skip: u64,
}

// === impl Sessions ===

impl Sessions {
    /// The editor asks for the history of a session.
    pub(super) fn load(&mut self, id: &str, request: Id<'static>) {
        if let Some(session) = self.session(id)
            && session.loading.replace(Loading { request, told: 0, skip: 0 }).is_none()
        {
            self.loading += 1;
        }
    }

    /// Whether histories are being told, so that updates have to be looked at.
    pub(super) fn is_loading(&self) -> bool {
        self.loading > 0
    }

    /// An update of a session comes. `false` where the editor has it.
    /// `is_history` says that the server counts it as history, and not as something new.
    pub(super) fn is_news(&mut self, id: &str, is_history: bool) -> bool {
        let session = self.by_id.get_mut(id);
        let Some(loading) = session.and_then(|session| session.loading.as_mut()) else {
            return true;
        };
        if loading.skip > 0 {
            loading.skip -= 1;
            return false;
        }
        loading.told += u64::from(is_history);
        true
    }

    /// Everything up to this number has been passed on.
    pub(super) fn passed(&mut self, id: &str, number: u64) {
        if let Some(session) = self.session(id) {
            session.position = number;
        }
    }

    /// A `session/load` has been answered.
    pub(super) fn loaded(&mut self, id: &str, request: &Id<'_>, opening: Option<String>) {
        let Some(session) = self.by_id.get_mut(id) else { return };
        if session.loading.take_if(|loading| loading.request == *request).is_some() {
            self.loading -= 1;
        }
        if opening.is_some() {
            self.attached(id, opening);
        } else if !session.is_attached && session.loading.is_none() {
            self.by_id.remove(id);
        }
    }

    /// The editor has a session, which it opened with this.
    pub(super) fn attached(&mut self, id: &str, opening: Option<String>) {
        if let Some(session) = self.session(id) {
            session.is_attached = true;
            session.opening = opening;
        }
    }

    /// The editor has a session no longer.
    pub(super) fn left(&mut self, id: &str) {
        if self.by_id.remove(id).is_some_and(|session| session.loading.is_some()) {
            self.loading -= 1;
        }
    }

    /// There is a new connection. Gives the params that take each session up where it was left; one that is being loaded is taken up by that.
    pub(super) fn take_up(&mut self) -> Vec<(String, String)> {
        let mut params = Vec::new();
        for (id, session) in &mut self.by_id {
            if let Some(loading) = &mut session.loading {
                loading.skip = loading.told;
            } else if session.is_attached {
                params.push((id.clone(), session.take_up(id)));
            }
        }
        params.sort();
        params
    }

    fn session(&mut self, id: &str) -> Option<&mut Session> {
        if !self.by_id.contains_key(id) {
            if self.by_id.len() >= MAX_SESSIONS {
                return None;
            }
            self.by_id.insert(id.to_owned(), Session::default());
        }
        self.by_id.get_mut(id)
    }
}

// === impl Session ===

impl Session {
    fn take_up(&self, id: &str) -> String {
        let opening = self.opening.as_deref().unwrap_or("{}");
        let position = self.position.to_string();
        splice::put_session(opening, id)
            .and_then(|params| splice::set(&params, &["after"], &position))
            .unwrap_or_else(|| {
                serde_json::json!({ "sessionId": id, "after": self.position }).to_string()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> Id<'static> {
        Id::number(number)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_session_is_taken_up_where_it_was_left_with_what_it_was_opened_with() {
        let mut sessions = Sessions::default();
        sessions.passed("new", 3);
        assert_eq!(sessions.take_up(), []);
        sessions.attached("new", some(r#"{"cwd":"/w"}"#));
        sessions.passed("new", 9);
        let params = r#"{"cwd":"/w","sessionId":"new","after":9}"#.to_owned();
        assert_eq!(sessions.take_up(), [("new".to_owned(), params)]);
        sessions.left("new");
        assert_eq!(sessions.take_up(), []);
    }

    #[test]
    fn a_history_goes_on_where_it_was_cut() {
        let mut sessions = Sessions::default();
        sessions.load("old", number(1));
        assert!(sessions.is_news("old", true) && sessions.is_news("old", true));
        assert!(sessions.is_news("other", true));
        assert_eq!(sessions.take_up(), []);
        assert!(!sessions.is_news("old", true));
        // Cut again before it came that far.
        assert_eq!(sessions.take_up(), []);
        assert!(!sessions.is_news("old", false) && !sessions.is_news("old", false));
        assert!(sessions.is_news("old", false));
        sessions.passed("old", 50);
        sessions.loaded("old", &number(1), some("{}"));
        assert!(!sessions.is_loading());
        let position = |number: u64| {
            vec![("old".to_owned(), format!(r#"{{"sessionId":"old","after":{number}}}"#))]
        };
        assert_eq!(sessions.take_up(), position(50));
        // Once more, while what is new comes in between: that is no history.
        sessions.load("old", number(2));
        assert!(sessions.is_news("old", false) && sessions.is_news("old", true));
        sessions.passed("old", 51);
        assert_eq!(sessions.take_up(), []);
        assert!(!sessions.is_news("old", true) && sessions.is_news("old", true));
        sessions.loaded("old", &number(2), None);
        assert_eq!(sessions.take_up(), position(51));
        sessions.load("none", number(3));
        sessions.loaded("none", &number(3), None);
        assert_eq!((sessions.by_id.len(), sessions.loading), (1, 0));
    }
}
