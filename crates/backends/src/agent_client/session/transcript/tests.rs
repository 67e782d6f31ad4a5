use trilogue_domain::event::MessageEvent;

use super::*;

fn update(kind: &str, id: Option<&str>, text: &str) -> String {
    let mut update =
        serde_json::json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
    if let Some(id) = id {
        update["messageId"] = serde_json::json!(id);
    }
    serde_json::json!({ "sessionId": "", "update": update }).to_string()
}

/// The logged events of these pieces, in short form, and the aliases.
fn log(
    pieces: &[(&str, Option<&str>)],
    used: &UsedIds,
) -> (Vec<String>, Vec<(MessageId, MessageId)>) {
    let user = MessageId::parse("user").unwrap();
    let mut transcript = TurnTranscript::new(RunId::parse("run").unwrap(), "a", user, true);
    let (mut log, mut aliases) = (Vec::new(), Vec::new());
    let mut note = |body: &Body| match body {
        Body::Message(MessageEvent::Started { message, .. }) => log.push(format!("+{message}")),
        Body::Message(MessageEvent::Delta { message, text }) => {
            log.push(format!("{message}:{text}"))
        }
        Body::Message(MessageEvent::Completed { message }) => log.push(format!("-{message}")),
        Body::Message(MessageEvent::Thought { message, .. }) => {
            log.push(message.as_ref().map_or("?".to_owned(), |id| format!("~{id}")))
        }
        other => log.push(other.name().to_owned()),
    };
    for (kind, id) in pieces {
        let logged = transcript.update(kind, update(kind, *id, "x"), used);
        logged.events.iter().for_each(|(body, _)| note(body));
        aliases.extend(logged.alias);
    }
    transcript.finish(false, &mut UsedIds::default()).iter().for_each(note);
    (log, aliases)
}

const SAYS: &str = "agent_message_chunk";
const THINKS: &str = "agent_thought_chunk";

#[test]
fn a_message_of_the_agent_s_own_can_be_interrupted_and_come_back() {
    let pieces = [
        (SAYS, Some("A")),
        (THINKS, Some("t")),
        (SAYS, Some("A")),
        (SAYS, Some("B")),
        (SAYS, Some("A")),
    ];
    let (log, aliases) = log(&pieces, &UsedIds::default());
    let expected = ["+A", "A:x", "~t", "A:x", "-A", "+B", "B:x", "-B", "A:x", "-A"];
    assert_eq!((log, aliases), (expected.map(str::to_owned).to_vec(), vec![]));
}

/// Thoughts, messages of the agent and messages of the user follow one rule for ids: a taken id is replaced, and the original id still finds the message.
#[test]
fn an_id_names_one_thing_whatever_its_kind() {
    let run = RunId::parse("run").unwrap();
    let id = |text: &str| MessageId::parse(text).unwrap();
    let (thought, message) = (derived_thought_id(&run, "A"), derived_id(&run, "B"));
    let pieces = [
        (SAYS, Some("A")),
        (THINKS, Some("A")),
        (THINKS, Some("A")),
        (SAYS, Some("A")),
        (THINKS, Some("B")),
        (SAYS, Some("B")),
        (THINKS, Some("user")),
    ];
    let (log, aliases) = log(&pieces, &UsedIds::default());
    let of_user = derived_thought_id(&run, "user");
    let expected = [
        "+A".to_owned(),
        "A:x".to_owned(),
        format!("~{thought}"),
        format!("~{thought}"),
        "A:x".to_owned(),
        "~B".to_owned(),
        "-A".to_owned(),
        format!("+{message}"),
        format!("{message}:x"),
        format!("~{of_user}"),
        format!("-{message}"),
    ];
    assert_eq!(log, expected);
    assert_eq!(aliases, [(thought, id("A")), (message, id("B")), (of_user, id("user"))]);
    let mut used = UsedIds::default();
    used.add([id("A")]);
    let (log, aliases) = super::tests::log(&[(THINKS, Some("A"))], &used);
    let derived = derived_thought_id(&run, "A");
    assert_eq!((log, aliases), (vec![format!("~{derived}")], vec![(derived, id("A"))]));
}

#[test]
fn an_id_that_is_taken_or_none_gets_another() {
    let mut used = UsedIds::default();
    used.add([MessageId::parse("old").unwrap()]);
    let long = "x".repeat(1_000);
    for (id, has_alias) in [("user", true), ("old", true), (&*long, false), ("a\nb", false)] {
        let (log, aliases) = log(&[(SAYS, Some(id)), (SAYS, Some(id))], &used);
        assert_eq!(log.len(), 4, "{log:?}");
        let ours = log[0].trim_start_matches('+');
        assert!(Uuid::parse_str(ours).is_ok(), "{ours}");
        assert_eq!(aliases.len(), usize::from(has_alias), "{id}");
        // The same id gives the same message, in this run and at every replay.
        assert_eq!(log, self::log(&[(SAYS, Some(id)), (SAYS, Some(id))], &used).0);
    }
}

