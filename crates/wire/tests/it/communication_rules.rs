//! Every rule of the documents "Message Structure" and "Message Metadata", with its words, as a server applies it to clients
//! in the compatible and in the strict mode.

use serde_json::{Value, json};
use trilogue_wire::agent_communication::{
    CitationMetadata, ContentEncoding, Json, Message, MessagePart, Metadata, Role, Rules,
    TrajectoryMetadata, Violation,
};

use crate::communication::{SERVER_RULES, request, request_part, written};

fn path_of<T: std::fmt::Debug>(result: Result<T, Violation>) -> String {
    result.unwrap_err().path
}

#[test]
fn each_message_must_specify_a_role() {
    let message = json!({"parts": [{"content_type": "text/plain", "content": "x"}]});
    for rules in SERVER_RULES {
        let violation = request(&message, rules).unwrap_err();
        assert_eq!(violation.to_string(), "input[0].role is missing; every message has a role");
    }
    assert_eq!(request(&message, Rules::Lenient).unwrap().role, Role::User);
}

#[test]
fn valid_role_formats_are_user_agent_and_agent_with_a_name() {
    let message = |role: &Value| json!({"role": role, "parts": []});
    for rules in SERVER_RULES {
        for role in ["user", "agent", "agent/image-analyzer", "agent/chat_bot", "agent/A1"] {
            let read = request(&message(&json!(role)), rules).unwrap();
            assert_eq!(read.role.to_string(), role, "{rules:?}");
        }
        let bad = [
            "",
            "system",
            "User",
            "agent/",
            "agent/a b",
            "agent/a/b",
            "agent/ä",
            "agent/x\n",
            " user",
        ];
        for role in bad {
            let violation = request(&message(&json!(role)), rules).unwrap_err();
            assert_eq!(violation.path, "input[0].role", "{role:?}");
            assert_eq!(
                violation.message,
                format!(
                    "must be \"user\", \"agent\" or \"agent/NAME\" with letters, digits, _ and - in NAME, not {role:?}"
                )
            );
        }
        let violation = request(&message(&json!(null)), rules).unwrap_err();
        assert_eq!(violation.to_string(), "input[0].role must not be null");
    }
}

#[test]
fn every_part_must_have_a_content_type() {
    for part in [json!({"content": "x"}), json!({"content_type": null, "content": "x"})] {
        let read = request_part(&part, Rules::Lenient).unwrap();
        assert_eq!(read.parts[0].content_type, "text/plain");
        for rules in SERVER_RULES {
            let violation = request_part(&part, rules).unwrap_err();
            assert_eq!(
                violation.to_string(),
                "input[0].parts[0].content_type is missing; every part has a MIME type"
            );
        }
    }
}

#[test]
fn any_valid_mime_type_can_be_used() {
    let part = |kind: &str| json!({"content_type": kind, "content": "x"});
    let valid = [
        "text/plain",
        "image/png",
        "image/jpeg",
        "application/json",
        "application/pdf",
        "text/html",
        "text/plain; charset=utf-8",
        "application/vnd.api+json",
        "TEXT/Plain",
    ];
    for kind in valid {
        for rules in SERVER_RULES {
            let read = request_part(&part(kind), rules).unwrap();
            assert_eq!(read.parts[0].content_type, kind, "the spelling is kept");
        }
    }
    for kind in ["zzz", "", "text", "text/", "/plain", "*/*", "image/*", "text plain", "a/b/c"] {
        assert!(request_part(&part(kind), Rules::Lenient).is_ok(), "{kind:?}");
        for rules in SERVER_RULES {
            let violation = request_part(&part(kind), rules).unwrap_err();
            assert_eq!(violation.path, "input[0].parts[0].content_type", "{kind:?}");
            assert_eq!(
                violation.message,
                format!("must be a MIME type like \"text/plain\", not {kind:?}")
            );
        }
    }
}

