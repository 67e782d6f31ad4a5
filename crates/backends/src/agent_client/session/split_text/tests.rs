use super::*;

const AGENT: &str = "agent_message_chunk";
const THOUGHT: &str = "agent_thought_chunk";

/// A chunk whose text is this JSON without its quotes.
fn chunk(kind: &str, id: &str, text: &str) -> String {
    format!(
        r#"{{"sessionId":"","update":{{"sessionUpdate":"{kind}","messageId":"{id}","content":{{"type":"text","text":"{text}"}}}}}}"#
    )
}

/// The texts of the updates that chunks become, with the half that stays at the end.
fn joined(chunks: &[(&'static str, &str, &[u8])]) -> Vec<(&'static str, String)> {
    let (mut split, mut joined) = (SplitText::default(), Vec::new());
    for (kind, id, text) in chunks {
        let whole = chunk(kind, id, "TEXT");
        let (head, tail) = whole.split_once("TEXT").unwrap();
        let params = [head.as_bytes(), text, tail.as_bytes()].concat();
        let line = [br#"{"jsonrpc":"2.0","params":"#, params.as_slice(), b"}"].concat();
        let read = String::from_utf8_lossy(&params).into_owned();
        let is_broken = std::str::from_utf8(&params).is_err();
        if is_broken {
            split.expect(line.into());
        }
        let line = split.take_line(&read);
        assert_eq!(line.is_some(), is_broken);
        let JoinedUpdates { earlier, update } = split.join(kind, read, line.as_deref());
        joined.extend(earlier);
        joined.extend(update.map(|update| (*kind, update)));
    }
    joined.extend(split.flush());
    let text = |params: &str| {
        splice::get_text(params, &["update", "content", "text"]).unwrap().into_owned()
    };
    joined.iter().map(|(kind, params)| (*kind, text(params))).collect()
}

#[test]
fn the_halves_of_a_character_arrive_whole() {
    let agent = |texts: &[&[u8]]| {
        let chunks: Vec<_> = texts.iter().map(|text| (AGENT, "m", *text)).collect();
        joined(&chunks).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    assert_eq!(agent(&[b"ok \\ud83d", b"\\ude00!"]), ["ok ", "😀!"]);
    assert_eq!(agent(&[b"ok ", b"\\ud83d", b"\\ude00"]), ["ok ", "😀"]);
    assert_eq!(agent(&[b"a\\ud83d", b"\\ude00\\uD83D", b"\\uDE01"]), ["a", "😀", "😁"]);
    assert_eq!(agent(&[b"ok \xf0\x9f", b"\x98\x80!"]), ["ok ", "😀!"]);
    assert_eq!(agent(&[b"\xf0", b"\x9f", b"\x98", b"\x80"]), ["😀"]);
    assert_eq!(agent(&[b"\xe4\xbd", b"\xa0\xe5", b"\xa5\xbd"]), ["你", "好"]);
    // An empty chunk between the halves has nothing of the character.
    assert_eq!(agent(&[b"a\\ud83d", b"", b"\\ude00b"]), ["a", "", "😀b"]);
    assert_eq!(agent(&[b"\xe4\xbd", b"", b"\xa0"]), ["", "你"]);
    // A half without its other half becomes U+FFFD and changes nothing else.
    assert_eq!(agent(&[b"a\\ud83d", b"b"]), ["a", "\u{fffd}", "b"]);
    assert_eq!(agent(&[b"a\\ud83d"]), ["a", "\u{fffd}"]);
    assert_eq!(agent(&[b"\xe4\xbd", b"x"]), ["\u{fffd}", "x"]);
    assert_eq!(agent(&[b"\\ude00 a \xffb \xe4\xbd."]), ["\u{fffd} a \u{fffd}b \u{fffd}."]);
    assert_eq!(agent(&[b"\xe4", b"\xff"]), ["\u{fffd}", "\u{fffd}"]);
}

#[test]
fn only_the_same_message_goes_on_with_a_half() {
    for (kind, id) in [(THOUGHT, "m"), (AGENT, "n")] {
        let texts = joined(&[(AGENT, "m", b"\\ud83d"), (kind, id, b"\\ude00")]);
        let replaced = "\u{fffd}".to_owned();
        assert_eq!(texts, [(AGENT, replaced.clone()), (kind, replaced)]);
    }
}

#[test]
fn an_update_of_the_state_does_not_end_the_wait_and_a_tool_call_does() {
    let mut split = SplitText::default();
    assert_eq!(split.join(AGENT, chunk(AGENT, "m", "\\ud83d"), None), JoinedUpdates::default());
    let usage = "{\"update\":{}}".to_owned();
    let joined = split.join("usage_update", usage.clone(), None);
    assert_eq!(joined, JoinedUpdates { earlier: None, update: Some(usage.clone()) });
    assert!(split.is_holding());
    let joined = split.join("tool_call", usage.clone(), None);
    assert_eq!(joined.update, Some(usage));
    assert_eq!(joined.earlier, Some((AGENT, chunk(AGENT, "m", "\u{fffd}"))));
    assert!(!split.is_holding());
}
