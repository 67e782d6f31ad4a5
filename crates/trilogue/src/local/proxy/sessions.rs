//! Tracks the position up to which the editor has read each session.

use std::collections::{BTreeMap, HashMap};

use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::Id;

/// The most sessions that are tracked, with those of sub-agents. Beyond that, sub-agents are forgotten first.
const MAX_SESSIONS: usize = 4_096;
/// The most positions of sub-agents in one request.
const MAX_CHILDREN: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct EditorSessions {
    by_id: HashMap<String, EditorSession>,
    loading: usize,
}

#[derive(Clone, Debug, Default)]
struct EditorSession {
    /// The thread number of the last event that the editor has, if the server has said one.
    position: Option<u64>,
    /// Whether the editor knows that it has the session.
    is_attached: bool,
    /// The parameters with which the editor opened it.
    open_params: Option<String>,
    /// The `session/load` that is open.
    loading: Option<HistoryLoad>,
}

/// A `session/load` that is open. Its history is the same each time.
#[derive(Clone, Debug)]
struct HistoryLoad {
    request: Id<'static>,
    /// How many updates of the history the editor has.
    received: u64,
    /// How many of them this connection repeats.
    skip: u64,
}

// === impl EditorSessions ===

impl EditorSessions {
    pub(super) fn load(&mut self, id: &str, request: Id<'static>) {
        if let Some(session) = self.session(id)
            && session.loading.replace(HistoryLoad { request, received: 0, skip: 0 }).is_none()
        {
            self.loading += 1;
        }
    }

    /// Whether a history is being loaded, so that updates have to be counted.
    pub(super) fn is_loading(&self) -> bool {
        self.loading > 0
    }

    /// Takes an update of a session. Returns `false` if the editor has it. `is_history`: it moves no position.
    pub(super) fn is_new(&mut self, id: &str, is_history: bool) -> bool {
        if is_history && self.is_loading() {
            self.load_child(id);
        }
        let Some(session) = self.by_id.get_mut(id) else { return true };
        let is_attached = session.is_attached;
        let Some(loading) = &mut session.loading else { return true };
        if loading.skip > 0 {
            loading.skip -= 1;
            return false;
        }
        // A sub-agent sends nothing else before the history has ended.
        loading.received += u64::from(is_history || !is_attached);
        true
    }

    /// Counts the history of a session that the editor has not opened: it belongs to a sub-agent of one that is being loaded.
    fn load_child(&mut self, id: &str) {
        let request = self.by_id.values().find_map(|it| Some(it.loading.as_ref()?.request.clone()));
        if let Some(session) = self.session(id)
            && !session.is_attached
            && session.loading.is_none()
            && let Some(request) = request
        {
            session.loading = Some(HistoryLoad { request, received: 0, skip: 0 });
            self.loading += 1;
        }
    }

    pub(super) fn set_position(&mut self, id: &str, number: u64) {
        if let Some(session) = self.session(id) {
            session.position = Some(number);
        }
    }

    /// A `session/load` has its response. `open_params` if it succeeded.
    pub(super) fn finish_load(&mut self, id: &str, request: &Id<'_>, open_params: Option<String>) {
        let Some(session) = self.by_id.get_mut(id) else { return };
        let is_attached = session.is_attached;
        // With the sub-agents whose histories were part of it.
        for session in self.by_id.values_mut() {
            if session.loading.take_if(|loading| loading.request == *request).is_some() {
                self.loading -= 1;
            }
        }
        if open_params.is_some() {
            self.set_attached(id, open_params);
        } else if !is_attached && self.by_id.get(id).is_some_and(|it| it.loading.is_none()) {
            self.by_id.remove(id);
        }
        let is_known = |it: &EditorSession| it.is_attached || it.position.is_some();
        self.by_id.retain(|_, session| session.loading.is_some() || is_known(session));
    }