#[test]
fn parts_provide_either_content_or_content_url_but_never_both() {
    for named in [false, true] {
        let mut part =
            json!({"content_type": "text/plain", "content": "x", "content_url": "http://h/"});
        if named {
            part["name"] = json!("artifact.txt");
        }
        for rules in [Rules::Compatible, Rules::Strict, Rules::Lenient] {
            let violation = request_part(&part, rules).unwrap_err();
            assert_eq!(
                violation.to_string(),
                "input[0].parts[0] must have only one of content and content_url, not both"
            );
        }
        part["content_url"] = json!(null);
        let mut by_url = part.clone();
        by_url["content"] = json!(null);
        by_url["content_url"] = json!("http://h/");
        for rules in SERVER_RULES {
            assert!(request_part(&part, rules).is_ok());
            assert!(request_part(&by_url, rules).is_ok());
        }
    }
}

#[test]
fn parts_must_provide_content_or_content_url() {
    let plain = json!({"content_type": "text/plain"});
    let nulls = json!({"content_type": "text/plain", "content": null, "content_url": null});
    let artifact = json!({"content_type": "text/plain", "name": "a"});
    let metadata = json!({"content_type": "text/plain", "metadata": {"kind": "citation"}});
    let refused = |part: &Value, rules| request_part(part, rules).unwrap_err().to_string();
    let missing = "input[0].parts[0] must have one of content and content_url";
    for rules in SERVER_RULES {
        assert_eq!(refused(&plain, rules), missing);
        assert_eq!(refused(&nulls, rules), missing);
        assert_eq!(refused(&artifact, rules), format!("{missing}; an artifact is a part too"));
    }
    assert!(request_part(&metadata, Rules::Compatible).is_ok(), "the official clients make these");
    assert_eq!(refused(&metadata, Rules::Strict), missing);
    let empty =
        json!({"content_type": "text/plain", "content": "", "metadata": {"kind": "citation"}});
    assert!(request_part(&empty, Rules::Strict).is_ok(), "empty content is content");
}

#[test]
fn content_encoding_is_plain_by_default_or_base64() {
    let part = |encoding: Value| json!({"content_type": "text/plain", "content": "eA==", "content_encoding": encoding});
    for rules in SERVER_RULES {
        let encoding =
            |value| request_part(&part(value), rules).map(|read| read.parts[0].content_encoding);
        assert_eq!(encoding(json!("plain")), Ok(ContentEncoding::Plain));
        assert_eq!(encoding(json!("base64")), Ok(ContentEncoding::Base64));
        assert_eq!(encoding(json!(null)), Ok(ContentEncoding::Plain));
        let absent = json!({"content_type": "text/plain", "content": "x"});
        let read = request_part(&absent, rules).unwrap();
        assert_eq!(read.parts[0].content_encoding, ContentEncoding::Plain);
        for bad in ["gzip", "", "Base64", "PLAIN"] {
            let violation = encoding(json!(bad)).unwrap_err();
            assert_eq!(violation.path, "input[0].parts[0].content_encoding");
            assert_eq!(violation.message, format!("must be \"plain\" or \"base64\", not {bad:?}"));
        }
    }
}