#[test]
fn a_piece_whose_id_is_empty_has_none() {
    let mut ids = MessageIds::new(true);
    let (params, id, is_ours) = ids.assign(ChunkKind::Agent, update(SAYS, Some(""), "x"));
    assert!(is_ours);
    assert_eq!(splice::message_id(&params).as_deref(), Some(&*id));
    let (_, again, _) = ids.assign(ChunkKind::Agent, update(SAYS, None, "x"));
    assert_eq!(id, again);
    let (_, given, is_ours) = ids.assign(ChunkKind::Agent, update(SAYS, Some("g"), "x"));
    assert_eq!((&*given, is_ours), ("g", false));
    assert_ne!(ids.assign(ChunkKind::Agent, update(SAYS, None, "x")).1, id);
}

#[test]
fn an_id_is_looked_up_once_and_what_is_remembered_is_bounded() {
    let user = MessageId::parse("user").unwrap();
    let mut transcript = TurnTranscript::new(RunId::parse("run").unwrap(), "a", user, true);
    let mut used = UsedIds::default();
    used.add([MessageId::parse("old").unwrap()]);
    let begins = |transcript: &TurnTranscript, kind: &str, id: Option<&str>, used: &UsedIds| {
        transcript.begun_message_id(kind, &update(kind, id, "x"), used).map(|id| id.to_string())
    };
    for kind in [SAYS, THINKS] {
        assert_eq!(begins(&transcript, kind, Some("new"), &used).as_deref(), Some("new"));
    }
    for (kind, id) in
        [(SAYS, None), (SAYS, Some("user")), (SAYS, Some("old")), (THINKS, Some("old"))]
    {
        assert_eq!(begins(&transcript, kind, id, &used), None, "{id:?}");
    }
    transcript.update(SAYS, update(SAYS, Some("new"), "x"), &used);
    assert_eq!(begins(&transcript, SAYS, Some("new"), &used), None);
    used.add((0..MAX_REMEMBERED).map(|number| MessageId::parse(&format!("m{number}")).unwrap()));
    assert_eq!(used.ids.len(), MAX_REMEMBERED);
    // The store knows the oldest by now.
    assert_eq!(begins(&transcript, SAYS, Some("old"), &used).as_deref(), Some("old"));
    assert_eq!(begins(&transcript, SAYS, Some("m0"), &used), None);
}

#[test]
fn a_message_whose_id_is_taken_is_told_under_its_new_one() {
    let mut used = UsedIds::default();
    used.add([MessageId::parse("old").unwrap()]);
    for (assigns, renames) in [(true, true), (false, false)] {
        let user = MessageId::parse("user").unwrap();
        let mut transcript = TurnTranscript::new(RunId::parse("run").unwrap(), "a", user, assigns);
        let logged = transcript.update(SAYS, update(SAYS, Some("old"), "x"), &used);
        let (message, theirs) = logged.alias.unwrap();
        assert_eq!(theirs.as_str(), "old");
        let original = logged.events.last().unwrap().1.clone().unwrap();
        let params = std::str::from_utf8(&original.bytes).unwrap();
        let expected = if renames { message.as_str() } else { "old" };
        assert_eq!(splice::message_id(params).as_deref(), Some(expected));
    }
}

#[test]
fn what_is_remembered_of_a_turn_is_bounded() {
    let mut messages = TurnMessages::default();
    let id = |number: usize| MessageId::parse(&format!("m{number}")).unwrap();
    for number in 0..=MAX_TURN_MESSAGES {
        messages.insert(&number.to_string(), id(number));
    }
    assert_eq!(messages.get("0"), None);
    assert_eq!(messages.get("1"), Some(&id(1)));
    let long = "x".repeat(1024 * 1024);
    messages.insert(&long, id(0));
    assert_eq!(messages.get(&long), Some(&id(0)));
    assert_eq!(messages.get(&long[1..]), None);
    let longest = messages.by_id.keys().map(String::len).max().unwrap();
    assert!(longest <= MAX_ID_BYTES + 1 && messages.by_id.len() == messages.order.len());

    let mut calls = OpenCalls::default();
    for number in 0..8 {
        calls.insert(&format!("{number}{}", "x".repeat(MAX_CALL_ID_BYTES / 4 - 1)));
    }
    assert_eq!((calls.ids.len(), calls.bytes), (4, MAX_CALL_ID_BYTES));
    let one = calls.ids.iter().next().unwrap().clone();
    calls.remove(&one);
    calls.insert("small");
    assert_eq!(calls.bytes, MAX_CALL_ID_BYTES / 4 * 3 + "small".len());
}
