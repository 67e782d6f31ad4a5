use super::*;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
const PERMISSION: &str =
    r#"{"jsonrpc":"2.0","id":3,"method":"session/request_permission","params":{"sessionId":"s"}}"#;

struct Table(Proxy);

impl Table {
    fn new() -> Self {
        let mut table = Self(Proxy::new());
        table.0.on_connect(MAX_SENT_BYTES, &new_life(), Instant::now());
        table
    }

    fn editor(&mut self, line: &str) -> &mut Self {
        self.0.on_editor_frame(Frame::Line(Bytes::copy_from_slice(line.as_bytes())));
        self
    }

    fn server(&mut self, lines: &[&str]) -> &mut Self {
        for line in lines {
            let line_bytes = Bytes::copy_from_slice(line.as_bytes());
            let is_message = line.starts_with('{');
            let frame = if is_message { Frame::Line(line_bytes) } else { Frame::Noise(line_bytes) };
            self.0.on_server_frame(frame).unwrap();
        }
        self
    }

    fn restart(&mut self) -> &mut Self {
        self.0.on_disconnect(Instant::now());
        self.0.on_connect(MAX_SENT_BYTES, &new_life(), Instant::now());
        self
    }

    fn take_editor_lines(&mut self) -> Vec<String> {
        lines(self.0.editor_bytes().split().as_ref())
    }

    fn take_server_lines(&mut self) -> Vec<String> {
        lines(self.0.server_bytes().split().as_ref())
    }

    fn with_session() -> (Self, String) {
        let mut table = Self::new();
        table.editor(INITIALIZE).server(&[r#"{"jsonrpc":"2.0","id":0,"result":{}}"#, "#."]);
        let new = r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w"}}"#;
        table.take_server_lines();
        let asked = table.editor(new).take_server_lines();
        let session = splice::get_text(&asked[0], &["params", "_meta", "trilogue", "session"]);
        let session = session.unwrap().into_owned();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"sessionId":"{session}"}}}}"#);
        table.server(&[&answer, "#.", &format!("#P {session} 1")]);
        assert_eq!(table.take_editor_lines().len(), 2);
        (table, session)
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    std::str::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

fn update(session: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":"{text}"}}}}"#
    )
}

