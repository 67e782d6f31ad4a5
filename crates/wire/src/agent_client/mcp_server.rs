use std::borrow::Cow;

use super::object::object;
use super::tagged::tagged;
use super::{EnvVariable, Opaque};
use crate::json::{Path, Read, Violation};

tagged! {
    pub enum McpServer by "type" {
        /// Only for agents with `mcpCapabilities.http`.
        Http(McpServerHttp) = "http";
        /// Only for agents with `mcpCapabilities.sse`.
        Sse(McpServerSse) = "sse";
    } plain {
        Stdio(McpServerStdio);
    } read by untagged
}

object! {
    pub struct McpServerHttp {
        name: String = "name";
        url: String = "url";
        headers: Vec<HttpHeader> = "headers" as list_there;
    }

    pub struct McpServerSse {
        name: String = "name";
        url: String = "url";
        headers: Vec<HttpHeader> = "headers" as list_there;
    }

    pub struct McpServerStdio {
        name: String = "name";
        /// An absolute path.
        command: String = "command";
        args: Vec<String> = "args" as list_there;
        env: Vec<EnvVariable> = "env" as list_there;
    }

    pub struct HttpHeader {
        name: String = "name";
        value: String = "value";
    }
}

/// Reads a server without a known kind as a program if its members are valid. Keeps its `type`.
fn untagged(json: &str, kind: Option<Cow<'_, str>>, at: &Path<'_>) -> Result<McpServer, Violation> {
    match (McpServerStdio::read(json, at), kind) {
        (Ok(server), _) => Ok(McpServer::Stdio(server)),
        (Err(_), Some(kind)) if kind != "stdio" => {
            Ok(McpServer::Other(Opaque { kind: kind.into_owned(), json: Read::read(json, at)? }))
        }
        (Err(violation), _) => Err(violation),
    }
}
