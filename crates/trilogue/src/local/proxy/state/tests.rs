use super::*;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
const PERMISSION: &str =
    r#"{"jsonrpc":"2.0","id":3,"method":"session/request_permission","params":{"sessionId":"s"}}"#;

/// A proxy with both sides at hand.
struct Table(Proxy);

impl Table {
    fn new() -> Self {
        let mut table = Self(Proxy::new());
        table.0.online();
        table
    }

    fn editor(&mut self, line: &str) -> &mut Self {
        self.0.take_editor(Frame::Line(Bytes::copy_from_slice(line.as_bytes())));
        self
    }

    fn server(&mut self, lines: &[&str]) -> &mut Self {
        for line in lines {
            let line_bytes = Bytes::copy_from_slice(line.as_bytes());
            let is_message = line.starts_with('{');
            let frame = if is_message { Frame::Line(line_bytes) } else { Frame::Noise(line_bytes) };
            self.0.take_server(frame).unwrap();
        }
        self
    }

    fn restart(&mut self) -> &mut Self {
        self.0.offline();
        self.0.online();
        self
    }

    fn told_editor(&mut self) -> Vec<String> {
        lines(self.0.editor_bytes().split().as_ref())
    }

    fn told_server(&mut self) -> Vec<String> {
        lines(self.0.server_bytes().split().as_ref())
    }