#[test]
fn what_is_not_complete_is_not_passed_on() {
    let (mut table, session) = Table::with_session();
    let (one, two) = (update(&session, "one"), update(&session, "two"));
    assert!(table.server(&[&one]).take_editor_lines().is_empty());
    assert_eq!(table.server(&[&format!("#P {session} 5")]).take_editor_lines(), [one]);
    table.server(&[&two]).restart();
    let said = table.take_server_lines();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains(r#""method":"initialize""#) && !said[0].contains(r#""id":0"#));
    let params = splice::get(&said[1], &["params"]).unwrap();
    assert_eq!(params, format!(r#"{{"cwd":"/w","sessionId":"{session}","after":5}}"#));
    // The editor gets no answers to requests that it did not send.
    for line in &said {
        let id = splice::get(line, &["id"]).unwrap();
        table.server(&[&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "#."]);
    }
    assert!(table.take_editor_lines().is_empty());
    assert_eq!(table.server(&[&two, &format!("#P {session} 6")]).take_editor_lines(), [two]);
}

#[test]
fn the_messages_of_an_odd_line_reach_the_server() {
    let (mut table, session) = Table::with_session();
    let cancel = format!(
        r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#
    );
    let other = r#"{"jsonrpc":"2.0","id":"x","method":"_x","params":{}}"#;
    table.editor(&format!("\x1b[0m{cancel}{other}"));
    assert_eq!(table.take_server_lines(), [cancel, other.to_owned()]);
    let broken =
        b"{\"jsonrpc\":\"2.0\",\"id\":\"y\",\"method\":\"_y\",\"params\":{\"x\":\"\xff\"}}";
    table.0.on_editor_frame(Frame::Line(Bytes::from_static(broken)));
    let sent = table.take_server_lines();
    assert!(sent.len() == 1 && sent[0].contains("\u{fffd}"), "{sent:?}");
    assert!(table.take_editor_lines().is_empty());
}

#[test]
fn what_has_no_answer_is_asked_again_in_order_and_under_the_same_key() {
    let (mut table, session) = Table::with_session();
    let prompt = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[]}}}}"#
        )
    };
    let cancel = format!(
        r#"{{"jsonrpc":"2.0","method":"session/cancel","params":{{"sessionId":"{session}"}}}}"#
    );
    let other = r#"{"jsonrpc":"2.0","id":"x","method":"_x","params":{}}"#;
    table.editor(&prompt("4")).editor(&cancel).editor(other).editor(&prompt("\"5\""));
    let before = table.take_server_lines();
    table.restart();
    let after = table.take_server_lines();
    assert_eq!(after[2..], [before[0].clone(), before[1].clone(), before[3].clone()]);
    // A request that must not be repeated is not sent again.
    let failed = table.take_editor_lines();
    assert!(failed.len() == 1 && failed[0].contains(r#""id":"x","error""#), "{failed:?}");
    table.server(&[r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"cancelled"}}"#, "#."]);
    table.restart();
    assert_eq!(table.take_server_lines()[2..], [before[3].clone()]);
    let error = ErrorObject::of(Code::INTERNAL_ERROR);
    table.0.on_disconnect(Instant::now());
    table.take_editor_lines();
    table.editor(&prompt("6"));
    assert!(table.take_server_lines().is_empty());
    table.0.fail_all(&error);
    assert_eq!(table.take_editor_lines().len(), 2);
}

#[test]
fn a_server_that_ends_is_asked_nothing_more_and_its_refusal_is_not_told() {
    let (mut table, _) = Table::with_session();
    let list = r#"{"jsonrpc":"2.0","id":9,"method":"session/list"}"#;
    let refusal = r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"x","data":{"code":"shutting_down"}}}"#;
    table.editor(list).server(&[refusal, "#."]);
    assert!(table.take_editor_lines().is_empty());
    table.restart();
    assert!(table.take_server_lines().contains(&list.to_owned()));
    table.server(&[refusal, "#."]);
    let due = table.0.deadline().unwrap();
    table.0.on_deadline(due);
    assert_eq!(table.take_editor_lines(), [refusal]);
    assert_eq!(table.0.deadline(), None);
}

