//! An agent with its own sessions that speaks the Agent Client Protocol, without a process: the first word of its prompt chooses what it does.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Notify;
use trilogue_domain::event::{Body, MessageEvent, Original};
use trilogue_domain::{
    AgentCard, AgentName, Code, Error, Failure, InterruptId, Json, Message, MessageId,
    RequestSource, Role, ThreadId,
};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{
    Backend, CallError, Client, Ending, Input, RunCaller, RunContext, Sessions, ThreadContext, Turn,
};
use trilogue_wire::agent_client::{
    CreateElicitationRequest, RequestPermissionRequest, Rules, read,
};

use crate::agent::Puppet;

#[derive(Debug)]
pub(crate) struct Hosted {
    card: AgentCard,
    pub(crate) heard: Mutex<Vec<Value>>,
    /// Notified when the agent receives a piece of an upload.
    chunk: Notify,
    takes_audio: bool,
}

/// Every kind of update that the protocol defines and two unknown ones, without session ids.
pub(crate) fn samples() -> Vec<Value> {
    let text = |text: &str| json!({"type": "text", "text": text});
    [
        json!({"sessionUpdate": "agent_thought_chunk", "content": text("hm"), "messageId": "7b0e4f0a-1d7c-4a39-8a54-6d2f5a1c0001"}),
        json!({"sessionUpdate": "agent_message_chunk", "content": text("he"), "messageId": "7b0e4f0a-1d7c-4a39-8a54-6d2f5a1c0002"}),
        json!({"sessionUpdate": "agent_message_chunk", "content": text("llo"), "messageId": "7b0e4f0a-1d7c-4a39-8a54-6d2f5a1c0002", "_meta": {"x": [1, {"y": null}]}, "extra": 1.0}),
        json!({"sessionUpdate": "agent_message_chunk", "messageId": "7b0e4f0a-1d7c-4a39-8a54-6d2f5a1c0003", "content": {"type": "image", "data": "AAAA", "mimeType": "image/png", "annotations": {"audience": ["user"]}}}),
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Write", "kind": "edit", "status": "pending", "locations": [{"path": "/a", "line": 3}]}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": [{"type": "diff", "path": "/a", "newText": "x"}]}),
        json!({"sessionUpdate": "plan", "entries": [{"content": "do", "priority": "high", "status": "pending"}]}),
        json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "web", "description": "search"}]}),
        json!({"sessionUpdate": "current_mode_update", "currentModeId": "code"}),
        json!({"sessionUpdate": "session_info_update", "title": null}),
        json!({"sessionUpdate": "usage_update", "used": 5, "size": 10}),
    ]
    .to_vec()
}

/// Plans by their ids: a list, a document, a change of the list, and the removal of the document.
pub(crate) fn plans() -> Vec<Value> {
    let entry =
        |text: &str, status: &str| json!({"content": text, "priority": "high", "status": status});
    let list = |entries: Value| {
        let plan = json!({"type": "items", "planId": "list", "entries": entries});
        json!({"sessionUpdate": "plan_update", "plan": plan})
    };
    let document = json!({"type": "markdown", "planId": "document", "content": "# P\n- [x] read"});
    vec![
        list(json!([entry("look", "pending")])),
        json!({"sessionUpdate": "plan_update", "plan": document}),
        list(json!([entry("look", "completed"), entry("write", "pending")])),
        json!({"sessionUpdate": "plan_removed", "planId": "document"}),
    ]
}

/// The block in every place where an agent can send content.
pub(crate) fn content(block: &Value) -> Vec<Value> {
    let (message, thought, call) =
        (MessageId::generate(), MessageId::generate(), MessageId::generate());
    let wrapped = json!([{"type": "content", "content": block}]);
    vec![
        json!({"sessionUpdate": "agent_message_chunk", "messageId": message.as_str(), "content": block}),
        json!({"sessionUpdate": "agent_thought_chunk", "messageId": thought.as_str(), "content": block}),
        json!({"sessionUpdate": "tool_call", "toolCallId": call.as_str(), "title": "T", "content": wrapped}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": call.as_str(), "status": "completed", "content": wrapped}),
    ]
}

/// Three tool calls: the first is running, and the second has ended and gets one more update.
pub(crate) fn calls() -> Vec<Value> {
    let call = |id: &str| json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "T"});
    let update = |id: &str, status: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status});
    vec![
        call("c-1"),
        call("c-2"),
        update("c-1", "in_progress"),
        update("c-2", "completed"),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c-2", "title": "Late"}),
        call("c-3"),
    ]
}

