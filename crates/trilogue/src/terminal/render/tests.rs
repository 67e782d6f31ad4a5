use super::plain::{PlainOptions, PlainRenderer, PlainText};
use super::*;

struct Renderer {
    fold: PieceFold,
    plain: PlainRenderer,
}

impl Renderer {
    fn event(&mut self, event: &Event) -> PlainText {
        self.plain.event(&mut self.fold, event)
    }
}

fn renderer(live: bool, metadata: bool, raw: bool, all: bool) -> Renderer {
    Renderer {
        fold: PieceFold::new(FoldOptions { metadata, all, users: false }),
        plain: PlainRenderer::new(PlainOptions { live, raw, record: false }),
    }
}

fn show(live: bool, events: &[&str]) -> (String, String) {
    let mut renderer = renderer(live, true, false, false);
    let (mut out, mut aside) = (String::new(), String::new());
    for (number, body) in (1..).zip(events) {
        let event = format!("{{\"id\":\"{number}\",\"number\":{number},\"at\":\"x\",{body}}}");
        let rendered = renderer.event(&serde_json::from_str(&event).unwrap());
        out.push_str(&rendered.out);
        aside.push_str(&rendered.aside);
    }
    (out, anstream::adapter::strip_str(&aside).to_string())
}

const STARTED: &str = r#""type":"message.started","message_id":"m","role":"agent/x""#;
const COMPLETED: &str = r#""type":"message.completed","message_id":"m""#;

#[test]
fn the_answer_has_its_notes_and_the_steps_stand_beside() {
    let events = [
        r#""type":"message.started","message_id":"u","role":"user""#,
        r#""type":"message.delta","message_id":"u","text":"question""#,
        r#""type":"message.completed","message_id":"u""#,
        STARTED,
        r#""type":"message.delta","message_id":"m","text":"Bees dan""#,
        r#""type":"tool.started","call_id":"c","tool":"search","title":"Search\u001b[2J","input":{"q":1}"#,
        r#""type":"message.delta","message_id":"m","text":"ce.""#,
        r#""type":"message.part","message_id":"m","part":{"content_type":"text/plain","metadata":{"kind":"citation","start_index":0,"end_index":4,"title":"B","url":"https://b"}}"#,
        r#""type":"message.part","message_id":"m","part":{"content_type":"image/png","content":"AAAA","content_encoding":"base64"}"#,
        COMPLETED,
    ];
    let (out, aside) = show(false, &events);
    assert_eq!(out, "Bees[1] dance.\n[image/png, 3 bytes]\n\n[1] B https://b\n");
    assert_eq!(aside, "tool: Search\\u{1b}[2J {\"q\":1}\n");
    let (out, _) = show(true, &events);
    assert_eq!(out, "Bees dan\nce.\n[image/png, 3 bytes]\n\n[1] “Bees”: B https://b\n");
}

fn part(content: &str, citation: &str) -> String {
    format!(
        r#""type":"message.part","message_id":"m","part":{{{content}"content_type":"text/plain","metadata":{{"kind":"citation","title":"T"{citation}}}}}"#
    )
}

