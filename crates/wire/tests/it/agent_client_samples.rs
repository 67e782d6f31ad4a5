//! A sample of every message of the Agent Client Protocol, with every member set.

use std::fmt::Debug;

use serde_json::Value;
use trilogue_wire::agent_client::*;
use trilogue_wire::jsonrpc::Payload;

use super::agent_client_questions::questions;

/// Reads text and writes the parsed value again. Also returns its debug form.
type Pass = fn(&[u8], Rules) -> Result<(Value, String), Violation>;

pub(crate) struct Sample {
    /// The name of the type in the official schema.
    pub(crate) name: &'static str,
    pub(crate) json: Value,
    /// Whether it has parts that only the unstable schema has.
    pub(crate) stability: Stability,
    /// Reads text and writes the parsed value again. Also returns its debug form.
    pub(crate) pass: Pass,
    /// Whether reading the output gives the original value.
    pub(crate) comes_back: bool,
}

pub(crate) fn sample<T: Read + Payload + PartialEq + Debug>(
    name: &'static str,
    value: &T,
) -> Sample {
    let json = serde_json::to_value(value).unwrap();
    let back = read::<T>(json.to_string().as_bytes(), Rules::Strict);
    let comes_back = back.as_ref() == Ok(value);
    Sample { name, json, stability: Stability::Stable, pass: pass::<T>, comes_back }
}

fn unstable<T: Read + Payload + PartialEq + Debug>(name: &'static str, value: &T) -> Sample {
    Sample { stability: Stability::Unstable, ..sample(name, value) }
}

fn pass<T: Read + Payload + Debug>(
    text: &[u8],
    rules: Rules,
) -> Result<(Value, String), Violation> {
    let value = read::<T>(text, rules)?;
    Ok((serde_json::to_value(&value).unwrap(), format!("{value:?}")))
}