/// Updates that only some clients get.
pub(crate) fn gated() -> Vec<Value> {
    let option = |id: &str, kind: &str| match kind {
        "boolean" => {
            json!({"id": id, "name": id, "type": "boolean", "currentValue": true})
        }
        _ => {
            json!({"id": id, "name": id, "type": "select", "currentValue": "a", "options": [{"value": "a", "name": "A"}]})
        }
    };
    vec![
        json!({"sessionUpdate": "notice", "severity": "info", "title": "look"}),
        json!({"sessionUpdate": "compaction_update", "compactionId": "k", "status": "in_progress"}),
        json!({"sessionUpdate": "config_option_update", "configOptions": [option("s", "select"), option("b", "boolean")]}),
    ]
}

impl Hosted {
    pub(crate) fn new() -> Self {
        let mut card = Puppet::with_name("hosted").card().clone();
        card.name = AgentName::parse("hosted").unwrap();
        Self { card, heard: Mutex::default(), chunk: Notify::new(), takes_audio: false }
    }

    pub(crate) fn taking_audio() -> Self {
        Self { takes_audio: true, ..Self::new() }
    }

    fn record_call(&self, what: &str, thread: Option<&ThreadId>, params: &Json) {
        let thread = thread.map(ThreadId::as_str);
        let heard = json!({"what": what, "thread": thread, "params": params.to_value()});
        self.heard.lock().unwrap().push(heard);
    }

    pub(crate) fn recorded_calls(&self, what: &str) -> Vec<Value> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|it| it["what"] == what).cloned().collect()
    }
}

/// Records on drop that no client waits for the response any more.
struct GivenUp<'a>(&'a Hosted);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.0.record_call("given up", None, &Json::null());
    }
}

pub(crate) fn lost<E: std::fmt::Display>(error: E) -> Failure {
    Failure { code: "lost".to_owned(), message: error.to_string(), transient: false, data: None }
}

fn original(dialect: &str, value: &Value) -> Original {
    Original {
        dialect: dialect.into(),
        version: mapping::VERSION,
        bytes: Bytes::from(value.to_string()),
    }
}

fn logged(update: &Value) -> (Body, Option<Original>) {
    let params = json!({"sessionId": "", "update": update});
    let body = mapping::body_of_update(&params.to_string());
    (body, Some(original(mapping::UPDATE, &params)))
}

pub(crate) async fn emit(context: &RunContext, update: &Value) -> Result<(), Failure> {
    let (body, original) = logged(update);
    context.emit(body, original).await.map_err(lost)
}

async fn say(context: &RunContext, id: &str, text: &str) -> Result<(), Failure> {
    let message = MessageId::parse(id).unwrap();
    let role = Role::NamedAgent("hosted".into());
    let began = MessageEvent::Started { message: message.clone(), role, times: None };
    context.emit(Body::Message(began), None).await.map_err(lost)?;
    for piece in [text, "!"] {
        let content = json!({"type": "text", "text": piece});
        let update =
            json!({"sessionUpdate": "agent_message_chunk", "content": content, "messageId": id});
        emit(context, &update).await?;
    }
    context.emit(Body::Message(MessageEvent::Completed { message }), None).await.map_err(lost)
}

async fn result(context: &RunContext, value: &Value) -> Result<(), Failure> {
    let original = original(mapping::RESULT, value);
    let read = trilogue_domain::port::ReadOriginal::read(&mapping::OriginalReader, &original);
    context.emit(read.map_err(lost)?, Some(original)).await.map_err(lost)
}