#[test]
fn base64_encoded_content_is_base64() {
    let part = |content: &str| json!({"content_type": "image/png", "content": content, "content_encoding": "base64"});
    for good in ["", "AA==", "AAA=", "AAAA", "iVBORw0KGgo="] {
        for rules in SERVER_RULES {
            assert!(request_part(&part(good), rules).is_ok(), "{good:?}");
        }
    }
    for variant in ["AA", "AA=", "A-_A", "AA==\n"] {
        let read = request_part(&part(variant), Rules::Compatible).unwrap();
        assert_eq!(read.parts[0].content.as_deref(), Some(variant), "kept as it came");
    }
    for bad in ["not base64!", "AA==AA==", "AAAAA", "ä", "AB==", "iVBORw0KGgo..."] {
        let violation = request_part(&part(bad), Rules::Compatible).unwrap_err();
        assert_eq!(violation.path, "input[0].parts[0].content", "{bad:?}");
        assert!(violation.message.starts_with("must be base64"), "{violation}");
    }
    for bad in ["not base64!", "AA", "AA==AA==", "AA=", "A-_A", "AA==\n", "AAAAA", "ä", "AB=="] {
        let violation = request_part(&part(bad), Rules::Strict).unwrap_err();
        assert_eq!(violation.path, "input[0].parts[0].content", "{bad:?}");
        assert!(
            violation.message.starts_with("must be base64 with the standard alphabet"),
            "{violation}"
        );
    }
    let long = part(&format!("{}!AAA", "AAAA".repeat(20_000)));
    let violation = request_part(&long, Rules::Strict).unwrap_err();
    assert!(violation.message.ends_with("Invalid symbol 33, offset 80000."), "{violation}");
}

#[test]
fn referenced_content_is_an_absolute_url() {
    let part = |url: &str| json!({"content_type": "image/png", "content_url": url});
    for rules in SERVER_RULES {
        for url in [
            "https://example.com/a.png",
            "http://127.0.0.1:8000/x?y#z",
            "data:,x",
            "s3://b/k",
            "urn:a:b",
        ] {
            let read = request_part(&part(url), rules).unwrap();
            assert_eq!(read.parts[0].content_url.as_deref(), Some(url));
        }
        let read = request_part(&part("http://EXAMPLE.com"), rules).unwrap();
        assert_eq!(read.parts[0].content_url.as_deref(), Some("http://example.com/"));
        for url in ["", "a.png", "/a.png", "//h/a.png", "http://", "http://a b/", "http://h:x/"] {
            let violation = request_part(&part(url), rules).unwrap_err();
            assert_eq!(violation.path, "input[0].parts[0].content_url", "{url:?}");
            assert_eq!(violation.message, format!("must be a valid absolute URL, not {url:?}"));
        }
    }
    for (url, repaired) in [
        ("http://h/a b", "http://h/a%20b"),
        (" http://h/", "http://h/"),
        ("http:\\\\h", "http://h/"),
    ] {
        let read = request_part(&part(url), Rules::Compatible).unwrap();
        assert_eq!(read.parts[0].content_url.as_deref(), Some(repaired));
        assert_eq!(
            path_of(request_part(&part(url), Rules::Strict)),
            "input[0].parts[0].content_url"
        );
    }
}

#[test]
fn a_name_makes_a_part_an_artifact() {
    let part = json!({"name": "data.json", "content_type": "application/json", "content": "{}"});
    for rules in SERVER_RULES {
        let read = request_part(&part, rules).unwrap();
        assert_eq!(read.parts[0].name.as_deref(), Some("data.json"));
        let mut number = part.clone();
        number["name"] = json!(7);
        let violation = request_part(&number, rules).unwrap_err();
        assert_eq!(violation.to_string(), "input[0].parts[0].name must be a string, not a number");
    }
}

#[test]
fn artifacts_inherit_all_validation_rules() {
    let breaks = [
        (json!({"content_type": "zzz", "content": "x"}), "input[0].parts[0].content_type", true),
        (json!({"content": "x"}), "input[0].parts[0].content_type", true),
        (json!({"content_type": "text/plain"}), "input[0].parts[0]", true),
        (
            json!({"content_type": "image/png", "content": "!", "content_encoding": "base64"}),
            "input[0].parts[0].content",
            true,
        ),
        (
            json!({"content_type": "text/plain", "content": "x", "content_encoding": "gzip"}),
            "input[0].parts[0].content_encoding",
            true,
        ),
        (
            json!({"content_type": "text/plain", "content_url": "x"}),
            "input[0].parts[0].content_url",
            true,
        ),
    ];
    for (mut part, path, in_both) in breaks {
        part["name"] = json!("artifact");
        assert_eq!(path_of(request_part(&part, Rules::Strict)), path, "{part}");
        assert_eq!(request_part(&part, Rules::Compatible).is_err(), in_both, "{part}");
    }
}