    /// One that the editor has introduced itself to, and opened a session of.
    fn opened() -> (Self, String) {
        let mut table = Self::new();
        table.editor(INITIALIZE).server(&[r#"{"jsonrpc":"2.0","id":0,"result":{}}"#, "#."]);
        let new = r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w"}}"#;
        table.told_server();
        let asked = table.editor(new).told_server();
        let session = splice::get_text(&asked[0], &["params", "_meta", "trilogue", "session"]);
        let session = session.unwrap().into_owned();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"sessionId":"{session}"}}}}"#);
        table.server(&[&answer, "#.", &format!("#P {session} 1")]);
        assert_eq!(table.told_editor().len(), 2);
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
    let (mut table, session) = Table::opened();
    let (one, two) = (update(&session, "one"), update(&session, "two"));
    assert!(table.server(&[&one]).told_editor().is_empty());
    assert_eq!(table.server(&[&format!("#P {session} 5")]).told_editor(), [one]);
    table.server(&[&two]).restart();
    let said = table.told_server();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains(r#""method":"initialize""#) && !said[0].contains(r#""id":0"#));
    let params = splice::get(&said[1], &["params"]).unwrap();
    assert_eq!(params, format!(r#"{{"cwd":"/w","sessionId":"{session}","after":5}}"#));
    // Answers to what the editor has not asked are not for it.
    for line in &said {
        let id = splice::get(line, &["id"]).unwrap();
        table.server(&[&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "#."]);
    }
    assert!(table.told_editor().is_empty());
    assert_eq!(table.server(&[&two, &format!("#P {session} 6")]).told_editor(), [two]);
}

#[test]
fn what_has_no_answer_is_asked_again_in_order_and_under_the_same_key() {
    let (mut table, session) = Table::opened();
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
    let before = table.told_server();
    table.restart();
    let after = table.told_server();
    assert_eq!(after[2..], [before[0].clone(), before[1].clone(), before[3].clone()]);
    // What may not be done twice is not.
    let failed = table.told_editor();
    assert!(failed.len() == 1 && failed[0].contains(r#""id":"x","error""#), "{failed:?}");
    table.server(&[r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"cancelled"}}"#, "#."]);
    table.restart();
    assert_eq!(table.told_server()[2..], [before[3].clone()]);
    let error = ErrorObject::of(Code::INTERNAL_ERROR);
    table.0.offline();
    table.told_editor();
    table.editor(&prompt("6"));
    assert!(table.told_server().is_empty());
    table.0.give_up(&error);
    assert_eq!(table.told_editor().len(), 2);
}

#[test]
fn a_server_that_ends_is_asked_nothing_more_and_its_refusal_is_not_told() {
    let (mut table, _) = Table::opened();
    let list = r#"{"jsonrpc":"2.0","id":9,"method":"session/list"}"#;
    let refusal = r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"x","data":{"code":"shutting_down"}}}"#;
    table.editor(list).server(&[refusal, "#."]);
    assert!(table.told_editor().is_empty());
    table.restart();
    assert!(table.told_server().contains(&list.to_owned()));
    table.server(&[refusal, "#."]);
    let due = table.0.deadline().unwrap();
    table.0.tick(due);
    assert_eq!(table.told_editor(), [refusal]);
    assert_eq!(table.0.deadline(), None);
}

#[test]
fn a_history_that_was_cut_goes_on_and_begins_not_anew() {
    let (mut table, _) = Table::opened();
    let load = r#"{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"s"}}"#;
    let told: Vec<_> = ["a", "b", "c", "d"].iter().map(|text| update("s", text)).collect();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    table.editor(load).server(&[told[0], told[1], "#.", told[2]]).restart();
    assert_eq!(table.told_server().last().unwrap(), load);
    table.server(&[told[0], "#."]).restart();
    table.server(&told).server(&[answer, "#P s 8"]);
    assert_eq!(table.told_editor(), [told[0], told[1], told[2], told[3], answer]);
    table.restart();
    assert!(table.told_server().iter().any(|line| line.contains(r#""sessionId":"s","after":8"#)));
    assert_eq!(table.server(&[told[0], "#P s 9"]).told_editor(), [told[0]]);
}

#[test]
fn questions_keep_their_numbers_and_those_that_are_gone_are_taken_back_before_the_answer() {
    let (mut table, _) = Table::opened();
    let prompt = r#"{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s"}}"#;
    let call =
        r#"{"jsonrpc":"2.0","id":2,"method":"fs/read_text_file","params":{"sessionId":"s"}}"#;
    table.editor(prompt).server(&[call, "#I 3 i", PERMISSION, "#P s 1"]);
    let asked = table.told_editor();
    assert_eq!(asked[0], call.replace(r#""id":2"#, r#""id":0"#));
    assert_eq!(asked[1], PERMISSION.replace(r#""id":3"#, r#""id":1"#));
    table.restart();
    let gone = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#)
    };
    assert_eq!(table.told_editor(), [gone(0)]);
    let again = PERMISSION.replace(r#""id":3"#, r#""id":0"#);
    assert!(table.server(&["#I 0 i", &again, "#."]).told_editor().is_empty());
    table.told_server();
    table.editor(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
    assert!(table.told_server().is_empty());
    table.editor(r#"{"jsonrpc":"2.0","id":1,"result":{"outcome":1}}"#);
    assert_eq!(table.told_server(), [r#"{"jsonrpc":"2.0","id":0,"result":{"outcome":1}}"#]);
    let next = PERMISSION.replace(r#""id":3"#, r#""id":6"#);
    table.server(&["#I 6 j", &next, "#."]).told_editor();
    table.restart();
    let answer = r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(table.server(&[answer, "#."]).told_editor(), [gone(2), answer.to_owned()]);
    // The server takes one back by its own number.
    table.server(&["#I 9 k", &PERMISSION.replace(r#""id":3"#, r#""id":9"#), "#."]).told_editor();
    let back = gone(0).replace(r#"":0}"#, r#"":9}"#);
    assert_eq!(table.server(&[&back, "#."]).told_editor(), [gone(3)]);
}

#[test]
fn lines_that_nobody_can_read_are_the_servers_to_judge() {
    let mut table = Table::new();
    for line in ["{", "[]", r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, r#"{"id":5}"#] {
        assert_eq!(table.editor(line).told_server(), [line]);
    }
    assert!(table.told_editor().is_empty());
    table.restart();
    assert!(table.told_server().is_empty());
    let mut long = jsonrpc::Decoder::new(60);
    long.push(br#"{"jsonrpc":"2.0","id":5,"method":"session/new","params":{"cwd":"/w"}}"#);
    long.push(b"\n");
    table.0.take_editor(long.next().unwrap());
    assert!(table.told_editor()[0].contains(r#""id":5,"error":{"code":-32600"#));
}
