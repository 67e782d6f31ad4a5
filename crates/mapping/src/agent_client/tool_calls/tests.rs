use super::*;

fn update(kind: &str, call: &str) -> (String, String) {
    let members = call.trim_start_matches('{');
    (kind.to_owned(), format!(r#"{{"update":{{"sessionUpdate":"{kind}",{members}}}"#))
}

fn apply_update(calls: &mut ToolCalls, kind: &str, call: &str) {
    let (kind, params) = update(kind, call);
    calls.update(&kind, &params);
}

/// Returns the tool call of a permission request, and whether it is known in part only.
fn complete_call(calls: &mut ToolCalls, call: &str) -> (String, bool) {
    let params = format!(r#"{{"toolCall":{call},"options":[]}}"#);
    let known = calls.permission(&params);
    (get(&known.complete(&params), &["toolCall"]).unwrap().to_owned(), known.is_partial())
}

#[test]
fn the_newest_of_each_member_counts() {
    let mut calls = ToolCalls::default();
    apply_update(
        &mut calls,
        "tool_call",
        r#"{"toolCallId":"c","kind":"read","title":"A","locations":[{"path":"/a"}],"status":"pending"}"#,
    );
    apply_update(
        &mut calls,
        "tool_call_update",
        r#"{"toolCallId":"c","kind":null,"locations":[{"path":"/b"}]}"#,
    );
    apply_update(&mut calls, "tool_call_update", r#"{"toolCallId":"other","kind":"edit"}"#);
    let (call, is_partial) = complete_call(&mut calls, r#"{"toolCallId":"c","title":"B"}"#);
    assert_eq!(
        (call.as_str(), is_partial),
        (r#"{"toolCallId":"c","title":"B","kind":"read","locations":[{"path":"/b"}]}"#, false)
    );
    // Members that are sent later are known too; a new beginning replaces all members.
    assert!(complete_call(&mut calls, r#"{"toolCallId":"c"}"#).0.contains(r#""title":"B""#));
    apply_update(&mut calls, "tool_call", r#"{"toolCallId":"c","title":"C"}"#);
    assert_eq!(
        complete_call(&mut calls, r#"{"toolCallId":"c"}"#).0,
        r#"{"toolCallId":"c","title":"C"}"#
    );
    assert_eq!(
        complete_call(&mut calls, r#"{"toolCallId":"new"}"#),
        (r#"{"toolCallId":"new"}"#.to_owned(), false)
    );
}

#[test]
fn a_call_is_known_until_the_turn_in_which_it_ended_is_over() {
    let mut calls = ToolCalls::default();
    apply_update(
        &mut calls,
        "tool_call",
        r#"{"toolCallId":"ends","kind":"read","status":"pending"}"#,
    );
    apply_update(
        &mut calls,
        "tool_call",
        r#"{"toolCallId":"stays","kind":"edit","status":"pending"}"#,
    );
    apply_update(&mut calls, "tool_call_update", r#"{"toolCallId":"ends","status":"completed"}"#);
    let kind = |calls: &mut ToolCalls, id: &str| {
        complete_call(calls, &format!(r#"{{"toolCallId":"{id}"}}"#)).0
    };
    assert!(kind(&mut calls, "ends").contains("read"));
    calls.end_turn(false);
    assert!(!kind(&mut calls, "ends").contains("kind"));
    assert!(kind(&mut calls, "stays").contains("edit"));
    calls.end_turn(true);
    assert!(kind(&mut calls, "stays").contains("edit"));
    for id in ["ends", "stays"] {
        let ended = format!(r#"{{"toolCallId":"{id}","status":"failed"}}"#);
        apply_update(&mut calls, "tool_call_update", &ended);
    }
    calls.end_turn(true);
    assert_eq!((calls.calls.len(), calls.bytes), (0, 0));
}

#[test]
fn a_turn_that_breaks_off_closes_the_calls_that_it_began() {
    let mut calls = ToolCalls::default();
    let begin = |calls: &mut ToolCalls, id: &str| {
        apply_update(calls, "tool_call", &format!(r#"{{"toolCallId":"{id}","kind":"read"}}"#));
    };
    let end = |calls: &mut ToolCalls, id: &str| {
        let ended = format!(r#"{{"toolCallId":"{id}","status":"completed"}}"#);
        apply_update(calls, "tool_call_update", &ended);
    };
    begin(&mut calls, "earlier");
    calls.end_turn(false);
    begin(&mut calls, "its own");
    calls.end_turn(true);
    assert!(calls.has_open(), "the answer of the turn before left one open");
    // The agent may still ask for it, or use its id for another call.
    let (call, is_partial) = complete_call(&mut calls, r#"{"toolCallId":"its own"}"#);
    assert!(call.contains("read") && is_partial, "{call}");
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"earlier"}"#).1);
    end(&mut calls, "its own");
    end(&mut calls, "earlier");
    assert!(!calls.has_open());
    begin(&mut calls, "its own");
    assert!(calls.has_open());
}

#[test]
fn what_had_to_be_forgotten_is_known_in_part() {
    let mut calls = ToolCalls::default();
    let large = "x".repeat(MAX_VALUE_BYTES);
    let diff = format!(r#"[{{"type":"diff","path":"/a","newText":"{large}"}}]"#);
    apply_update(
        &mut calls,
        "tool_call",
        &format!(r#"{{"toolCallId":"c","kind":"edit","content":{diff},"rawInput":"{large}"}}"#),
    );
    assert_eq!(
        complete_call(&mut calls, r#"{"toolCallId":"c"}"#),
        (r#"{"toolCallId":"c","kind":"edit"}"#.to_owned(), true)
    );
    // Members in the request itself need not be known.
    assert!(complete_call(&mut calls, r#"{"toolCallId":"c","content":[]}"#).1);
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"c","content":[],"rawInput":{}}"#).1);
    // A value that cannot be read may have meant anything.
    assert!(complete_call(&mut calls, r#"{"toolCallId":"c","locations":"/a"}"#).1);
}

#[test]
fn no_more_calls_and_bytes_are_kept_than_may_be() {
    let mut calls = ToolCalls::default();
    for number in 0..MAX_CALLS {
        apply_update(
            &mut calls,
            "tool_call",
            &format!(r#"{{"toolCallId":"{number}","kind":"edit"}}"#),
        );
    }
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"0"}"#).1);
    apply_update(
        &mut calls,
        "tool_call",
        r#"{"toolCallId":"more","kind":"edit","locations":[{"path":"/a"}]}"#,
    );
    assert_eq!(calls.calls.len(), MAX_CALLS);
    assert!(complete_call(&mut calls, r#"{"toolCallId":"more","kind":"edit"}"#).1);
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"0"}"#).1);
    // In the next turn there is room, because calls without updates are removed.
    calls.end_turn(false);
    apply_update(&mut calls, "tool_call", r#"{"toolCallId":"later","kind":"edit"}"#);
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"later"}"#).1);
    // A forgotten call that has not ended stays forgotten, even after partial updates and further turns.
    for _ in 0..2 {
        assert!(complete_call(&mut calls, r#"{"toolCallId":"1"}"#).1);
        apply_update(&mut calls, "tool_call_update", r#"{"toolCallId":"1","kind":"read"}"#);
        calls.end_turn(false);
    }
    assert!(complete_call(&mut calls, r#"{"toolCallId":"2"}"#).1);
    apply_update(&mut calls, "tool_call", r#"{"toolCallId":"1","kind":"read"}"#);
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"1"}"#).1);
    calls.end_turn(true);
    assert!(complete_call(&mut calls, r#"{"toolCallId":"2"}"#).1);
    let mut calls = ToolCalls::default();
    let value = "x".repeat(MAX_VALUE_BYTES - 2);
    for number in 0..=MAX_BYTES / MAX_VALUE_BYTES {
        apply_update(
            &mut calls,
            "tool_call",
            &format!(r#"{{"toolCallId":"{number}","title":"{value}"}}"#),
        );
        assert!(calls.bytes <= MAX_BYTES);
    }
    assert!(calls.bytes > MAX_BYTES - 2 * MAX_VALUE_BYTES);
    // Ids count too.
    for number in 0..20 {
        let id = format!("{number}{value}");
        apply_update(&mut calls, "tool_call", &format!(r#"{{"toolCallId":"{id}","kind":"edit"}}"#));
        assert!(calls.bytes <= MAX_BYTES);
    }
    assert!(complete_call(&mut calls, r#"{"toolCallId":"unknown"}"#).1);
}

#[test]
fn what_nobody_could_read_may_have_been_of_any_call() {
    let mut calls = ToolCalls::default();
    let call = r#"{"toolCallId":"c","kind":"read","locations":[{"path":"/a"}]}"#;
    apply_update(&mut calls, "tool_call", call);
    calls.mark_all_stale();
    calls.end_turn(false);
    // It is shown with its known members, and no rule allows it, until all its members were sent again.
    assert_eq!(complete_call(&mut calls, r#"{"toolCallId":"c"}"#), (call.to_owned(), true));
    assert!(complete_call(&mut calls, r#"{"toolCallId":"new","kind":"read"}"#).1);
    let whole =
        r#"{"toolCallId":"w","kind":"read","name":"x","locations":[],"content":[],"rawInput":{}}"#;
    assert!(!complete_call(&mut calls, whole).1);
    apply_update(&mut calls, "tool_call", call);
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"c"}"#).1);
    apply_update(&mut calls, "tool_call_update", r#"{"toolCallId":"c","locations":{}}"#);
    assert!(complete_call(&mut calls, r#"{"toolCallId":"c"}"#).1);
}

#[test]
fn what_is_said_of_a_call_that_ended_is_not_said_of_the_next_one() {
    let mut calls = ToolCalls::default();
    apply_update(
        &mut calls,
        "tool_call",
        r#"{"toolCallId":"c","kind":"read","status":"completed"}"#,
    );
    for _ in 0..2 {
        assert!(complete_call(&mut calls, r#"{"toolCallId":"c","status":"pending"}"#).1);
    }
    apply_update(&mut calls, "tool_call", r#"{"toolCallId":"c","kind":"edit"}"#);
    assert!(!complete_call(&mut calls, r#"{"toolCallId":"c"}"#).1);
}

#[test]
fn of_a_history_only_what_has_not_ended_counts() {
    let mut calls = ToolCalls::default();
    let large = "x".repeat(MAX_VALUE_BYTES);
    for number in 0..2 * MAX_BYTES / MAX_VALUE_BYTES {
        let call = format!(r#"{{"toolCallId":"{number}","kind":"read","title":"{large}"}}"#);
        let (kind, params) = update("tool_call", &call);
        calls.replay(&kind, &params);
        let ended = format!(r#"{{"toolCallId":"{number}","status":"completed"}}"#);
        let (kind, params) = update("tool_call_update", &ended);
        calls.replay(&kind, &params);
    }
    let (kind, params) = update("tool_call", r#"{"toolCallId":"open","kind":"read"}"#);
    calls.replay(&kind, &params);
    assert_eq!(
        complete_call(&mut calls, r#"{"toolCallId":"0"}"#),
        (r#"{"toolCallId":"0"}"#.to_owned(), false)
    );
    assert!(complete_call(&mut calls, r#"{"toolCallId":"open","kind":"edit"}"#).1);
}
