use std::borrow::Cow;

use super::object::object;
use super::tagged::tagged;
use super::{EnvVariable, Opaque};
use crate::json::{Path, Read, Violation};

tagged! {
    /// A tool server, which speaks the Model Context Protocol.
    pub enum McpServer by "type" {
        /// Over HTTP. Only for agents with `mcpCapabilities.http`.
        Http(McpServerHttp) = "http";
        /// Over server-sent events. Only for agents with `mcpCapabilities.sse`.
        Sse(McpServerSse) = "sse";
    } plain {
        /// A program that the agent starts.
        Stdio(McpServerStdio);
    } read by untagged
}

object! {
    /// A tool server over HTTP.
    pub struct McpServerHttp {
        /// What it is called.
        name: String = "name" as required;
        /// Where it is.
        url: String = "url" as required;
        /// What is sent along.
        headers: Vec<HttpHeader> = "headers" as list_there;
    } may {
    }
}

object! {
    /// A tool server over server-sent events.
    pub struct McpServerSse {
        /// What it is called.
        name: String = "name" as required;
        /// Where it is.
        url: String = "url" as required;
        /// What is sent along.
        headers: Vec<HttpHeader> = "headers" as list_there;
    } may {
    }
}

object! {
    /// A tool server that the agent starts.
    pub struct McpServerStdio {
        /// What it is called.
        name: String = "name" as required;
        /// The program, as an absolute path.
        command: String = "command" as required;
        /// Its arguments.
        args: Vec<String> = "args" as list_there;
        /// Its variables.
        env: Vec<EnvVariable> = "env" as list_there;
    } may {
    }
}

object! {
    /// A header of a request.
    pub struct HttpHeader {
        /// Its name.
        name: String = "name" as required;
        /// Its value.
        value: String = "value" as required;
    } may {
    }
}

/// A server of no kind, or of one that the protocol has no word for, is a program if it can be; it says what it is in `type` all the same.
fn untagged(json: &str, kind: Option<Cow<'_, str>>, at: &Path<'_>) -> Result<McpServer, Violation> {
    match (McpServerStdio::read(json, at), kind) {
        (Ok(server), _) => Ok(McpServer::Stdio(server)),
        (Err(_), Some(kind)) if kind != "stdio" => {
            Ok(McpServer::Other(Opaque { kind: kind.into_owned(), json: Read::read(json, at)? }))
        }
        (Err(violation), _) => Err(violation),
    }
}