pub(crate) fn all() -> Vec<Sample> {
    [beginning(), sessions(), upkeep(), prompts(), updates(), files(), questions()]
        .into_iter()
        .flatten()
        .collect()
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(crate) fn meta() -> Option<Meta> {
    Some(Meta::new().with("traceparent", json(r#""00-1""#)).with("x", json(r#"{"y":[1,null]}"#)))
}

pub(crate) fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn annotations() -> Option<Annotations> {
    Some(Annotations {
        audience: Some(vec![Role::User, Role::Assistant]),
        priority: Some(serde_json::from_str("0.5").unwrap()),
        last_modified: some("2026-11-20T23:50:09Z"),
        meta: meta(),
        ..Annotations::default()
    })
}

pub(crate) fn blocks() -> Vec<ContentBlock> {
    let text =
        TextContent { annotations: annotations(), meta: meta(), ..TextContent::new("hällo\n") };
    let image = ImageContent {
        uri: some("file:///a.png"),
        annotations: annotations(),
        ..ImageContent::new("aGk=", "image/png")
    };
    let audio =
        AudioContent { annotations: annotations(), ..AudioContent::new("aGk=", "audio/wav") };
    let link = ResourceLink {
        mime_type: some("application/pdf"),
        title: some("A"),
        description: some("B"),
        size: Some(-1),
        annotations: annotations(),
        ..ResourceLink::new("file:///a.pdf", "a.pdf")
    };
    let text_file = TextResourceContents {
        mime_type: some("text/plain"),
        meta: meta(),
        ..TextResourceContents::new("file:///a.txt", "a")
    };
    let blob = BlobResourceContents {
        mime_type: some("a/b"),
        ..BlobResourceContents::new("file:///a.bin", "aGk=")
    };
    let embedded =
        EmbeddedResource { annotations: annotations(), ..EmbeddedResource::new(text_file) };
    vec![
        ContentBlock::Text(text),
        ContentBlock::Image(image),
        ContentBlock::Audio(audio),
        ContentBlock::ResourceLink(Box::new(link)),
        ContentBlock::Resource(Box::new(embedded)),
        ContentBlock::Resource(Box::new(EmbeddedResource::new(blob))),
    ]
}

fn beginning() -> Vec<Sample> {
    let on = || Some(Supported::default());
    let client = ClientCapabilities {
        fs: Some(FileSystemCapabilities {
            read_text_file: true,
            write_text_file: true,
            ..FileSystemCapabilities::default()
        }),
        terminal: true,
        session: Some(ClientSessionCapabilities {
            compaction: on(),
            config_options: Some(ConfigOptionsCapabilities { boolean: on(), ..Default::default() }),
            notices: on(),
            prompt_suggestions: on(),
            cursors: on(),
            ..Default::default()
        }),
        plan: on(),
        subagents: on(),
        auth: Some(AuthCapabilities { terminal: true, ..Default::default() }),
        elicitation: Some(ElicitationCapabilities { form: on(), url: on(), ..Default::default() }),
        meta: meta(),
        ..Default::default()
    };
    let agent = AgentCapabilities {
        load_session: true,
        prompt: Some(PromptCapabilities {
            image: true,
            audio: true,
            embedded_context: true,
            ..Default::default()
        }),
        mcp: Some(McpCapabilities { http: true, sse: true, ..Default::default() }),
        session: Some(SessionCapabilities {
            list: on(),
            delete: on(),
            additional_directories: on(),
            resume: on(),
            close: on(),
            system_prompt: Some(SystemPromptCapabilities {
                mode: Some(SystemPromptModes { r#override: on(), ..Default::default() }),
                ..Default::default()
            }),
            fork: on(),
            status: on(),
            title: on(),
            archive: on(),
            options: on(),
            ..Default::default()
        }),
        auth: Some(AgentAuthCapabilities { logout: on(), ..Default::default() }),
        ..Default::default()
    };
    let who = Implementation { title: some("T"), ..Implementation::new("t", "1") };
    let in_terminal = AuthMethodTerminal {
        description: some("d"),
        args: vec!["login".to_owned()],
        env: Some([("A".to_owned(), "b".to_owned())].into_iter().collect()),
        ..AuthMethodTerminal::new("t", "T")
    };
    let own = AuthMethodAgent { description: some("d"), ..AuthMethodAgent::new("a", "A") };
    let initialize = InitializeRequest {
        client_capabilities: Some(client),
        client_info: Some(who.clone()),
        ..InitializeRequest::new(PROTOCOL_VERSION)
    };
    let initialized = InitializeResponse {
        agent_capabilities: Some(agent),
        auth_methods: vec![AuthMethod::Terminal(in_terminal), AuthMethod::Agent(own)],
        agent_info: Some(who),
        meta: meta(),
        ..InitializeResponse::new(PROTOCOL_VERSION)
    };
    vec![
        sample("InitializeRequest", &initialize),
        sample("InitializeResponse", &initialized),
        sample("AuthenticateRequest", &AuthenticateRequest::new("a")),
        sample("AuthenticateResponse", &AuthenticateResponse::new()),
        sample("LogoutRequest", &LogoutRequest { meta: meta(), ..LogoutRequest::new() }),
        sample("LogoutResponse", &LogoutResponse::new()),
    ]
}

fn servers() -> Vec<McpServer> {
    let header = || vec![HttpHeader::new("a", "b")];
    vec![
        McpServer::Http(McpServerHttp::new("h", "https://example.com", header())),
        McpServer::Sse(McpServerSse::new("s", "https://example.com", header())),
        McpServer::Stdio(McpServerStdio::new(
            "p",
            "/bin/p",
            vec!["-x".to_owned()],
            vec![EnvVariable::new("A", "b")],
        )),
    ]
}

fn modes() -> Option<SessionModeState> {
    let ask = SessionMode { description: some("d"), ..SessionMode::new("ask", "Ask") };
    Some(SessionModeState::new("ask", vec![ask]))
}

fn options() -> Vec<SessionConfigOption> {
    let value = || SessionConfigSelectOption {
        description: some("d"),
        ..SessionConfigSelectOption::new("big", "Big")
    };
    let group = SessionConfigSelectGroup::new("g", "G", vec![value()]);
    let select = SessionConfigSelect {
        description: some("d"),
        category: Some(SessionConfigOptionCategory::Model),
        ..SessionConfigSelect::new("model", "Model", "big", vec![value()])
    };
    let grouped = SessionConfigSelect {
        category: Some(SessionConfigOptionCategory::Other("_own".to_owned())),
        ..SessionConfigSelect::new("effort", "Effort", "big", vec![group])
    };
    let switch = SessionConfigBoolean {
        description: some("d"),
        category: Some(SessionConfigOptionCategory::ThoughtLevel),
        ..SessionConfigBoolean::new("fast", "Fast", true)
    };
    vec![
        SessionConfigOption::Select(Box::new(select)),
        SessionConfigOption::Select(Box::new(grouped)),
        SessionConfigOption::Boolean(switch),
    ]
}

fn system_prompt() -> Option<SystemPrompt> {
    Some(SystemPrompt::new(SystemPromptMode::Append, vec![ContentBlock::text("be brief")]))
}

fn initial_options() -> Vec<InitialConfigOption> {
    let fast = SessionConfigValue::Boolean(true);
    let fast =
        InitialConfigOption { kind: some("boolean"), ..InitialConfigOption::new("fast", fast) };
    vec![InitialConfigOption::new("model", "big"), fast]
}

fn sessions() -> Vec<Sample> {
    let also = || vec!["/b".to_owned()];
    let new = NewSessionRequest {
        additional_directories: also(),
        system_prompt: system_prompt(),
        meta: meta(),
        ..NewSessionRequest::new("/a", servers())
    };
    let begun = NewSessionResponse {
        modes: modes(),
        config_options: Some(options()),
        ..NewSessionResponse::new("s")
    };
    let load = LoadSessionRequest {
        additional_directories: also(),
        system_prompt: system_prompt(),
        ..LoadSessionRequest::new("s", "/a", servers())
    };
    let loaded = LoadSessionResponse {
        modes: modes(),
        config_options: Some(options()),
        ..LoadSessionResponse::new()
    };
    let resume = ResumeSessionRequest {
        mcp_servers: servers(),
        additional_directories: also(),
        system_prompt: system_prompt(),
        ..ResumeSessionRequest::new("s", "/a")
    };
    let resumed = ResumeSessionResponse {
        modes: modes(),
        config_options: Some(Vec::new()),
        ..ResumeSessionResponse::new()
    };
    let list = ListSessionsRequest { cwd: some("/a"), cursor: some("c"), ..Default::default() };
    let info = SessionInfo {
        additional_directories: also(),
        title: some("T"),
        updated_at: some("2026-11-20T23:50:09Z"),
        ..SessionInfo::new("s", "/a")
    };
    let listed =
        ListSessionsResponse { next_cursor: some("d"), ..ListSessionsResponse::new(vec![info]) };
    vec![
        sample("NewSessionRequest", &new),
        sample("NewSessionResponse", &begun),
        sample("LoadSessionRequest", &load),
        sample("LoadSessionResponse", &loaded),
        sample("ResumeSessionRequest", &resume),
        sample("ResumeSessionResponse", &resumed),
        sample("ListSessionsRequest", &list),
        sample("ListSessionsResponse", &listed),
        sample("DeleteSessionRequest", &DeleteSessionRequest::new("s")),
        sample("DeleteSessionResponse", &DeleteSessionResponse::new()),
        sample("CloseSessionRequest", &CloseSessionRequest::new("s")),
        sample("CloseSessionResponse", &CloseSessionResponse::new()),
        sample("SetSessionModeRequest", &SetSessionModeRequest::new("s", "ask")),
        sample("SetSessionModeResponse", &SetSessionModeResponse::new()),
        sample(
            "SetSessionConfigOptionRequest",
            &SetSessionConfigOptionRequest::new("s", "model", "big"),
        ),
        sample(
            "SetSessionConfigOptionRequest",
            &SetSessionConfigOptionRequest::boolean("s", "fast", false),
        ),
        sample("SetSessionConfigOptionResponse", &SetSessionConfigOptionResponse::new(options())),
    ]
}

/// Messages with parts of the unstable schema.
fn upkeep() -> Vec<Sample> {
    let new = NewSessionRequest {
        config_options: initial_options(),
        ..NewSessionRequest::new("/a", servers())
    };
    let load = LoadSessionRequest {
        config_options: initial_options(),
        ..LoadSessionRequest::new("s", "/a", servers())
    };
    let resume = ResumeSessionRequest {
        config_options: initial_options(),
        ..ResumeSessionRequest::new("s", "/a")
    };
    let list = ListSessionsRequest { archived: Some(ArchiveFilter::Only), ..Default::default() };
    let info = SessionInfo { archived: Some(true), ..SessionInfo::new("s", "/a") };
    let fork = ForkSessionRequest {
        cursor_id: some("c"),
        mcp_servers: servers(),
        additional_directories: vec!["/b".to_owned()],
        system_prompt: system_prompt(),
        config_options: initial_options(),
        ..ForkSessionRequest::new("s", "/a")
    };
    let forked = ForkSessionResponse {
        modes: modes(),
        config_options: Some(options()),
        ..ForkSessionResponse::new("t")
    };
    let asked = SessionOptionsRequest {
        additional_directories: vec!["/b".to_owned()],
        session_id: some("s"),
        ..SessionOptionsRequest::new("/a")
    };
    let offered = SessionOptionsResponse {
        modes: modes(),
        config_options: Some(options()),
        ..SessionOptionsResponse::new()
    };
    vec![
        unstable("NewSessionRequest", &new),
        unstable("LoadSessionRequest", &load),
        unstable("ResumeSessionRequest", &resume),
        unstable("ListSessionsRequest", &list),
        unstable("ListSessionsResponse", &ListSessionsResponse::new(vec![info])),
        unstable("ForkSessionRequest", &fork),
        unstable("ForkSessionResponse", &forked),
        unstable("SessionStatusRequest", &SessionStatusRequest::new("s")),
        unstable("SessionStatusResponse", &SessionStatusResponse::new(SessionStatus::Saved)),
        unstable("SetSessionTitleRequest", &SetSessionTitleRequest::new("s", "T")),
        unstable("SetSessionTitleResponse", &SetSessionTitleResponse::new("T")),
        unstable("ArchiveSessionRequest", &ArchiveSessionRequest::new("s")),
        unstable("ArchiveSessionResponse", &ArchiveSessionResponse::new()),
        unstable("UnarchiveSessionRequest", &UnarchiveSessionRequest::new("s")),
        unstable("UnarchiveSessionResponse", &UnarchiveSessionResponse::new()),
        unstable("SessionOptionsRequest", &asked),
        unstable("SessionOptionsResponse", &offered),
    ]
}

fn prompts() -> Vec<Sample> {
    let prompt =
        PromptRequest { message_id: some("m"), meta: meta(), ..PromptRequest::new("s", blocks()) };
    let mut samples = vec![
        sample("PromptRequest", &prompt),
        sample("CancelNotification", &CancelNotification::new("s")),
    ];
    for reason in ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"] {
        let ended = PromptResponse {
            user_message_id: some("m"),
            ..PromptResponse::new(StopReason::parse(reason))
        };
        samples.push(sample("PromptResponse", &ended));
    }
    for id in ["null", "-7", r#""a""#] {
        let id = Id::of(id).unwrap();
        samples.push(sample("CancelRequestNotification", &CancelRequestNotification::new(id)));
    }
    samples
}

pub(crate) fn every_update() -> Vec<SessionUpdate> {
    let chunk = |block: ContentBlock| {
        Box::new(ContentChunk { meta: meta(), ..ContentChunk::of("m", block) })
    };
    let mut all: Vec<SessionUpdate> =
        blocks().into_iter().map(|block| SessionUpdate::AgentMessageChunk(chunk(block))).collect();
    all.push(SessionUpdate::UserMessageChunk(chunk("hi".into())));
    all.push(SessionUpdate::AgentThoughtChunk(Box::new(ContentChunk::new("hm"))));
    all.extend(tool_updates());
    let step = PlanEntry::new("a", PlanEntryPriority::High, PlanEntryStatus::InProgress);
    let command = AvailableCommand {
        input: Some(CommandInput::new("what")),
        ..AvailableCommand::new("web", "d")
    };
    let clear = SessionInfoUpdate { title: Patch::Clear, ..Default::default() };
    let set = SessionInfoUpdate {
        title: Patch::Set("T".to_owned()),
        updated_at: Patch::Set("2026-11-20T23:50:09Z".to_owned()),
        ..Default::default()
    };
    let cost = Cost::new(serde_json::Number::from_f64(0.25).unwrap(), "USD");
    let usage = UsageUpdate { cost: Some(cost), ..UsageUpdate::new(1_u64, u64::MAX) };
    let notice = Notice { description: some("d"), ..Notice::new(NoticeSeverity::Warning, "t") };
    let compaction = CompactionUpdate {
        summary: Some(blocks()),
        error: some("e"),
        ..CompactionUpdate::new("c", CompactionStatus::Failed)
    };
    all.extend([
        SessionUpdate::Plan(Plan::new(vec![step.clone()])),
        plan(PlanUpdateContent::Items(PlanItems::new("p", vec![step]))),
        plan(PlanUpdateContent::Markdown(PlanMarkdown {
            path: some("/plan.md"),
            ..PlanMarkdown::new("q", "# Plan")
        })),
        SessionUpdate::PlanRemoved(PlanRemoved::new("p")),
        SessionUpdate::AvailableCommands(AvailableCommandsUpdate::new(vec![command])),
        SessionUpdate::CurrentMode(CurrentModeUpdate::new("ask")),
        SessionUpdate::ConfigOptions(ConfigOptionUpdate::new(options())),
        SessionUpdate::SessionInfo(clear),
        SessionUpdate::SessionInfo(set),
        SessionUpdate::Usage(usage),
        SessionUpdate::Notice(notice),
        SessionUpdate::Compaction(compaction),
        SessionUpdate::CompactionSummaryChunk(Box::new(CompactionSummaryChunk::new("c", "s"))),
    ]);
    all.extend(subagents());
    all.extend([SessionUpdate::PromptSuggestions(PromptSuggestionsUpdate::new(vec![
        PromptSuggestion::new(vec![ContentBlock::text("go on")]),
    ]))]);
    all.extend(cursors());
    all
}

fn plan(plan: PlanUpdateContent) -> SessionUpdate {
    SessionUpdate::PlanUpdate(Box::new(PlanUpdate::new(plan)))
}

fn subagents() -> Vec<SessionUpdate> {
    let idle = |reason| IdleState { stop_reason: reason, ..Default::default() };
    let states = [
        StateUpdate::Running(WorkState::new()),
        StateUpdate::Idle(idle(None)),
        StateUpdate::Idle(idle(Some(SubagentStopReason::Error))),
        StateUpdate::Idle(idle(Some(SubagentStopReason::Other("_later".to_owned())))),
        StateUpdate::RequiresAction(WorkState::new()),
        StateUpdate::Unknown(WorkState::new()),
    ];
    let changed = states
        .map(|state| SubagentUpdate { state: Patch::Set(state), ..SubagentUpdate::new("child") });
    let set = |text: &str| Patch::Set(text.to_owned());
    let cancel = SubagentSessionCapabilities {
        cancel: Some(Supported::default()),
        ..SubagentSessionCapabilities::new()
    };
    let announced = SubagentUpdate {
        title: set("T"),
        description: set("d"),
        capabilities: Patch::Set(cancel),
        cwd: set("/a"),
        additional_directories: Patch::Set(vec!["/b".to_owned()]),
        meta: meta(),
        ..SubagentUpdate::new("child")
    };
    let cleared = SubagentUpdate {
        title: Patch::Clear,
        description: Patch::Clear,
        capabilities: Patch::Clear,
        state: Patch::Clear,
        cwd: Patch::Clear,
        additional_directories: Patch::Clear,
        ..SubagentUpdate::new("child")
    };
    let sent = SessionMessage {
        sender_session_id: set("s"),
        recipient_session_id: set("child"),
        recipient_message_id: set("n"),
        content: Patch::Set(blocks()),
        ..SessionMessage::new("m")
    };
    let received = SessionMessage {
        sender_message_id: set("m"),
        recipient_session_id: Patch::Clear,
        content: Patch::Clear,
        ..SessionMessage::new("n")
    };
    let updates = [announced, cleared].into_iter().chain(changed);
    let updates = updates.map(|update| SessionUpdate::Subagent(Box::new(update)));
    let messages = [sent, received].map(|it| SessionUpdate::SessionMessage(Box::new(it)));
    let chunk = SessionMessageChunk::new("m", ContentBlock::text("t"));
    let chunk = SessionUpdate::SessionMessageChunk(Box::new(chunk));
    updates.chain(messages).chain([chunk]).collect()
}

fn cursors() -> Vec<SessionUpdate> {
    let message = || CursorMessageAnchor::new("m", CursorPosition::After);
    let anchors = [
        CursorAnchor::UserMessage(CursorMessageAnchor::new("m", CursorPosition::Before)),
        CursorAnchor::AgentMessage(message()),
        CursorAnchor::AgentThought(message()),
        CursorAnchor::ToolCall(CursorToolCallAnchor::new("c", CursorPosition::After)),
        CursorAnchor::Compaction(CursorCompactionAnchor::new("c", CursorPosition::After)),
    ];
    let fork = CursorCapabilities { fork: Some(Supported::default()), ..Default::default() };
    let begun = anchors.map(|anchor| CursorUpdate {
        capabilities: Patch::Set(fork.clone()),
        anchor: Some(anchor),
        ..CursorUpdate::new("c")
    });
    let ended = CursorUpdate { capabilities: Patch::Clear, ..CursorUpdate::new("c") };
    let all = begun.into_iter().chain([ended]);
    all.map(|cursor| SessionUpdate::Cursor(Box::new(cursor))).collect()
}

pub(crate) fn call() -> ToolCall {
    let diff = Diff { old_text: some("a"), ..Diff::new("/a", "b") };
    let mut content: Vec<ToolCallContent> = blocks()
        .into_iter()
        .map(|block| ToolCallContent::Content(Box::new(ToolContent::new(block))))
        .collect();
    content.push(ToolCallContent::Diff(diff));
    content.push(ToolCallContent::Terminal(ToolTerminal::new("t")));
    content.push(ToolCallContent::Session(ToolSession::new("child")));
    let at = ToolCallLocation { line: Some(7), ..ToolCallLocation::new("/a") };
    ToolCall {
        name: some("edit_file"),
        kind: Some(ToolKind::Edit),
        status: Some(ToolCallStatus::InProgress),
        content,
        locations: vec![at],
        raw_input: Some(json(r#"{"a":[1.0,null]}"#)),
        raw_output: Some(json("[true]")),
        meta: meta(),
        ..ToolCall::new("c", "Edit")
    }
}

fn tool_updates() -> Vec<SessionUpdate> {
    let mut all = vec![
        SessionUpdate::ToolCall(Box::new(call())),
        SessionUpdate::ToolCall(Box::new(ToolCall::new("c", "Edit"))),
        SessionUpdate::ToolCallUpdate(Box::new(call().into())),
        SessionUpdate::ToolCallUpdate(Box::new(ToolCallUpdate::new("c"))),
    ];
    let kinds = ToolKind::ALL
        .iter()
        .map(|kind| ToolCallUpdate { kind: Some(*kind), ..ToolCallUpdate::new("c") });
    let statuses = ToolCallStatus::ALL
        .iter()
        .map(|status| ToolCallUpdate { status: Some(*status), ..ToolCallUpdate::new("c") });
    all.extend(kinds.chain(statuses).map(|update| SessionUpdate::ToolCallUpdate(Box::new(update))));
    all
}

fn updates() -> Vec<Sample> {
    let told = |update: SessionUpdate| {
        let kind = update_kind(update.kind()).unwrap();
        let sample = sample("SessionNotification", &SessionNotification::new("s", update));
        Sample { stability: kind.stability, ..sample }
    };
    every_update().into_iter().map(told).collect()
}

fn files() -> Vec<Sample> {
    let read = ReadTextFileRequest {
        line: Some(1),
        limit: Some(u32::MAX),
        ..ReadTextFileRequest::new("s", "/a")
    };
    let create = CreateTerminalRequest {
        args: vec!["-l".to_owned()],
        env: vec![EnvVariable::new("A", "b")],
        cwd: some("/a"),
        output_byte_limit: Some(u64::MAX),
        ..CreateTerminalRequest::new("s", "ls")
    };
    let status = TerminalExitStatus {
        exit_code: Some(1),
        signal: some("TERM"),
        ..TerminalExitStatus::default()
    };
    let output = TerminalOutputResponse {
        exit_status: Some(status),
        ..TerminalOutputResponse::new("a", true)
    };
    let ended = WaitForTerminalExitResponse {
        exit_code: Some(0),
        signal: some("KILL"),
        ..Default::default()
    };
    vec![
        sample("ReadTextFileRequest", &read),
        sample("ReadTextFileResponse", &ReadTextFileResponse::new("text")),
        sample("WriteTextFileRequest", &WriteTextFileRequest::new("s", "/a", "text")),
        sample("WriteTextFileResponse", &WriteTextFileResponse::new()),
        sample("CreateTerminalRequest", &create),
        sample("CreateTerminalResponse", &CreateTerminalResponse::new("t")),
        sample("TerminalOutputRequest", &TerminalOutputRequest::new("s", "t")),
        sample("TerminalOutputResponse", &output),
        sample("WaitForTerminalExitRequest", &WaitForTerminalExitRequest::new("s", "t")),
        sample("WaitForTerminalExitResponse", &ended),
        sample("KillTerminalRequest", &KillTerminalRequest::new("s", "t")),
        sample("KillTerminalResponse", &KillTerminalResponse::new()),
        sample("ReleaseTerminalRequest", &ReleaseTerminalRequest::new("s", "t")),
        sample("ReleaseTerminalResponse", &ReleaseTerminalResponse::new()),
    ]
}