pub(crate) fn permission() -> Value {
    json!({
        "sessionId": "",
        "toolCall": {"toolCallId": "c", "title": "Write a file", "_meta": {"kept": true}},
        "options": [
            {"optionId": "always", "name": "Always", "kind": "allow_always"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ],
        "unknown": [1],
    })
}

#[async_trait]
impl Backend for Hosted {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        false
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    /// Refuses folders below `/elsewhere` to callers over the network.
    async fn authorize(&self, caller: &RunCaller<'_>, config: Json) -> Result<Json, Error> {
        let is_elsewhere = config.as_str().contains("/elsewhere");
        if is_elsewhere && caller.source == RequestSource::Network {
            return Err(Error::new(Code::Forbidden, "`agents.hosted.roots` does not allow it"));
        }
        Ok(config)
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let Turn::Start { input: Input::Messages(messages) } = turn else {
            return Err(lost("no messages"));
        };
        let text = messages.iter().map(Message::text).collect::<String>();
        let (command, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match command {
            "two" => {
                say(&context, "m-one", "first").await?;
                say(&context, "m-two", "second").await?;
            }
            "all" => {
                for update in samples() {
                    emit(&context, &update).await?;
                }
            }
            "gated" => {
                for update in gated() {
                    emit(&context, &update).await?;
                }
            }
            "open-calls" => {
                for update in calls() {
                    emit(&context, &update).await?;
                }
                match rest {
                    "fail" => return Err(mapping::failure_of(-32010, "no credit", None)),
                    "cancel" => context.cancelled().await,
                    _ => {}
                }
            }
            "visited" => {
                let params = json!({"sessionId": "", "elicitationId": "e"});
                let told = json!({"method": "elicitation/complete", "params": params});
                let told = original(mapping::NOTIFICATION, &told);
                context.emit(Body::Opaque, Some(told)).await.map_err(lost)?;
            }
            "plans" => {
                for update in plans() {
                    emit(&context, &update).await?;
                }
            }
            "suggest" => {
                let prompt = json!([{"type": "text", "text": "go on"}]);
                let update = json!({"sessionUpdate": "prompt_suggestions_update", "suggestions": [{"prompt": prompt}]});
                emit(&context, &update).await?;
                emit(&context, &json!({"sessionUpdate": "cursor_update", "cursorId": "its-own"}))
                    .await?;
            }
            "unknown" => {
                emit(&context, &json!({"sessionUpdate": "later_update", "what": [1]})).await?;
                let told = json!({"method": "_x/told", "params": {"sessionId": "", "n": 1.50}});
                let told = original(mapping::NOTIFICATION, &told);
                context.emit(Body::Opaque, Some(told)).await.map_err(lost)?;
            }
            "permission" | "forever" => {
                let mut raw = permission();
                if command == "forever" {
                    raw["options"] = json!([
                        {"optionId": "once", "name": "Once", "kind": "allow_once"},
                        {"optionId": "never", "name": "Never", "kind": "reject_always"},
                    ]);
                }
                let params: RequestPermissionRequest =
                    read(raw.to_string().as_bytes(), Rules::Lenient).map_err(lost)?;
                let id = InterruptId::generate();
                let interrupt = mapping::interrupt_of_permission(&params, &raw.to_string(), id);
                let resolution = context.ask(interrupt.clone()).await.map_err(lost)?;
                let outcome = mapping::permission_outcome(&interrupt, &resolution);
                let outcome = serde_json::to_string(&outcome).map_err(lost)?;
                say(&context, "m-outcome", &outcome).await?;
            }
            "visit" | "fill" => {
                let mut raw = match command {
                    "visit" => json!({
                        "mode": "url", "message": "Log in", "elicitationId": "e", "url": "https://a/b",
                    }),
                    _ => json!({
                        "mode": "form", "message": "Who?",
                        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                    }),
                };
                raw["sessionId"] = json!("");
                let params: CreateElicitationRequest =
                    read(raw.to_string().as_bytes(), Rules::Lenient).map_err(lost)?;
                let id = InterruptId::generate();
                let interrupt = mapping::interrupt_of_elicitation(&params, &raw.to_string(), id);
                let resolution = context.ask(interrupt.clone()).await.map_err(lost)?;
                let outcome = mapping::elicitation_outcome(&interrupt, &resolution);
                let outcome = serde_json::to_string(&outcome).map_err(lost)?;
                say(&context, &MessageId::generate().to_string(), &outcome).await?;
            }
            "much" => crate::client_large::say(&context, rest).await?,
            "read" => {
                let params = json!({"sessionId": "", "path": rest});
                let params = Json::from_value(&params);
                let read = tokio::select! {
                    read = context.call_client("fs/read_text_file", params) => read,
                    () = context.cancelled() => return Ok(Ending::Completed),
                };
                let told = match read {
                    Ok(content) => content.as_str().to_owned(),
                    Err(error) => error.code.to_string(),
                };
                say(&context, &MessageId::generate().to_string(), &told).await?;
            }
            "blocks" => {
                let prompt = messages.last().unwrap();
                let blocks = mapping::blocks_of_message(prompt);
                let extra = mapping::extra_of_message(prompt).map(|extra| extra.to_value());
                let told = json!({"blocks": blocks, "extra": extra});
                say(&context, "m-blocks", &told.to_string()).await?;
            }
            // All blocks after the first word, as content of each kind.
            "content" => {
                for block in mapping::blocks_of_message(messages.last().unwrap()).iter().skip(1) {
                    for update in content(&json!(block)) {
                        emit(&context, &update).await?;
                    }
                }
            }
            "wait" => {
                emit(&context, &json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "waiting"}, "messageId": "m-wait"})).await?;
                context.cancelled().await;
                result(&context, &json!({"stopReason": "cancelled"})).await?;
            }
            "fail" => {
                return Err(mapping::failure_of(-32010, "no credit", None));
            }
            "result" => {
                say(&context, "m-result", "done").await?;
                let usage = json!({"totalTokens": 3, "inputTokens": 1, "outputTokens": 2});
                let value =
                    json!({"stopReason": "max_tokens", "usage": usage, "userMessageId": "its-own"});
                result(&context, &value).await?;
            }
            _ => say(&context, &MessageId::generate().to_string(), &text).await?,
        }
        Ok(Ending::Completed)
    }
}

