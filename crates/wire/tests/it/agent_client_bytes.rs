//! Setting and removing ids in JSON bytes.

use trilogue_wire::agent_client::splice::{
    cut_session, get, get_text, is_message_chunk, message_id, put_message_id, put_session, remove,
    set, set_text,
};

const ODD: &str = concat!(
    " { \"_meta\" : {\"sessionId\":\"not me\"},\n\t\"sessionId\" :  \"a\\u00e4\" , ",
    "\"update\":{ \"x\":1.50,\"sessionUpdate\" : \"agent_message_chunk\",\"content\":{\"type\":\"hologram\",\"messageId\":\"nor me\"} } } ",
);

#[test]
fn a_session_is_cut_out_and_put_back_and_no_other_byte_changes() {
    let (cut, session) = cut_session(ODD).unwrap();
    assert_eq!(session, "aä");
    assert_eq!(cut, ODD.replace("\"a\\u00e4\"", "\"\""));
    assert_eq!(put_session(&cut, "b\"").unwrap(), ODD.replace("\"a\\u00e4\"", "\"b\\\"\""));
    assert_eq!(get_text(&put_session(&cut, "b\"").unwrap(), &["sessionId"]).unwrap(), "b\"");
    for none in ["{}", r#"{"sessionId":7}"#, r#"{"x":{"sessionId":"a"}}"#, "[]", "7", ""] {
        assert_eq!(cut_session(none), None, "{none}");
    }
}

#[test]
fn a_message_id_is_put_into_pieces_of_messages_only() {
    assert_eq!((is_message_chunk(ODD), message_id(ODD)), (true, None));
    let with = put_message_id(ODD, "m").unwrap();
    let expected = ODD.replace("\"nor me\"} }", "\"nor me\"},\"messageId\":\"m\" }");
    assert_eq!((with.as_str(), message_id(&with).as_deref()), (expected.as_str(), Some("m")));
    assert_eq!(remove(&with, &["update", "messageId"]), ODD);
    // A value that is not an id is replaced in its place.
    for old in ["null", "7", "\"old\"", "{\"a\":1}"] {
        let update = |id: &str| {
            format!(r#"{{"update":{{"messageId" : {id} ,"sessionUpdate":"user_message_chunk"}}}}"#)
        };
        assert_eq!(put_message_id(&update(old), "m").unwrap(), update("\"m\""));
    }
    for kind in ["tool_call", "plan", "hologram"] {
        let params = format!(r#"{{"update":{{"sessionUpdate":"{kind}","messageId":"m"}}}}"#);
        assert_eq!((put_message_id(&params, "n"), message_id(&params)), (None, None));
    }
    assert_eq!(put_message_id("{}", "m"), None);
}

#[test]
fn members_are_set_and_taken_out_wherever_they_stand() {
    assert_eq!(set("{}", &["a"], "1").unwrap(), r#"{"a":1}"#);
    assert_eq!(set("{ }", &["a"], "1").unwrap(), r#"{"a":1 }"#);
    assert_eq!(set(r#"{"b":{}}"#, &["b", "a"], "1").unwrap(), r#"{"b":{"a":1}}"#);
    assert_eq!(set(r#"{"b":"}"}"#, &["a\""], "1").unwrap(), r#"{"b":"}","a\"":1}"#);
    // All members with the name are set, so that no reader can find another value.
    assert_eq!(
        set(r#"{"a":1,"b":2,"\u0061":3}"#, &["a"], "0").unwrap(),
        r#"{"a":0,"b":2,"\u0061":0}"#
    );
    assert_eq!(
        set_text(r#"{"requestId":1}"#, &["requestId"], "x").unwrap(),
        r#"{"requestId":"x"}"#
    );
    for nowhere in [r#"{"b":1}"#, "{}", "[]", r#"{"b":[{}]}"#] {
        assert_eq!(set(nowhere, &["b", "a"], "1"), None, "{nowhere}");
        assert_eq!(remove(nowhere, &["b", "a"]), nowhere);
    }
    for (from, to) in [
        (r#"{"a":1}"#, "{}"),
        (r#"{ "a":1 , "b":2 }"#, r#"{"b":2 }"#),
        (r#"{"b":2 ,"a":[{}]}"#, r#"{"b":2}"#),
        (r#"{"b":2,"a":1,"c":3}"#, r#"{"b":2,"c":3}"#),
        (r#"{"a":1,"a":2,"b":3,"a":4}"#, r#"{"b":3}"#),
        (r#"{"b":3}"#, r#"{"b":3}"#),
    ] {
        assert_eq!(remove(from, &["a"]), to, "{from}");
    }
    assert_eq!(get(r#"{"a":{"b":[1, 2]}}"#, &["a", "b"]), Some("[1, 2]"));
    assert_eq!(get(r#"{"a":1,"a":2}"#, &["a"]), Some("2"));
    assert_eq!(get_text(r#"{"a":1}"#, &["a"]), None);
}