    pub(super) fn set_attached(&mut self, id: &str, open_params: Option<String>) {
        if let Some(session) = self.session(id) {
            session.is_attached = true;
            session.open_params = open_params;
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        if self.by_id.remove(id).is_some_and(|session| session.loading.is_some()) {
            self.loading -= 1;
        }
    }

    /// Returns each session's parameters for a new connection. Sessions that are being loaded are loaded again instead.
    pub(super) fn attach_params(&mut self) -> Vec<(String, String)> {
        let children = self.children();
        let mut params = Vec::new();
        for (id, session) in &mut self.by_id {
            if let Some(loading) = &mut session.loading {
                loading.skip = loading.received;
            } else if session.is_attached {
                params.push((id.clone(), session.attach_params(id, &children)));
            }
        }
        params.sort();
        params
    }

    /// Returns the positions in sessions that the editor has not opened: those of sub-agents. The server knows whose they are.
    fn children(&self) -> BTreeMap<String, u64> {
        let is_child = |it: &EditorSession| !it.is_attached && it.loading.is_none();
        let children = self.by_id.iter().filter(|(_, session)| is_child(session));
        let children = children.filter_map(|(id, session)| Some((id.clone(), session.position?)));
        children.take(MAX_CHILDREN).collect()
    }

    fn session(&mut self, id: &str) -> Option<&mut EditorSession> {
        if !self.by_id.contains_key(id) {
            if self.by_id.len() >= MAX_SESSIONS {
                let is_spare = |it: &EditorSession| !it.is_attached && it.loading.is_none();
                let spare = self.by_id.iter().find(|(_, session)| is_spare(session))?.0.clone();
                self.by_id.remove(&spare);
            }
            self.by_id.insert(id.to_owned(), EditorSession::default());
        }
        self.by_id.get_mut(id)
    }
}

// === impl EditorSession ===

impl EditorSession {
    fn attach_params(&self, id: &str, children: &BTreeMap<String, u64>) -> String {
        let open_params = self.open_params.as_deref().unwrap_or("{}");
        let position = self.position.unwrap_or(0);
        let params = splice::put_session(open_params, id)
            .and_then(|params| splice::set(&params, &["after"], &position.to_string()))
            .unwrap_or_else(|| {
                serde_json::json!({ "sessionId": id, "after": position }).to_string()
            });
        let children = (!children.is_empty()).then(|| serde_json::json!(children).to_string());
        let with_children = children.and_then(|it| splice::set(&params, &["afterOfChildren"], &it));
        with_children.unwrap_or(params)
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
        let mut sessions = EditorSessions::default();
        sessions.set_position("new", 3);
        assert_eq!(sessions.attach_params(), []);
        sessions.set_attached("new", some(r#"{"cwd":"/w"}"#));
        sessions.set_position("new", 9);
        let params = r#"{"cwd":"/w","sessionId":"new","after":9}"#.to_owned();
        assert_eq!(sessions.attach_params(), [("new".to_owned(), params)]);
        sessions.remove("new");
        assert_eq!(sessions.attach_params(), []);
    }

    #[test]
    fn sub_agents_are_taken_up_with_the_sessions_of_the_editor() {
        let mut sessions = EditorSessions::default();
        sessions.set_attached("root", None);
        sessions.set_position("root", 4);
        sessions.set_position("child", 7);
        let params = r#"{"sessionId":"root","after":4,"afterOfChildren":{"child":7}}"#.to_owned();
        assert_eq!(sessions.attach_params(), [("root".to_owned(), params)]);
    }

    #[test]
    fn the_history_of_a_sub_agent_goes_on_where_it_was_cut() {
        let mut sessions = EditorSessions::default();
        sessions.load("old", number(1));
        for id in ["old", "child", "child"] {
            assert!(sessions.is_new(id, true));
        }
        assert_eq!(sessions.attach_params(), []);
        for (id, is_new) in [("old", false), ("child", false), ("child", false), ("child", true)] {
            assert_eq!(sessions.is_new(id, true), is_new, "{id}");
        }
        sessions.finish_load("old", &number(1), some("{}"));
        assert!(!sessions.is_loading() && sessions.is_new("child", true));
    }

    #[test]
    fn sub_agents_give_way_to_sessions_of_the_editor() {
        let mut sessions = EditorSessions::default();
        (0..MAX_SESSIONS).for_each(|number| sessions.set_position(&number.to_string(), 1));
        sessions.set_attached("own", None);
        assert_eq!(sessions.by_id.len(), MAX_SESSIONS);
        let params = sessions.attach_params();
        assert_eq!(params.len(), 1);
        assert_eq!(params[0].1.matches(":1").count(), MAX_CHILDREN);
    }

    #[test]
    fn a_history_goes_on_where_it_was_cut() {
        let mut sessions = EditorSessions::default();
        sessions.load("old", number(1));
        assert!(sessions.is_new("old", true) && sessions.is_new("old", true));
        assert!(sessions.is_new("other", true));
        assert_eq!(sessions.attach_params(), []);
        assert!(!sessions.is_new("old", true));
        // Cut again before it came that far.
        assert_eq!(sessions.attach_params(), []);
        assert!(!sessions.is_new("old", false) && !sessions.is_new("old", false));
        assert!(sessions.is_new("old", false));
        sessions.set_position("old", 50);
        sessions.finish_load("old", &number(1), some("{}"));
        assert!(!sessions.is_loading());
        let position = |number: u64| {
            vec![("old".to_owned(), format!(r#"{{"sessionId":"old","after":{number}}}"#))]
        };
        assert_eq!(sessions.attach_params(), position(50));
        // Load once more. An update that arrives in between is new, not history.
        sessions.load("old", number(2));
        assert!(sessions.is_new("old", false) && sessions.is_new("old", true));
        sessions.set_position("old", 51);
        assert_eq!(sessions.attach_params(), []);
        assert!(!sessions.is_new("old", true) && sessions.is_new("old", true));
        sessions.finish_load("old", &number(2), None);
        assert_eq!(sessions.attach_params(), position(51));
        sessions.load("none", number(3));
        sessions.finish_load("none", &number(3), None);
        assert_eq!((sessions.by_id.len(), sessions.loading), (1, 0));
    }
}
