use bytes::Bytes;
use proptest::prelude::*;
use trilogue_wire::jsonrpc::{
    About, Counts, DEFAULT_MAX_LINE_BYTES, Decoder, Encoder, ErrorObject, Frame, Id, Incoming,
    parse,
};
use trilogue_wire::native::Json;

fn line(text: &str) -> Frame {
    Frame::Line(Bytes::copy_from_slice(text.as_bytes()))
}

fn noise(text: &str) -> Frame {
    Frame::Noise(Bytes::copy_from_slice(text.as_bytes()))
}

fn frames(decoder: &mut Decoder, pieces: &[&[u8]]) -> Vec<Frame> {
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        frames.extend(std::iter::from_fn(|| decoder.next()));
    }
    frames.extend(decoder.finish());
    frames
}

#[test]
fn every_line_end_blank_lines_noise_and_a_byte_order_mark() {
    let mut decoder = Decoder::default();
    let text = "\u{feff}{\"a\":1}\r\n\n  \t\r\nnpm warn deprecated\n\u{feff}\n\u{feff} [1] \n\"x\"\n{\"b\":\n2}\n{cut off";
    let found = frames(&mut decoder, &[text.as_bytes()]);
    let expected = [
        line("{\"a\":1}"),
        noise("npm warn deprecated"),
        line(" [1] "),
        noise("\"x\""),
        line("{\"b\":"),
        noise("2}"),
        line("{cut off"),
    ];
    assert_eq!(found, expected);
    let counts = Counts { lines: 4, blank: 3, noise: 3, ..Counts::default() };
    assert_eq!((decoder.counts(), decoder.held_bytes()), (counts, 0));
}

#[test]
fn two_messages_in_a_piece_and_a_piece_read_into_the_buffer() {
    let mut decoder = Decoder::default();
    decoder.buffer().extend_from_slice(b"{}\n{}\n{\"a\"");
    assert_eq!(decoder.next(), Some(line("{}")));
    assert_eq!(decoder.next(), Some(line("{}")));
    assert_eq!(decoder.next(), None);
    decoder.buffer().extend_from_slice(b":1}\n");
    assert_eq!(decoder.next(), Some(line("{\"a\":1}")));
    assert_eq!(decoder.next(), None);
}

#[test]
fn a_line_at_the_limit_is_taken_and_one_above_is_an_error_for_that_line_only() {
    for end in ["\n", "\r\n"] {
        let mut decoder = Decoder::new(8);
        let text = format!("{{234567}}{end}{{2345678}}{end}{{}}{end}");
        let found = frames(&mut decoder, &[text.as_bytes()]);
        let [first, Frame::Oversize(oversize), last] = &found[..] else { panic!("{found:?}") };
        assert_eq!((first, last), (&line("{234567}"), &line("{}")));
        assert_eq!((oversize.limit, &oversize.about), (8, &About::Nothing));
        let counts = decoder.counts();
        assert_eq!((counts.oversize, counts.skipped_bytes), (1, 9 + end.len() as u64));
    }
}