#[async_trait]
impl Sessions for Hosted {
    fn dialect(&self) -> (&str, u32) {
        (mapping::UPDATE, mapping::VERSION)
    }

    async fn greet(&self, caller: &Arc<dyn Client>) -> Result<Json, CallError> {
        self.record_call("meet", None, &caller.profile().capabilities);
        Ok(Json::from_value(&json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "promptCapabilities": {
                    "image": true, "embeddedContext": true, "audio": self.takes_audio,
                },
                "auth": {"logout": {}},
            },
            "authMethods": [{"id": "key", "name": "A key"}],
            "agentInfo": {"name": "hosted-itself", "version": "9"},
        })))
    }

    async fn open(
        &self,
        thread: &ThreadContext,
        caller: &Arc<dyn Client>,
        params: Json,
    ) -> Result<Json, CallError> {
        self.record_call("open", Some(thread.thread()), &params);
        let opener = json!({"source": caller.profile().source.as_str(), "folder": caller.folder()});
        self.record_call("opener", Some(thread.thread()), &Json::from_value(&opener));
        if params.as_str().contains("/slow") {
            let _given_up = GivenUp(self);
            std::future::pending::<()>().await;
        }
        if params.as_str().contains("/forbidden") {
            return Err(CallError::new(-32000, "Authentication required"));
        }
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": []});
        let (body, original) = logged(&update);
        drop(thread.append_event(body, original).await);
        Ok(Json::from_value(&json!({
            "modes": {
                "currentModeId": "ask",
                "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
            },
            "_meta": {"opened": true},
        })))
    }

    async fn call(
        &self,
        thread: Option<&ThreadContext>,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError> {
        self.record_call(method, thread.map(ThreadContext::thread), &params);
        match method {
            "session/set_mode" => {
                let mode = params.to_value()["modeId"].clone();
                let update =
                    json!({"sessionUpdate": "current_mode_update", "currentModeId": &mode});
                let (body, original) = logged(&update);
                // Some agents do not report a change that a client made.
                if let Some(thread) = thread.filter(|_| mode != "quiet") {
                    drop(thread.append_event(body, original).await);
                }
                Ok(Json::empty_object())
            }
            "session/set_config_option" => {
                let value = params.to_value()["value"].clone();
                let mut options = gated()[2]["configOptions"].clone();
                options[0]["currentValue"] = value;
                Ok(Json::from_value(&json!({ "configOptions": options })))
            }
            "authenticate" => match params.to_value()["methodId"].as_str() {
                // A question of this agent alone: its id is the agent's own request id.
                Some(mode @ ("form" | "url")) => {
                    let asked = json!({"requestId": "agents-own", "mode": mode, "message": "who?", "requestedSchema": {"type": "object", "properties": {}}, "elicitationId": "e", "url": "https://a.example/"});
                    let answer =
                        caller.call("elicitation/create", Json::from_value(&asked)).await?;
                    let done = Json::from_value(&json!({"elicitationId": "e"}));
                    caller.notify("elicitation/complete", done).await;
                    self.record_call("answered", None, &answer);
                    Ok(Json::null())
                }
                _ => Ok(Json::null()),
            },
            "_x/slow" => {
                let _given_up = GivenUp(self);
                std::future::pending().await
            }
            // The next notification belongs to this request.
            "_x/upload" => {
                self.chunk.notified().await;
                Ok(Json::empty_object())
            }
            "logout" => Ok(Json::empty_object()),
            "_x/echo" => Ok(params),
            _ => Err(CallError::new(CallError::METHOD_NOT_FOUND, "Method not found")),
        }
    }

    async fn notify(
        &self,
        thread: Option<&ThreadContext>,
        _: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) {
        self.record_call(method, thread.map(ThreadContext::thread), &params);
        if method == "_x/chunk" {
            self.chunk.notify_one();
        }
    }

    async fn close(&self, thread: &ThreadContext) {
        self.record_call("close", Some(thread.thread()), &Json::null());
    }

    async fn forget(&self, thread: &ThreadContext) {
        self.record_call("forget", Some(thread.thread()), &Json::null());
    }
}
