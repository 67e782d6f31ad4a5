//! Renders a run's request as code to paste: a shell command, programs for the official Python clients, and lines for a pipe.
//!
//! The code only sends the request, even if an agent or a user wrote its content: values are quoted for their language, and invisible characters are escaped. The code reads the token from `TRILOGUE_TOKEN`, so it contains no token.

use serde_json::{Value, json};

use crate::draw::is_unseen;

/// Returns a request to the server's native API, with `curl`.
#[must_use]
pub fn curl(url: &str, body: &Value) -> String {
    format!(
        "curl -sS {} \\\n  -H \"Authorization: Bearer $TRILOGUE_TOKEN\" -H 'Content-Type: application/json' \\\n  -d {}\n",
        in_shell(url),
        in_shell(&in_json(body)),
    )
}

/// Returns a run on a server of the Agent Communication Protocol, with `acp-sdk`.
#[must_use]
pub fn acp_sdk(url: &str, agent: &str, input: &Value) -> String {
    let (url, agent) = (in_python(&json!(url)), in_python(&json!(agent)));
    let input = in_python(input);
    format!(
        r#"# pip install acp-sdk
import asyncio
import os

from acp_sdk.client import Client
from acp_sdk.models import Message

INPUT = {input}


async def main():
    headers = {{"Authorization": f"Bearer {{os.environ['TRILOGUE_TOKEN']}}"}}
    async with Client(base_url={url}, headers=headers) as client:
        run = await client.run_sync(agent={agent}, input=[Message.model_validate(it) for it in INPUT])
        print(run.model_dump_json(indent=2))


asyncio.run(main())
"#
    )
}

/// Returns a run without a thread on a server of the Agent Connect Protocol, with `agntcy-acp`. The body has the members of its `RunCreateStateless`.
#[must_use]
pub fn agntcy_acp(url: &str, body: &Value) -> String {
    let (url, body) = (in_python(&json!(url)), in_python(body));
    format!(
        r#"# pip install agntcy-acp
import os

from agntcy_acp import ACPClient, ApiClientConfiguration
from agntcy_acp.models import RunCreateStateless

configuration = ApiClientConfiguration(host={url}, api_key={{"x-api-key": os.environ["TRILOGUE_TOKEN"]}})
with ACPClient(configuration=configuration) as client:
    request = RunCreateStateless.model_validate({body})
    answer = client.create_and_wait_for_stateless_run_output(request)
    print(answer.output.to_json())
"#
    )
}

/// Returns the requests of an editor, one per line. Send each request after the response to the previous one.
#[must_use]
pub fn json_rpc(session: &str, prompt: &Value) -> String {
    let line = |id: u32, method: &str, params: Value| {
        in_json(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })) + "\n"
    };
    [
        line(0, "initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })),
        line(1, "session/load", json!({ "sessionId": session, "cwd": "/", "mcpServers": [] })),
        line(2, "session/prompt", json!({ "sessionId": session, "prompt": prompt })),
    ]
    .concat()
}

/// Quotes one word for a shell.
fn in_shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn in_json(value: &Value) -> String {
    seen(&value.to_string(), |letter, out| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

/// Returns a Python literal.
fn in_python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        // JSON's escapes are also valid in Python, except for characters above 16 bits.
        Value::String(_) => seen(&value.to_string(), |letter, out| {
            out.push_str(&format!("\\U{:08x}", u32::from(letter)));
        }),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(in_python).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", in_python(&json!(name)), in_python(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Escapes each invisible character.
fn seen(text: &str, escape: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_unseen(letter) { escape(letter, &mut out) } else { out.push(letter) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_ends_no_word_of_the_shell() {
        let code = curl("http://h/'$(id)'", &json!({ "input": "'; rm -rf ~; '\u{202e}\u{e0041}" }));
        assert!(code.starts_with(r"curl -sS 'http://h/'\''$(id)'\''' \"), "{code}");
        assert!(code.contains(r"'\''; rm -rf ~; '\''\u202e\udb40\udc41"), "{code}");
    }

    #[test]
    fn values_are_literals_of_python() {
        let value = json!({ "a\"b": [true, false, null, 1.5, "it's\n\u{7f}\u{e0041}ä"] });
        let code = in_python(&value);
        assert_eq!(code, r#"{"a\"b": [True, False, None, 1.5, "it's\n\U0000007f\U000e0041ä"]}"#);
    }

    #[test]
    fn a_request_of_an_editor_is_one_line() {
        let lines = json_rpc("s", &json!([{ "type": "text", "text": "one\ntwo" }]));
        let ids =
            lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone());
        assert_eq!(ids.collect::<Vec<_>>(), [0, 1, 2]);
    }
}