#[test]
fn a_citation_without_an_index_belongs_to_the_content_of_its_part() {
    let image = r#""type":"message.part","message_id":"m","part":{"content_type":"image/png","content":"AAAA","content_encoding":"base64","metadata":{"kind":"citation","title":"T"}}"#;
    let text = part(r#""content":"Bees.","#, "");
    let next = r#""type":"message.delta","message_id":"m","text":" Ants.""#;
    for live in [true, false] {
        let (out, _) = show(live, &[STARTED, &text, next, COMPLETED]);
        assert_eq!(out, "Bees.[1] Ants.\n\n[1] T\n");
        let (out, _) = show(live, &[STARTED, image, next, COMPLETED]);
        assert_eq!(out, "[image/png, 3 bytes][1]\n Ants.\n\n[1] T\n");
        let (out, _) = show(live, &[STARTED, next, &part("", ""), next, COMPLETED]);
        assert_eq!(out, " Ants.[1] Ants.\n\n[1] T\n");
    }
}

#[test]
fn the_indexes_of_a_part_with_content_count_too() {
    let study = r#""content":"According to a recent study, it is so.","#;
    let cited = part(study, r#","start_index":15,"end_index":27"#);
    let (out, _) = show(false, &[STARTED, &cited, COMPLETED]);
    assert_eq!(out, "According to a recent study[1], it is so.\n\n[1] T\n");
    let (out, _) = show(true, &[STARTED, &cited, COMPLETED]);
    assert_eq!(out, "According to a recent study, it is so.\n\n[1] “recent study”: T\n");
    let icon = part(study, r#","start_index":9"#);
    let (out, _) = show(false, &[STARTED, &icon, COMPLETED]);
    assert_eq!(out, "According[1] to a recent study, it is so.\n\n[1] T\n");
}

#[test]
fn artifacts_count_and_a_part_with_empty_content_shows_nothing_but_its_note() {
    let artifact = r#""type":"message.part","message_id":"m","part":{"content_type":"text/css","name":"a.css","content":"12345"}"#;
    let words = r#""type":"message.delta","message_id":"m","text":"abcd""#;
    let cited = part(r#""content":"","#, r#","start_index":5,"end_index":7"#);
    let (out, _) = show(false, &[STARTED, artifact, words, &cited, COMPLETED]);
    assert_eq!(out, "ab[1]cd\n\n[1] T\n");
}

#[test]
fn without_metadata_only_the_answer_is_left() {
    let step = r#""type":"message.part","message_id":"m","part":{"content_type":"text/plain","metadata":{"kind":"trajectory","message":"hm"}}"#;
    let cited = part(r#""content":"Bees.","#, r#","start_index":0,"end_index":2"#);
    for live in [true, false] {
        let mut renderer = renderer(live, false, false, false);
        let (mut out, mut aside) = (String::new(), String::new());
        for body in [STARTED, step, &cited, COMPLETED] {
            let event = format!("{{\"id\":\"1\",\"number\":1,\"at\":\"x\",{body}}}");
            let rendered = renderer.event(&serde_json::from_str(&event).unwrap());
            out.push_str(&rendered.out);
            aside.push_str(&rendered.aside);
        }
        assert_eq!((out.as_str(), aside.as_str()), ("Bees.\n", ""));
    }
}

#[test]
fn a_value_is_shown_where_there_are_no_words() {
    let value = r#""type":"run.result","value":{"message":"hi\u001b]52;c;AA\u0007!"}"#;
    assert_eq!(show(false, &[value]).0, "hi!\n");
    let spoken = r#""type":"message.delta","message_id":"m","text":"said""#;
    assert_eq!(show(false, &[STARTED, spoken, COMPLETED, value]).0, "said\n");
    let other = r#""type":"run.result","value":{"a":1,"message":"x"}"#;
    assert_eq!(show(false, &[other]).0, "{\n  \"a\": 1,\n  \"message\": \"x\"\n}\n");
}

#[test]
fn a_part_of_json_is_shown_as_it_is() {
    let json = r#""type":"message.part","message_id":"m","part":{"content_type":"application/json","content":"{\"a\":\"\\u001b[2J\"}"}"#;
    let (out, _) = show(false, &[STARTED, json, COMPLETED]);
    assert_eq!(out, "{\n  \"a\": \"\\u001b[2J\"\n}\n");
    let broken = r#""type":"message.part","message_id":"m","part":{"content_type":"application/json","content":"{"}"#;
    let (out, _) = show(false, &[STARTED, broken, COMPLETED]);
    assert_eq!(out, "[application/json, 1 bytes]\n");
}

#[test]
fn a_sequence_split_across_deltas_is_not_printed() {
    let first = r#""type":"message.delta","message_id":"m","text":"a\u001b]52;c""#;
    let second = r#""type":"message.delta","message_id":"m","text":";AA==\u0007b""#;
    for live in [true, false] {
        assert_eq!(show(live, &[STARTED, first, second, COMPLETED]).0, "ab\n");
    }
}

fn delta(message: &str, text: &str) -> String {
    format!(r#""type":"message.delta","message_id":"{message}","text":"{text}""#)
}

#[test]
fn another_id_is_another_message_with_or_without_a_beginning() {
    let (one, two) = (delta("a", "one"), delta("b", "two"));
    let started =
        |id: &str| format!(r#""type":"message.started","message_id":"{id}","role":"agent/x""#);
    let completed = |id: &str| format!(r#""type":"message.completed","message_id":"{id}""#);
    for live in [true, false] {
        let (started_a, started_b) = (started("a"), started("b"));
        let (ended_a, ended_b) = (completed("a"), completed("b"));
        let told = [&started_a, &one, &one, &ended_a, &started_b, &two, &ended_b];
        let told: Vec<&str> = told.into_iter().map(String::as_str).collect();
        assert_eq!(show(live, &told).0, "oneone\n\ntwo\n");
        let ended = r#""type":"run.ended","outcome":{"status":"completed"}"#;
        assert_eq!(show(live, &[&one, &two, &one, ended]).0, "one\n\ntwo\n\none\n");
    }
}

#[test]
fn a_block_that_is_not_for_the_user_is_shown_only_with_all() {
    let annotated = |audience: &str| {
        format!(
            r#""type":"message.part","message_id":"m","part":{{"content_type":"text/plain","content":"for {}","extra":{{"x_trilogue":{{"protocol":"agent_client","block":{{"type":"text","annotations":{{"audience":[{audience}]}}}}}}}}}}"#,
            audience.replace('"', "")
        )
    };
    let blocks =
        [r#""assistant""#, r#""user""#, r#""user","assistant""#, r#""somebody""#].map(annotated);
    let events: Vec<&str> = blocks.iter().map(String::as_str).collect();
    for (all, said) in [
        (false, "for userfor user,assistantfor somebody"),
        (true, "for assistantfor userfor user,assistantfor somebody"),
    ] {
        let mut renderer = renderer(false, true, false, all);
        let mut out = String::new();
        for body in [STARTED].iter().chain(&events).chain(&[COMPLETED]) {
            let event = format!("{{\"id\":\"1\",\"number\":1,\"at\":\"x\",{body}}}");
            out.push_str(&renderer.event(&serde_json::from_str(&event).unwrap()).out);
        }
        assert_eq!(out.trim_end(), said);
    }
}

#[test]
fn a_thought_that_is_not_for_the_user_is_shown_only_with_all() {
    let thought = |audience: &str| {
        let text = audience.replace('"', "");
        let block = format!(
            r#"{{"type":"text","text":"for {text}","annotations":{{"audience":{audience}}}}}"#
        );
        let update = format!(
            r#"{{"sessionId":"","update":{{"sessionUpdate":"agent_thought_chunk","messageId":"{text}","content":{block}}}}}"#
        );
        format!(
            r#""type":"message.thought","text":"for {text}","original":{{"dialect":"agent-client","version":1,"value":{update}}}"#
        )
    };
    let thoughts = [r#"["assistant"]"#, r#"["user"]"#, "null"].map(thought);
    for (all, told) in [
        (false, "thought: for [user]\nthought: for null\n"),
        (true, "thought: for [assistant]\nthought: for [user]\nthought: for null\n"),
    ] {
        let mut renderer = renderer(false, true, false, all);
        let mut err = String::new();
        for body in thoughts.iter().map(String::as_str).chain([COMPLETED]) {
            let event = format!("{{\"id\":\"1\",\"number\":1,\"at\":\"x\",{body}}}");
            err.push_str(&renderer.event(&serde_json::from_str(&event).unwrap()).aside);
        }
        let plain = err.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        assert_eq!(plain, told);
    }
}

#[test]
fn a_thought_in_pieces_is_one_and_nothing_of_it_is_obeyed() {
    let piece = |id: &str, text: &str| {
        let update = format!(
            r#"{{"sessionId":"","update":{{"sessionUpdate":"agent_thought_chunk","messageId":"{id}","content":{{"type":"text","text":"{text}"}}}}}}"#
        );
        format!(
            r#""type":"message.thought","text":"{text}","original":{{"dialect":"agent-client","version":1,"value":{update}}}"#
        )
    };
    let pieces = [
        piece("a", "I look\\u001b]52;c"),
        piece("a", ";AA\\u0007 there\\nand"),
        piece("a", " here"),
        piece("b", "next"),
    ];
    let mut events: Vec<&str> = pieces.iter().map(String::as_str).collect();
    events.push(r#""type":"message.thought","text":"whole""#);
    events.push(STARTED);
    let (_, aside) = show(false, &events);
    assert_eq!(aside, "thought: I look there\nand here\nthought: next\nthought: whole\n");
}

#[test]
fn what_agents_of_other_programs_tell_of_themselves_is_in_words() {
    let custom =
        |kind: &str, data: &str| format!(r#""type":"state.custom","kind":"{kind}","data":{data}"#);
    let events = [
        custom("notice", r#"{"severity":"warning","title":"Look\u001b[2J","description":"there"}"#),
        custom("current_mode_update", r#"{"currentModeId":"code"}"#),
        custom("usage_update", r#"{"used":1,"size":2}"#),
        custom("turn_result", r#"{"stopReason":"end_turn"}"#),
        custom("turn_result", r#"{"stopReason":"max_tokens"}"#),
        custom("progress", r#"{"done":1}"#),
        r#""type":"interrupt.rule_applied","rule":"reads","allowed":true"#.to_owned(),
        r#""type":"tool.started","call_id":"1","tool":"a","title":"A""#.to_owned(),
        r#""type":"tool.started","call_id":"2","tool":"b","title":"B\n""#.to_owned(),
        r#""type":"tool.ended","call_id":"1","status":"completed""#.to_owned(),
        r#""type":"tool.ended","call_id":"2","status":"failed","output":1"#.to_owned(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let (_, aside) = show(true, &events);
    let lines: Vec<&str> = aside.lines().collect();
    assert_eq!(
        lines,
        [
            "notice (warning): Look — there",
            "mode: code",
            "stopped: max_tokens",
            "progress: {\"done\":1}",
            "permission: allowed by the rule reads",
            "tool: A",
            "tool: B\\n",
            "tool completed (A)",
            "tool failed: 1",
        ]
    );
}
