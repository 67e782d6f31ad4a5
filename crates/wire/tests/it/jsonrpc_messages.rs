//! The kinds of lines, and the replies to invalid ones.

use trilogue_wire::jsonrpc::{
    Code, ErrorObject, Id, Incoming, MAX_ID_BYTES, Reason, Response, parse, parse_within,
};

type Reply = Option<(String, i32)>;

fn reply(line: &[u8]) -> Reply {
    let invalid = parse(line).unwrap_err();
    let (id, error) = invalid.reply()?;
    // The error repeats nothing of the line.
    assert_eq!(error.data, None);
    Some((id.to_string(), error.code.0))
}

fn id_of(line: &str) -> String {
    let Ok(Incoming::Request(request)) = parse(line.as_bytes()) else { return line.to_owned() };
    request.id.to_string()
}

fn response(line: &str) -> Response<'_> {
    let response = match parse(line.as_bytes()).unwrap() {
        Incoming::Response(response) => Some(response),
        Incoming::Request(_) | Incoming::Notification(_) => None,
    };
    response.unwrap()
}

#[test]
fn every_broken_line_gets_the_documented_reply() {
    let null = |code| Some(("null".to_owned(), code));
    let deep = format!(
        r#"{{"jsonrpc":"2.0","method":"a","params":{}{}}}"#,
        "[".repeat(128),
        "]".repeat(128)
    );
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"a"}}"#, "x".repeat(MAX_ID_BYTES));
    let cases: &[(&[u8], Reply)] = &[
        (b"", None),
        (b" \t\r", None),
        (b"{", null(-32700)),
        (b"npm warn", null(-32700)),
        (b"{} {}", null(-32700)),
        (b"[1,", null(-32700)),
        (b"{'a':1}", null(-32700)),
        (b"{\"a\":\"\x01\"}", null(-32700)),
        (b"{\"a\":\"\xff\"}", null(-32700)),
        (b"\xed\xa0\x80", null(-32700)),
        (b"1", null(-32600)),
        (b"null", null(-32600)),
        (b"\"x\"", null(-32600)),
        (b"[]", null(-32600)),
        (
            br#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]"#,
            null(-32600),
        ),
        (b"{}", null(-32600)),
        (br#"{"id":1,"method":"a"}"#, null(-32600)),
        (br#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, null(-32600)),
        (br#"{"jsonrpc":2.0,"id":1,"method":"a"}"#, null(-32600)),
        (br#"{"jsonrpc":"2.0"}"#, null(-32600)),
        (br#"{"jsonrpc":"2.0","id":1}"#, null(-32600)),
        (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, null(-32600)),
        (br#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, null(-32600)),
        (br#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, null(-32600)),
        (br#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#, null(-32600)),
        (long.as_bytes(), null(-32600)),
        (br#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#, null(-32600)),
        (br#"{"jsonrpc":"2.0","id":1,"method":"a","error":{}}"#, null(-32600)),
        (
            br#"{"jsonrpc":"2.0","id":1.50,"method":"a","params":7}"#,
            Some(("1.50".to_owned(), -32602)),
        ),
        (br#"{"jsonrpc":"2.0","id":1,"method":"a","params":"x"}"#, Some(("1".to_owned(), -32602))),
        // No caller waits for a reply to these; otherwise a reply would get a reply in turn.
        (br#"{"jsonrpc":"2.0","method":"a","params":7}"#, None),
        (br#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"x"}}"#, None),
        (deep.as_bytes(), None),
    ];
    for (line, expected) in cases {
        assert_eq!(&reply(line), expected, "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn ids_are_echoed_byte_for_byte() {
    for id in [
        "0",
        "-0",
        "1",
        "1.0",
        "1.5",
        "1e3",
        "-9007199254740993",
        "18446744073709551615",
        "123456789012345678901234567890",
        "null",
        r#""""#,
        r#""1""#,
        r#""a\u00e4\/""#,
        r#""ä😀""#,
        r#""\ud800""#,
    ] {
        assert_eq!(id_of(&format!(r#"{{"jsonrpc":"2.0","id": {id} ,"method":"a"}}"#)), id);
        let taken = Id::of(id).unwrap();
        assert_eq!(serde_json::to_string(&taken).unwrap(), id);
        assert_eq!(taken.clone().into_owned(), taken);
    }
    assert_ne!(Id::of("1"), Id::of("\"1\""));
    assert_eq!(
        (Id::number(7), Id::text("a\"")),
        (Id::of("7").unwrap(), Id::of(r#""a\"""#).unwrap())
    );
    assert_eq!(
        (Id::number(u64::MAX).as_number(), Id::of("-1").unwrap().as_number()),
        (Some(u64::MAX), None)
    );
    for none in [
        "",
        "true",
        "{}",
        "[1]",
        "1 ",
        " 1",
        "01",
        "-",
        "\"",
        "\"a\" ",
        "1,\"x\":2",
        "\"\n\"",
        "nul",
    ] {
        assert_eq!(Id::of(none), None, "{none}");
    }
}

#[test]
fn what_is_odd_but_clear_is_taken() {
    let method = |line: &str| match parse(line.as_bytes()).unwrap() {
        Incoming::Request(request) => {
            (request.method.into_owned(), request.params.map(ToString::to_string))
        }
        Incoming::Notification(told) => {
            (told.method.into_owned(), told.params.map(ToString::to_string))
        }
        Incoming::Response(response) => panic!("{response:?}"),
    };
    let a = |params: Option<&str>| ("a".to_owned(), params.map(str::to_owned));
    assert_eq!(method("\u{feff} {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}\r"), a(None));
    // The last of several members with one name counts.
    assert_eq!(
        method(
            r#"{"method":"b","x":[{}],"jsonrpc":"1","params":{"y":1},"method":"a","params":[],"jsonrpc":"2.0"}"#
        ),
        a(Some("[]"))
    );
    assert_eq!(method(r#"{"jsonrpc":"2.0","method":"\u0061","params":null}"#), a(None));
    assert_eq!(
        method(r#"{"jsonrpc":"2.0","method":"a","params":{ "b" : "\ud800" }}"#),
        a(Some(r#"{ "b" : "\ud800" }"#))
    );
    let many =
        format!(r#"{{"jsonrpc":"2.0","method":"a","params":{{"t":"{}"}}}}"#, "[{".repeat(500));
    assert!(method(&many).1.is_some());
}

#[test]
fn depth_is_bounded_but_a_pass_through_may_have_any() {
    let nested = |levels: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":3,"method":"a","params":{}{}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert!(parse(nested(127).as_bytes()).is_ok());
    let deep = nested(128);
    let invalid = parse(deep.as_bytes()).unwrap_err();
    assert_eq!(invalid.reason, Reason::TooDeep(128));
    let (id, error) = invalid.reply().unwrap();
    assert_eq!((id.as_str(), error.code), ("3", Code::PARSE_ERROR));
    let deepest = nested(1_000_000);
    assert!(parse_within(deepest.as_bytes(), usize::MAX).is_ok());
    assert!(parse(deepest.as_bytes()).is_err());
    // A response that is nested too deep still ends its request, with an error.
    let answer = format!(r#"{{"jsonrpc":"2.0","id":9,"result":{}}}"#, nested(200));
    let invalid = parse(answer.as_bytes()).unwrap_err();
    assert_eq!((invalid.answers().unwrap().as_str(), invalid.reply()), ("9", None));
}

#[test]
fn a_response_is_taken_however_it_is_written() {
    let result = |line: &str| {
        let response = response(line);
        (response.id.to_string(), response.outcome.map(|raw| raw.get().to_owned()))
    };
    let ok = |id: &str, json: &str| (id.to_owned(), Ok(json.to_owned()));
    assert_eq!(result(r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#), ok("1", r#"{"a":1}"#));
    assert_eq!(result(r#"{"id":"1","result":null}"#), ok("\"1\"", "null"));
    assert_eq!(result(r#"{"jsonrpc":"2.0","id":1,"result":[],"error":null}"#), ok("1", "[]"));
    assert_eq!(result(r#"{"jsonrpc":"2.0","id":1,"error":null}"#), ok("1", "null"));
    assert_eq!(result(r#"{"jsonrpc":"2.0","result":{}}"#), ok("null", "{}"));

    let error = |json: &str| {
        response(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":null,"error":{json}}}"#))
            .outcome
            .unwrap_err()
    };
    let data = trilogue_wire::native::Json::parse(r#"{"a":1}"#).unwrap();
    assert_eq!(
        error(r#"{"code":-32002,"message":"gone","data":{"a":1},"x":1}"#),
        ErrorObject::new(Code::RESOURCE_NOT_FOUND, "gone").data(data)
    );
    let nameless = ErrorObject::of(Code::INTERNAL_ERROR);
    for odd in [
        r#"{}"#,
        r#"{"code":"7","data":null}"#,
        r#"{"code":1e99,"message":7}"#,
        "7",
        "[]",
        r#""x""#,
    ] {
        assert_eq!(error(odd), nameless, "{odd}");
    }
    assert_eq!(error(r#"{"code":-32000}"#), ErrorObject::of(Code::AUTH_REQUIRED));
    assert_eq!(error(r#"{"message":"half \ud800"}"#).message, "half \u{fffd}");
    let nobody = parse(br#"{"jsonrpc":"2.0","id":true,"result":1}"#).unwrap_err();
    assert_eq!((nobody.reason, nobody.reply()), (Reason::BadId, None));
}

#[test]
fn a_line_of_many_small_values_is_refused() {
    let line = |piece: &str, count: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"a","params":[{}]}}"#,
            vec![piece; count].join(",")
        )
    };
    for piece in ["{}", "0", "{\"a\":1}", "[[1]]"] {
        assert!(parse(line(piece, 10_000).as_bytes()).is_ok(), "{piece}");
        let line = line(piece, 1_000_000);
        let invalid = parse(line.as_bytes()).unwrap_err();
        assert_eq!(invalid.reason, Reason::TooComplex, "{piece}");
        assert_eq!(invalid.reply().unwrap().0.as_str(), "7", "the request gets its answer");
        assert!(parse_within(line.as_bytes(), usize::MAX).is_ok(), "a pass-through reads nothing");
    }
    let text = "x".repeat(16 * 1024 * 1024);
    let line = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"a","params":["{text}"]}}"#);
    assert!(parse(line.as_bytes()).is_ok());
}