#[test]
fn a_line_without_end_is_reported_at_once_and_not_kept() {
    let mut decoder = Decoder::new(1000);
    decoder.push(br#"{"jsonrpc":"2.0","id":"x-1","method":"session/prompt","params":{"prompt":""#);
    assert_eq!(decoder.next(), None);
    let mut reported = Vec::new();
    for _ in 0..10_000 {
        decoder.push(&[b'a'; 1000]);
        reported.extend(std::iter::from_fn(|| decoder.next()));
        assert!(decoder.held_bytes() <= 2000);
    }
    let [Frame::Oversize(oversize)] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(oversize.method.as_deref(), Some("session/prompt"));
    let (id, error) = oversize.invalid().reply().unwrap();
    assert_eq!((id.as_str(), error.code.0), (r#""x-1""#, -32600));
    assert_eq!(error.message, "Invalid request: the message is longer than 1000 bytes");
    decoder.push(b"\"}}\n{}\n");
    assert_eq!(decoder.next(), Some(line("{}")));
    assert_eq!(decoder.counts().oversize, 1);
}

#[test]
fn the_id_of_a_line_that_is_too_long_is_known_where_it_stands_early_enough() {
    let about = |head: &str| {
        let long = format!("{head}{}\"}}\n", "a".repeat(300));
        let found = frames(&mut Decoder::new(200), &[long.as_bytes()]);
        let [Frame::Oversize(oversize)] = &found[..] else { panic!("{found:?}") };
        (oversize.about.clone(), oversize.invalid().reply().map(|(id, _)| id.to_string()))
    };
    let id = |id: &'static str| Id::of(id).unwrap();
    let null = || Some("null".to_owned());
    assert_eq!(
        about(r#"{"id":7,"method":"a","params":""#),
        (About::Request(id("7")), Some("7".into()))
    );
    assert_eq!(about(r#"{"id":7,"params":""#), (About::Request(id("7")), Some("7".into())));
    // Our own request fails instead of waiting for ever, and no reply is sent.
    assert_eq!(about(r#"{"jsonrpc":"2.0","id":7,"result":""#), (About::Response(id("7")), None));
    assert_eq!(
        about(r#"{"id":"7","error":{"code":1},"x":""#),
        (About::Response(id("\"7\"")), None)
    );
    // The id may belong to a request or a response, so it is not used.
    assert_eq!(about(r#"{"id":7,"x":""#), (About::Nothing, null()));
    assert_eq!(about(r#"{"params":""#), (About::Nothing, null()));
    assert_eq!(about(r#"{"id":true,"method":"a","params":""#), (About::Nothing, null()));
    assert_eq!(about("noise "), (About::Nothing, null()));
    // A number at the end of the head may be cut off.
    let digits = "1".repeat(300);
    let found = frames(
        &mut Decoder::new(100),
        &[format!("{{\"method\":\"a\",\"id\":{digits}}}\n").as_bytes()],
    );
    let [Frame::Oversize(oversize)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(oversize.about, About::Nothing);
}

#[test]
fn the_session_of_a_line_that_is_too_long_is_known_where_it_stands_early_enough() {
    let session = |head: &str| {
        let long = format!("{head}{}\"}}}}\n", "a".repeat(300));
        let found = frames(&mut Decoder::new(200), &[long.as_bytes()]);
        let [Frame::Oversize(oversize)] = &found[..] else { panic!("{found:?}") };
        oversize.session.clone()
    };
    for head in [
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s\u0041","update":{"x":""#,
        r#"{"method":"a", "params" : { "b":[1,{"sessionId":"no"}],"sessionId" : "s\u0041" ,"x":""#,
        r#"{"params":{"sessionId":"s\u0041"},"x":{"y":""#,
    ] {
        assert_eq!(session(head).as_deref(), Some("sA"), "{head}");
    }
    for head in [
        r#"{"method":"a","params":{"sessionId":""#,
        r#"{"method":"a","params":{"update":{"sessionId":"s"},"x":""#,
        r#"{"method":"a","params":{"sessionId":5,"x":""#,
        r#"{"method":"a","params":[""#,
        r#"{"method":"a","params":""#,
        r#"{"sessionId":"s","params":{"x":""#,
        r#"{"params":{"sessionId":"s"},"result":{"x":""#,
        "noise ",
    ] {
        let expected = head.contains("result").then_some("s");
        assert_eq!(session(head).as_deref(), expected, "{head}");
    }
}

#[test]
fn the_default_limit_is_sixteen_mebibytes() {
    let text = |len: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(len - 8));
    let mut decoder = Decoder::default();
    let largest = text(DEFAULT_MAX_LINE_BYTES);
    let lines = format!("{largest}\n{}\n{{}}\n", text(DEFAULT_MAX_LINE_BYTES + 1));
    let pieces: Vec<&[u8]> = lines.as_bytes().chunks(1 << 20).collect();
    let found = frames(&mut decoder, &pieces);
    let [Frame::Line(first), Frame::Oversize(_), last] = &found[..] else { panic!() };
    assert_eq!((first.len(), last), (16 * 1024 * 1024, &line("{}")));
}

#[test]
fn what_is_written_is_one_line_with_nothing_escaped_that_need_not_be() {
    let mut lines = Encoder::new();
    let params = Json::parse("{ \"a\":\r\n [1,\n2.50],\"b\":\"ä\u{2028}/\\n😀\"}").unwrap();
    assert_eq!(lines.request(&Id::number(7), "session/prompt", &params), lines.len() - 1);
    lines.notification("a\"\n", &());
    lines.response(&Id::of("\"\\u0041\"").unwrap(), &());
    lines.error(&Id::NULL, &ErrorObject::method_not_found("x"));
    let before = lines.len();
    lines.message(b"{\n}");
    lines.truncate(before);
    let expected = concat!(
        r#"{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{ "a":   [1, 2.50],"b":"ä"#,
        "\u{2028}",
        r#"/\n😀"}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"a\"\n"}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":"\u0041","result":{}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found","data":{"method":"x"}}}"#,
        "\n",
    );
    assert_eq!(std::str::from_utf8(lines.as_bytes()).unwrap(), expected);
    assert_eq!(lines.take(), expected.as_bytes());
    assert!(lines.is_empty());
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

proptest! {
    #[test]
    fn lines_are_the_same_wherever_the_stream_is_split(
        parts in prop::collection::vec(
            prop_oneof![
                Just("\n".to_owned()), Just("\r\n".to_owned()), Just("\r".to_owned()),
                Just("\u{feff}".to_owned()), Just(" ".to_owned()), Just("{\"id\":1,\"method\":\"".to_owned()),
                "[{}a\"ä😀\\\\]{0,30}",
            ],
            0..40,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        limit in 0_usize..40,
    ) {
        let text = parts.concat();
        let (mut whole, mut split, mut single) = (Decoder::new(limit), Decoder::new(limit), Decoder::new(limit));
        let expected = frames(&mut whole, &[text.as_bytes()]);
        prop_assert_eq!(&frames(&mut split, &cut(text.as_bytes(), &cuts)), &expected);
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        prop_assert_eq!(&frames(&mut single, &bytes), &expected);
        prop_assert_eq!(whole.counts(), split.counts());
        prop_assert_eq!(whole.counts(), single.counts());
        for frame in expected {
            if let Frame::Line(line) | Frame::Noise(line) = frame {
                prop_assert!(line.len() <= limit && !line.contains(&b'\n'));
            }
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic_or_grow(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'"')], 0..400),
        size in 1_usize..20,
    ) {
        let mut decoder = Decoder::new(32);
        for piece in bytes.chunks(size) {
            decoder.push(piece);
            while let Some(frame) = decoder.next() {
                if let Frame::Line(line) | Frame::Noise(line) = frame {
                    prop_assert!(line.len() <= 32);
                    let _ = parse(&line);
                }
            }
            prop_assert!(decoder.held_bytes() <= 33);
        }
    }

    #[test]
    fn what_is_written_is_read_back_wherever_it_is_split(
        messages in prop::collection::vec((any::<u64>(), "[a-z/]{1,9}", "\\PC{0,40}"), 0..10),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut lines = Encoder::new();
        for (id, method, text) in &messages {
            lines.request(&Id::number(*id), method, &serde_json::json!([text]));
        }
        let found = frames(&mut Decoder::default(), &cut(lines.as_bytes(), &cuts));
        prop_assert_eq!(found.len(), messages.len());
        for (frame, (id, method, text)) in found.iter().zip(&messages) {
            let Frame::Line(line) = frame else { panic!("{frame:?}") };
            let Ok(Incoming::Request(request)) = parse(line) else { panic!("{line:?}") };
            prop_assert_eq!(request.id.as_number(), Some(*id));
            prop_assert_eq!(&*request.method, method.as_str());
            let params: Vec<String> = serde_json::from_str(request.params.unwrap().get()).unwrap();
            prop_assert_eq!(&params, std::slice::from_ref(text));
        }
    }
}