#[test]
fn parts_are_processed_in_order() {
    let parts: Vec<Value> =
        (0..50).map(|n| json!({"content_type": "text/plain", "content": n.to_string()})).collect();
    let message = json!({"role": "user", "parts": parts});
    for rules in SERVER_RULES {
        let read = request(&message, rules).unwrap();
        let order: Vec<String> =
            read.parts.iter().filter_map(|part| part.content.clone()).collect();
        assert_eq!(order, (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn a_later_part_that_breaks_a_rule_is_named_by_its_place() {
    let good = json!({"content_type": "text/plain", "content": "x"});
    let bad = json!({"content_type": "text/plain", "content": "x", "content_encoding": "zip"});
    let message = json!({"role": "user", "parts": [good, bad]});
    for rules in SERVER_RULES {
        assert_eq!(path_of(request(&message, rules)), "input[0].parts[1].content_encoding");
    }
}

#[test]
fn content_is_delivered_inline_by_url_or_as_base64() {
    let made = Message::user(vec![
        MessagePart::text("hello"),
        MessagePart::json(&Json::parse(r#"{"a":1}"#).unwrap()).with_name("a.json"),
        MessagePart::base64("image/png", b"\x89PNG"),
        MessagePart::url("application/pdf", "https://example.com/a.pdf"),
    ]);
    for rules in SERVER_RULES {
        made.check(rules).unwrap();
        let sent: Value = serde_json::from_str(&written(|out| made.write(out))).unwrap();
        assert_eq!(request(&sent, rules), Ok(made.clone()));
    }
    assert_eq!(made.parts[2].content.as_deref(), Some("iVBORw=="));
}

#[test]
fn metadata_is_optional() {
    for rules in SERVER_RULES {
        for part in [
            json!({"content_type": "a/b", "content": ""}),
            json!({"content_type": "a/b", "content": "", "metadata": null}),
        ] {
            assert_eq!(request_part(&part, rules).unwrap().parts[0].metadata, None);
        }
    }
}

fn metadata(value: &Value, rules: Rules) -> Result<Metadata, Violation> {
    let part = json!({"content_type": "text/plain", "content": "x", "metadata": value});
    request_part(&part, rules).map(|message| message.parts[0].metadata.clone().unwrap())
}

#[test]
fn each_metadata_object_has_a_kind_that_identifies_its_type() {
    for rules in SERVER_RULES {
        assert_eq!(
            metadata(&json!({"kind": "citation"}), rules),
            Ok(Metadata::Citation(CitationMetadata::default()))
        );
        assert_eq!(
            metadata(&json!({"kind": "trajectory"}), rules),
            Ok(Metadata::Trajectory(TrajectoryMetadata::default()))
        );
        let kind = "input[0].parts[0].metadata.kind";
        let missing = metadata(&json!({}), rules).unwrap_err();
        assert_eq!(
            missing.to_string(),
            format!("{kind} is missing; it must be \"citation\" or \"trajectory\"")
        );
        let unknown = metadata(&json!({"kind": "mood"}), rules).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            format!("{kind} must be \"citation\" or \"trajectory\", not \"mood\"")
        );
        for bad in [json!(null), json!(1), json!(["citation"])] {
            let violation = metadata(&json!({"kind": bad}), rules).unwrap_err();
            assert_eq!(
                violation.to_string(),
                format!("{kind} must be the string \"citation\" or \"trajectory\"")
            );
        }
        for (bad, what) in
            [(json!("citation"), "a string"), (json!([]), "an array"), (json!(true), "a boolean")]
        {
            let violation = metadata(&bad, rules).unwrap_err();
            assert_eq!(
                violation.to_string(),
                format!("input[0].parts[0].metadata must be an object, not {what}")
            );
        }
    }
}

#[test]
fn a_citation_has_optional_indexes_url_title_and_description() {
    let full = json!({"kind": "citation", "start_index": 15, "end_index": 27, "url": "not checked", "title": "T", "description": "D"});
    for rules in SERVER_RULES {
        let Ok(Metadata::Citation(citation)) = metadata(&full, rules) else {
            panic!("no citation")
        };
        assert_eq!((citation.start_index, citation.end_index), (Some(15), Some(27)));
        assert_eq!(citation.url.as_deref(), Some("not checked"));
        for (given, read) in [
            (json!("7"), 7),
            (json!(-3), -3),
            (json!(7.0), 7),
            (json!(" +7 "), 7),
            (json!("7.0"), 7),
        ] {
            let value = json!({"kind": "citation", "start_index": given});
            if rules == Rules::Strict && given.is_string() {
                let violation = metadata(&value, rules).unwrap_err();
                assert_eq!(violation.path, "input[0].parts[0].metadata.start_index", "{given}");
                assert!(violation.message.starts_with("must be a whole number"), "{violation}");
                continue;
            }
            let Ok(Metadata::Citation(citation)) = metadata(&value, rules) else {
                panic!("no citation")
            };
            assert_eq!(citation.start_index, Some(read), "{given}");
        }
        for bad in [
            json!("x"),
            json!(1.5),
            json!("1.5"),
            json!(true),
            json!([1]),
            json!({}),
            json!(1e300),
            json!(u64::MAX),
        ] {
            let violation =
                metadata(&json!({"kind": "citation", "end_index": bad}), rules).unwrap_err();
            assert_eq!(violation.path, "input[0].parts[0].metadata.end_index", "{bad}");
            assert!(violation.message.starts_with("must be a whole number"), "{violation}");
        }
        for member in ["url", "title", "description"] {
            let violation = metadata(&json!({"kind": "citation", member: 5}), rules).unwrap_err();
            assert_eq!(
                violation.to_string(),
                format!("input[0].parts[0].metadata.{member} must be a string, not a number")
            );
        }
        let more = json!({"kind": "citation", "author": "A. B.", "score": 1.0});
        let Ok(Metadata::Citation(citation)) = metadata(&more, rules) else {
            panic!("no citation")
        };
        let kept: Vec<_> = citation.extra.iter().map(|(name, it)| (name, it.as_str())).collect();
        assert_eq!(kept, [("author", r#""A. B.""#), ("score", "1.0")]);
        assert_eq!(citation.title, None);
    }
}

#[test]
fn a_trajectory_has_an_optional_message_and_tool_with_objects_in_and_out() {
    let full = json!({"kind": "trajectory", "message": "m", "tool_name": "t", "tool_input": {"a": 1}, "tool_output": {}});
    for rules in SERVER_RULES {
        let Ok(Metadata::Trajectory(step)) = metadata(&full, rules) else {
            panic!("no trajectory")
        };
        assert_eq!(step.message.as_deref(), Some("m"));
        assert_eq!(step.tool_name.as_deref(), Some("t"));
        assert_eq!(step.tool_input.unwrap().as_str(), r#"{"a":1}"#);
        assert_eq!(step.tool_output.unwrap().as_str(), "{}");
        for member in ["tool_input", "tool_output"] {
            for bad in [json!("x"), json!([1]), json!(5), json!(false)] {
                let violation =
                    metadata(&json!({"kind": "trajectory", member: bad}), rules).unwrap_err();
                assert_eq!(
                    violation.to_string(),
                    format!("input[0].parts[0].metadata.{member} must be a JSON object")
                );
            }
            let Ok(Metadata::Trajectory(step)) =
                metadata(&json!({"kind": "trajectory", member: null}), rules)
            else {
                panic!("null is none")
            };
            assert_eq!(step, TrajectoryMetadata::default());
        }
    }
}

#[test]
fn the_documents_citation_example_is_read_in_both_modes() {
    let example = json!({
        "role": "agent/researcher",
        "parts": [{
            "content_type": "text/plain",
            "content": "According to a recent study, AI adoption has increased by 40% this year.",
            "metadata": {
                "kind": "citation",
                "url": "https://example.com/ai-study-2024",
                "title": "AI Adoption Report 2024",
                "description": "Comprehensive analysis of AI adoption trends across industries",
                "start_index": 15,
                "end_index": 27
            }
        }]
    });
    for rules in SERVER_RULES {
        let read = request(&example, rules).unwrap();
        assert_eq!(read.role, Role::Named("researcher".to_owned()));
        let Some(Metadata::Citation(citation)) = &read.parts[0].metadata else {
            panic!("no citation")
        };
        let range = |at: Option<i64>| usize::try_from(at.unwrap()).unwrap();
        let text: Vec<char> = read.plain_text().chars().collect();
        let cited: String =
            text[range(citation.start_index)..range(citation.end_index)].iter().collect();
        assert_eq!(cited, "recent study");
    }
}

#[test]
fn the_documents_trajectory_example_is_read_in_both_modes() {
    let example = json!({
        "role": "agent/assistant",
        "parts": [{
            "content_type": "text/plain",
            "content": "It's currently 72°F and sunny in San Francisco.",
            "metadata": {
                "kind": "trajectory",
                "tool_name": "weather_api",
                "tool_input": {"location": "San Francisco, CA"},
                "tool_output": {"temperature": 72, "condition": "sunny"}
            }
        }]
    });
    for rules in SERVER_RULES {
        let read = request(&example, rules).unwrap();
        let Some(Metadata::Trajectory(step)) = &read.parts[0].metadata else {
            panic!("no trajectory")
        };
        assert_eq!(step.tool_name.as_deref(), Some("weather_api"));
    }
}

#[test]
fn metadata_is_additional_data_and_no_content() {
    let with = Message::user(vec![
        MessagePart::text("answer").citation(CitationMetadata {
            title: Some("not said".to_owned()),
            ..CitationMetadata::default()
        }),
        MessagePart { content: None, ..MessagePart::text("") }.trajectory(TrajectoryMetadata {
            message: Some("not said".to_owned()),
            ..TrajectoryMetadata::default()
        }),
    ]);
    let mut without = with.clone();
    without.parts.iter_mut().for_each(|part| part.metadata = None);
    assert_eq!(with.plain_text(), "answer");
    assert_eq!(without.plain_text(), with.plain_text());
}

#[test]
fn parts_made_here_are_held_to_the_same_rules() {
    let check = |part: MessagePart, rules| part.check(rules).map_err(|violation| violation.path);
    let mut both = MessagePart::text("x");
    both.content_url = Some("http://h/".to_owned());
    let mut unknown = MessagePart::text("x");
    unknown.metadata = Some(Metadata::Other(Json::parse(r#"{"kind":"mood"}"#).unwrap()));
    for rules in SERVER_RULES {
        assert_eq!(check(both.clone(), rules), Err(String::new()));
        assert_eq!(check(unknown.clone(), rules), Err("metadata.kind".to_owned()));
        assert_eq!(check(MessagePart::url("a/b", "x"), rules), Err("content_url".to_owned()));
        let nameless = Message { role: Role::Named(String::new()), ..Message::default() };
        assert_eq!(path_of(nameless.check(rules)), "role");
    }
    for rules in SERVER_RULES {
        assert_eq!(check(MessagePart::default(), rules), Err(String::new()));
        let typeless = MessagePart::url("zzz", "http://h/");
        assert_eq!(check(typeless, rules), Err("content_type".to_owned()));
        let message = Message::user(vec![MessagePart::text("x"), MessagePart::default()]);
        assert_eq!(path_of(message.check(rules)), "parts[1]");
    }
}
