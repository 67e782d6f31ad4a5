//! Checks that every line is read as a message or as an error that can be sent, that a written message is read again as the same, and that setting ids changes
//! nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use trilogue_wire::agent_client::{
    AgentNotification, AgentRequest, ClientNotification, ClientRequest, Rules, splice, text_edges,
};
use trilogue_wire::jsonrpc::{Incoming, parse, write_error};

fuzz_target!(|line: &[u8]| {
    // Any bytes have edges.
    text_edges::broken_edges(line);
    match parse(line) {
        Ok(Incoming::Request(request)) => {
            for rules in [Rules::Lenient, Rules::Strict] {
                stays(&request.method, request.params, |method, params| {
                    AgentRequest::read(method, params, rules).ok()
                });
                stays(&request.method, request.params, |method, params| {
                    ClientRequest::read(method, params, rules).ok()
                });
            }
            ids(request.params);
        }
        Ok(Incoming::Notification(notification)) => {
            stays(&notification.method, notification.params, |method, params| {
                AgentNotification::read(method, params, Rules::Lenient).ok()
            });
            stays(&notification.method, notification.params, |method, params| {
                ClientNotification::read(method, params, Rules::Lenient).ok()
            });
            ids(notification.params);
        }
        Ok(Incoming::Response(_)) => {}
        Err(invalid) => {
            if let Some((id, error)) = invalid.reply() {
                let mut reply = Vec::new();
                write_error(&mut reply, &id, &error);
                assert!(matches!(parse(&reply), Ok(Incoming::Response(_))), "our own reply");
            }
        }
    }
});

/// What is understood is written so that it is understood again, and as the same.
fn stays<T: PartialEq + std::fmt::Debug + serde::Serialize>(
    method: &str,
    params: Option<&RawValue>,
    read: impl Fn(&str, Option<&RawValue>) -> Option<T>,
) {
    let Some(first) = read(method, params) else { return };
    let written = serde_json::value::to_raw_value(&first).expect("it was read from JSON");
    let params = Some(&*written).filter(|params| params.get() != "null");
    assert_eq!(read(method, params), Some(first), "{method}: {written}");
}

/// A session's id is cut out and put in, and a message's is set, and the rest stays as it was.
fn ids(params: Option<&RawValue>) {
    let Some(params) = params.map(RawValue::get) else { return };
    if let Some(text) = text_edges::chunk_text(params) {
        // Putting both sides of a cut together gives the text.
        for (head, tail) in
            [text_edges::split_high(text), text_edges::split_low(text)].into_iter().flatten()
        {
            assert_eq!(format!("{head}{tail}"), text);
        }
        let set = text_edges::set_chunk_text(params, text).expect("there is a text");
        assert_eq!(text_edges::chunk_text(&set), Some(text));
    }
    if let Some((cut, session)) = splice::cut_session(params) {
        let put = splice::put_session(&cut, &session).expect("what was cut can be put back");
        assert_eq!(splice::get_text(&put, &["sessionId"]).as_deref(), Some(&*session));
        assert_eq!(splice::remove(&put, &["sessionId"]), splice::remove(params, &["sessionId"]));
    }
    if let Some(named) = splice::put_message_id(params, "m") {
        assert_eq!(splice::message_id(&named).as_deref(), Some("m"));
        let without = |params| splice::remove(params, &["update", "messageId"]).into_owned();
        assert_eq!(without(&named), without(params));
    }
}