#[test]
fn a_history_that_was_cut_goes_on_and_begins_not_anew() {
    let (mut table, _) = Table::with_session();
    let load = r#"{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"s"}}"#;
    let told: Vec<_> = ["a", "b", "c", "d"].iter().map(|text| update("s", text)).collect();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    table.editor(load).server(&[told[0], told[1], "#.", told[2]]).restart();
    assert_eq!(table.take_server_lines().last().unwrap(), load);
    table.server(&[told[0], "#."]).restart();
    table.server(&told).server(&[answer, "#P s 8"]);
    assert_eq!(table.take_editor_lines(), [told[0], told[1], told[2], told[3], answer]);
    table.restart();
    assert!(
        table.take_server_lines().iter().any(|line| line.contains(r#""sessionId":"s","after":8"#))
    );
    assert_eq!(table.server(&[told[0], "#P s 9"]).take_editor_lines(), [told[0]]);
}

#[test]
fn questions_keep_their_numbers_and_those_that_are_gone_are_taken_back_before_the_answer() {
    let (mut table, _) = Table::with_session();
    let prompt = r#"{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let call =
        r#"{"jsonrpc":"2.0","id":2,"method":"fs/read_text_file","params":{"sessionId":"s"}}"#;
    table.editor(prompt).server(&[call, "#I 3 i", PERMISSION, "#P s 1"]);
    let asked = table.take_editor_lines();
    assert_eq!(asked[0], call.replace(r#""id":2"#, r#""id":0"#));
    assert_eq!(asked[1], PERMISSION.replace(r#""id":3"#, r#""id":1"#));
    table.restart();
    let gone = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#)
    };
    assert_eq!(table.take_editor_lines(), [gone(0)]);
    let again = PERMISSION.replace(r#""id":3"#, r#""id":0"#);
    assert!(table.server(&["#I 0 i", &again, "#."]).take_editor_lines().is_empty());
    table.take_server_lines();
    table.editor(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
    assert!(table.take_server_lines().is_empty());
    table.editor(r#"{"jsonrpc":"2.0","id":1,"result":{"outcome":1}}"#);
    assert_eq!(table.take_server_lines(), [r#"{"jsonrpc":"2.0","id":0,"result":{"outcome":1}}"#]);
    let next = PERMISSION.replace(r#""id":3"#, r#""id":6"#);
    table.server(&["#I 6 j", &next, "#."]).take_editor_lines();
    table.restart();
    let answer = r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(table.server(&[answer, "#."]).take_editor_lines(), [gone(2), answer.to_owned()]);
    // The server takes one back by its own number.
    table
        .server(&["#I 9 k", &PERMISSION.replace(r#""id":3"#, r#""id":9"#), "#."])
        .take_editor_lines();
    let back = gone(0).replace(r#"":0}"#, r#"":9}"#);
    assert_eq!(table.server(&[&back, "#."]).take_editor_lines(), [gone(3)]);
}

#[test]
fn lines_that_nobody_can_read_are_answered_without_a_server() {
    // The first mark does not exist yet, so it may be missing.
    for mut table in [Table(Proxy::new()), Table::new()] {
        for (line, code) in [("{", -32700), ("[]", -32600), (r#"{"id":5}"#, -32600)] {
            let told = table.editor(line).take_editor_lines();
            let answer = format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"#);
            assert!(told.len() == 1 && told[0].starts_with(&answer), "{line}: {told:?}");
            assert!(table.take_server_lines().is_empty());
        }
    }
    let mut table = Table::new();
    let nameless = r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#;
    assert_eq!(table.editor(nameless).take_server_lines(), [nameless]);
    table.restart();
    assert!(table.take_server_lines().is_empty());
    let mut long = jsonrpc::Decoder::new(60);
    long.push(br#"{"jsonrpc":"2.0","id":5,"method":"session/new","params":{"cwd":"/w"}}"#);
    long.push(b"\n");
    table.0.on_editor_frame(long.next().unwrap());
    assert!(table.take_editor_lines()[0].contains(r#""id":5,"error":{"code":-32600"#));
}

#[test]
fn a_request_that_connections_break_of_is_not_asked_for_ever() {
    let (mut table, _) = Table::with_session();
    let prompt = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"s"}}}}"#
        )
    };
    table.editor(&prompt(4)).editor(&prompt(5));
    assert_eq!(table.0.on_disconnect(Instant::now()), 0, "something was told on this one");
    for in_vain in 1..=3 {
        table.0.on_connect(MAX_SENT_BYTES, &new_life(), Instant::now());
        assert!(table.take_server_lines().iter().any(|line| line.contains(r#""id":4,"#)));
        assert!(table.take_editor_lines().is_empty());
        assert_eq!(table.0.on_disconnect(Instant::now()), in_vain);
    }
    let told = table.take_editor_lines();
    assert!(told.len() == 1 && told[0].contains(r#""id":4,"error""#), "{told:?}");
    table.0.on_connect(MAX_SENT_BYTES, &new_life(), Instant::now());
    assert!(!table.take_server_lines().iter().any(|line| line.contains(r#""id":4,"#)));
    // An update for the session does not count as a mark or an answer.
    table.server(&[&update("s", "a"), "#P s 2"]);
    assert_eq!(table.0.on_disconnect(Instant::now()), 0);
    for _ in 0..2 {
        table.0.on_connect(MAX_SENT_BYTES, &new_life(), Instant::now());
        table.0.on_disconnect(Instant::now());
    }
    table.0.on_connect(MAX_SENT_BYTES, &new_life(), Instant::now());
    table.take_server_lines();
    table.server(&[r#"{"jsonrpc":"2.0","id":5,"result":{"stopReason":"end_turn"}}"#, "#."]);
    assert!(table.take_editor_lines().iter().any(|line| line.contains(r#""id":5,"result""#)));
}

#[test]
fn a_line_of_the_servers_that_is_too_long_is_missed_by_nobody_in_silence() {
    let (mut table, _) = Table::with_session();
    let long = |line: &str| {
        let mut decoder = jsonrpc::Decoder::new(120);
        decoder.push(format!("{line}{}\n", " ".repeat(200)).as_bytes());
        decoder.next().unwrap()
    };
    let list = r#"{"jsonrpc":"2.0","id":9,"method":"session/list"}"#;
    table.editor(list);
    table.take_server_lines();
    for (line, to_editor, to_server) in [
        (r#"{"jsonrpc":"2.0","id":9,"result":{"sessions":["#, Some(r#""id":9,"error""#), None),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"fs/write","params":{"#,
            None,
            Some(r#""id":3,"error""#),
        ),
        (r#"{"jsonrpc":"2.0","method":"session/update","params":{"#, None, None),
    ] {
        table.0.on_server_frame(long(line)).unwrap();
        assert_eq!(table.0.take_too_long(), Some(120), "{line}");
        assert_eq!(table.0.take_too_long(), None);
        let (editor, server) =
            (table.take_editor_lines().concat(), table.take_server_lines().concat());
        assert_eq!(editor.is_empty(), to_editor.is_none(), "{editor}");
        assert_eq!(server.is_empty(), to_server.is_none(), "{server}");
        assert!(editor.contains(to_editor.unwrap_or_default()), "{editor}");
        assert!(server.contains(to_server.unwrap_or_default()), "{server}");
    }
}

#[test]
fn what_an_agent_says_in_words_of_its_own_is_told_once_in_a_history_too() {
    let (mut table, _) = Table::with_session();
    let load = r#"{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"s"}}"#;
    let own = r#"{"jsonrpc":"2.0","method":"_x/told","params":{"sessionId":"s","n":1}}"#;
    let nobodys = r#"{"jsonrpc":"2.0","method":"_x/told","params":{"n":2}}"#;
    let said = update("s", "a");
    table.editor(load).server(&[own, &said, "#.", nobodys, "#."]).restart();
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    table.server(&[own, &said, "#.", own, "#.", answer, "#P s 8"]);
    assert_eq!(table.take_editor_lines(), [own, &said, nobodys, own, answer]);
}

#[test]
fn a_request_is_not_blamed_for_a_network_that_fails() {
    let (mut table, _) = Table::with_session();
    let prompt = r#"{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    table.editor(prompt);
    let now = Instant::now();
    table.0.on_disconnect(now);
    for _ in 0..15 {
        table.0.on_connect(MAX_SENT_BYTES, "one", now);
        assert!(table.take_server_lines().iter().any(|line| line.contains(r#""id":4,"#)));
        table.0.on_disconnect(now);
    }
    assert!(table.take_editor_lines().is_empty());
    // A server that ends each such connection would get it for ever.
    table.0.on_connect(MAX_SENT_BYTES, "one", now);
    table.0.on_disconnect(now);
    assert!(table.take_editor_lines().concat().contains(r#""id":4,"error""#));
}

#[test]
fn a_silent_turn_is_not_blamed_for_servers_that_are_restarted() {
    let (mut table, _) = Table::with_session();
    let prompt = r#"{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    table.editor(prompt);
    let mut now = Instant::now();
    table.0.on_disconnect(now);
    for _ in 0..5 {
        table.0.on_connect(MAX_SENT_BYTES, &new_life(), now);
        now += Duration::from_secs(10);
        assert_eq!(table.0.on_disconnect(now), 0);
    }
    assert!(table.take_editor_lines().is_empty());
    // Neither are those before one that lasted counted on.
    for lasts in [1, 1, 60, 1, 1] {
        table.0.on_connect(MAX_SENT_BYTES, &new_life(), now);
        now += Duration::from_secs(lasts);
        table.0.on_disconnect(now);
        assert!(table.take_editor_lines().is_empty());
    }
    table.0.on_connect(MAX_SENT_BYTES, &new_life(), now);
    table.0.on_disconnect(now + Duration::from_secs(9));
    assert!(table.take_editor_lines().concat().contains(r#""id":4,"error""#));
}

#[test]
fn a_prompt_is_waited_for_until_its_turn_has_begun() {
    let (mut table, _) = Table::with_session();
    let prompt = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"s"}}}}"#
        )
    };
    let list = r#"{"jsonrpc":"2.0","id":5,"method":"session/list"}"#;
    table.editor(&prompt("\"a b\"")).editor(&prompt("4")).editor(list);
    let now = Instant::now();
    assert!(!table.0.has_ended(now), "it says more");
    table.0.on_input_end(now);
    assert!(!table.0.is_listening());
    // Only a prompt's turn continues without an answer.
    table.server(&["#A 5", "#A 4", "#A 9", r#"{"jsonrpc":"2.0","id":5,"result":{}}"#, "#."]);
    assert!(!table.0.has_ended(now));
    table.restart();
    assert!(!table.0.has_ended(now));
    table.server(&["#A \"a b\""]);
    assert!(table.0.has_ended(now));
    assert!(table.0.conclude(|_| panic!("nothing is open")).is_ok());
}

#[test]
fn what_is_not_answered_in_time_after_the_end_is_answered_with_an_error() {
    let told = |error: &trilogue_domain::Error| {
        ErrorObject::new(Code::INTERNAL_ERROR, error.message().to_owned())
    };
    let mut table = Table(Proxy::new());
    let prompt = r#"{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    table.editor(INITIALIZE).editor(prompt);
    let begun = Instant::now();
    table.0.on_input_end(begun);
    // No time limit applies while the server starts.
    let met = begun + Duration::from_secs(50);
    assert!(!table.0.has_ended(met) && table.0.deadline().is_none());
    table.0.on_connect(MAX_SENT_BYTES, "one", met);
    assert_eq!(table.take_server_lines().len(), 2);
    table.server(&["#A 4"]);
    // Another connection gives no more time.
    table.0.on_disconnect(met + Duration::from_secs(5));
    table.0.on_connect(MAX_SENT_BYTES, "one", met + Duration::from_secs(6));
    let over = met + Duration::from_secs(10);
    assert_eq!(table.0.deadline(), Some(over));
    assert!(!table.0.has_ended(over - Duration::from_millis(1)) && table.0.has_ended(over));
    let error = table.0.conclude(told).unwrap_err();
    assert!(error.message().contains("10s") && error.hint_text().is_some(), "{error}");
    let answers = table.take_editor_lines();
    assert!(answers.len() == 1 && answers[0].contains(r#""id":0,"error""#), "{answers:?}");
    // An editor that is gone gets no notice.
    let mut table = Table::new();
    table.editor(INITIALIZE);
    table.0.on_editor_gone();
    assert!(table.0.has_ended(begun) && table.0.conclude(told).is_ok());
}

#[test]
fn an_agent_that_does_not_come_to_be_is_told_of_once_and_is_no_success() {
    const REFUSED: &str = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"no such program","data":{"code":"peer_unavailable","hint":"look"}}}"#;
    let mut table = Table::new();
    assert_eq!(table.0.startup_result(), Ok(()));
    for is_news in [true, false] {
        table.editor(INITIALIZE).server(&[REFUSED, "#."]);
        let told = table.0.take_refusal();
        assert_eq!(told.is_some(), is_news);
        assert!(told.is_none_or(|it| it.message() == "no such program"));
    }
    let error = table.0.startup_result().unwrap_err();
    // The server itself was there.
    assert_eq!(
        (error.code(), error.hint_text()),
        (trilogue_domain::Code::AgentFailed, Some("look"))
    );
    // What the editor has to mend itself is its own affair, and so is what comes behind a session.
    let (mut table, _) = Table::with_session();
    table.editor(&INITIALIZE.replace("\"id\":0", "\"id\":5"));
    table.server(&[&REFUSED.replace("\"id\":0", "\"id\":5"), "#."]);
    let mut other = Table::new();
    other.editor(INITIALIZE).server(&[&REFUSED.replace("-32603", "-32000"), "#."]);
    for mut table in [table, other] {
        assert_eq!(table.0.take_refusal(), None);
        assert_eq!(table.0.startup_result(), Ok(()));
    }
}

/// Another server.
fn new_life() -> String {
    uuid::Uuid::new_v4().to_string()
}
