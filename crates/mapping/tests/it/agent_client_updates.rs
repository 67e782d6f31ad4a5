//! Folds a log into updates, each of which is validated against the official schema.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{
    MessageEvent, PlanContent, PlanEntry, RunEvent, StateEvent, ThreadEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::{
    AgentName, Body, Citation, Code, Content, Event, Failure, Json, Message, Original, Outcome,
    Part, PartMetadata, Role, RunId, RunKey, ThreadId, Trajectory,
};
use trilogue_mapping::agent_client::{
    Extension, Gate, IdFormat, RESULT, UPDATE, Update, Updates, VERSION, input_id,
    message_of_prompt,
};
use trilogue_wire::agent_client::{ContentBlock, Rules, read};

use super::agent_client_blocks::forms;
use super::official::assert_valid;
use super::sample::{
    RUN, THREAD, completed, delta, json_of, message_bodies, message_id, message_started, parsed,
    result, run_ended,
};

fn run(bodies: Vec<Body>) -> Vec<Event> {
    (1..).zip(bodies).map(|(number, body)| Event { number, ..super::sample::event(body) }).collect()
}

fn fold(updates: &mut Updates, events: &[Event]) -> Vec<Update> {
    let mut out = Vec::new();
    for event in events {
        updates.push(event, Some(RUN), &mut out);
    }
    for update in &out {
        let params = parsed(&update.params);
        assert_valid("SessionNotification", &params);
        assert_eq!((&*update.method, &params["sessionId"]), ("session/update", &json!(THREAD)));
        assert!(params.get("update").is_some_and(|update| update["sessionUpdate"].is_string()));
    }
    out
}

fn updates() -> Updates {
    Updates::new(&ThreadId::parse(THREAD).unwrap())
}

fn render_updates(bodies: Vec<Body>) -> Vec<Value> {
    let out = fold(&mut updates(), &run(bodies));
    out.iter().map(|update| parsed(&update.params)["update"].clone()).collect()
}

fn chunk(kind: &str, id: &str, content: &Value) -> Value {
    json!({ "sessionUpdate": format!("{kind}_chunk"), "messageId": id, "content": content })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn thought(text: &str) -> Body {
    Body::Message(MessageEvent::Thought { message: None, text: Arc::from(text) })
}

fn part(id: &str, part: Part) -> Body {
    Body::Message(MessageEvent::Part { message: message_id(id), part })
}

fn tool(call: &str, name: &str, title: &str, input: Option<&Value>) -> Body {
    Body::Tool(ToolEvent::Started {
        call: call.to_owned(),
        tool: name.to_owned(),
        title: title.to_owned(),
        input: input.map(json_of),
        message: None,
    })
}

fn tool_ended(call: &str, status: ToolStatus, output: Option<&Value>) -> Body {
    Body::Tool(ToolEvent::Ended { call: call.to_owned(), status, output: output.map(json_of) })
}

fn custom(kind: &str, data: &Value) -> Body {
    Body::State(StateEvent::Custom { kind: kind.to_owned(), data: json_of(data) })
}

#[test]
fn two_messages_in_a_row_are_told_apart_by_their_ids() {
    let told = render_updates(vec![
        message_started("one", Role::NamedAgent(Arc::from("a"))),
        delta("one", "a"),
        delta("one", "b"),
        completed("one"),
        message_started("two", Role::Agent),
        delta("two", "c"),
        completed("two"),
        run_ended(Outcome::Completed),
    ]);
    let expected = [("one", "a"), ("one", "b"), ("two", "c")]
        .map(|(id, said)| chunk("agent_message", id, &text(said)));
    assert_eq!(told, expected);
}

#[test]
fn what_users_say_is_for_everybody_but_the_one_who_said_it() {
    let blocks: Vec<ContentBlock> = forms()
        .iter()
        .map(|form| read(form.to_string().as_bytes(), Rules::Lenient).unwrap())
        .collect();
    let message: Message = message_of_prompt(&blocks, message_id("u"));
    let mut bodies = message_bodies(&message);
    bodies.extend([message_started("m", Role::Agent), delta("m", "x"), completed("m")]);
    let mut fold_of_all = updates();
    let mut out = Vec::new();
    for event in run(bodies) {
        fold_of_all.push(&event, Some(RUN), &mut out);
    }
    let (last, users) = out.split_last().unwrap();
    assert_eq!(last.gate, Gate::Always);
    assert_eq!(users.len(), forms().len());
    for (update, form) in users.iter().zip(forms()) {
        assert_eq!(update.gate, Gate::UserMessage);
        assert_eq!(parsed(&update.params)["update"], chunk("user_message", "u", &form));
    }
}

#[test]
fn a_thought_has_the_id_of_its_run_and_its_first_event() {
    let bodies = || {
        vec![
            thought("a"),
            Body::State(StateEvent::Values(Json::null())),
            thought("b"),
            message_started("m", Role::Agent),
            thought("c"),
            tool("t", "look", "", None),
            thought("d"),
            thought("e"),
        ]
    };
    let told = render_updates(bodies());
    let ids: Vec<_> = told
        .iter()
        .filter(|update| update["sessionUpdate"] == "agent_thought_chunk")
        .map(|update| update["messageId"].as_str().unwrap().to_owned())
        .collect();
    let run_id = uuid::Uuid::parse_str(RUN).unwrap();
    let expected = |number: &str| uuid::Uuid::new_v5(&run_id, number.as_bytes()).to_string();
    assert_eq!(ids, ["1", "1", "5", "7", "7"].map(expected));
    assert_eq!(told, render_updates(bodies()), "a replay says the same");
}

#[test]
fn the_thoughts_of_runs_that_overlap_stay_apart() {
    let mut events = run(vec![thought("a"), delta("q", "queued"), thought("b")]);
    events[1].run = Some(RunKey(2));
    let told = fold(&mut updates(), &events);
    let id = |place: usize| parsed(&told[place].params)["update"]["messageId"].clone();
    assert_eq!(id(0), id(2));
}

#[test]
fn tool_calls_begin_go_on_and_end() {
    let call = "01890a5d-ac96-774b-bcce-b302099a8057";
    let told = render_updates(vec![
        tool(call, "read", "Read a.txt", Some(&json!({ "path": "a.txt" }))),
        Body::Tool(ToolEvent::Updated {
            call: call.to_owned(),
            content: vec![
                Part::text("half"),
                Part::new("text/plain", Content::Empty),
                Part::bytes("image/png", "hi"),
            ],
        }),
        tool_ended(call, ToolStatus::Completed, Some(&json!("whole"))),
    ]);
    assert_eq!(
        told,
        [
            json!({ "sessionUpdate": "tool_call", "toolCallId": call, "title": "Read a.txt", "name": "read", "kind": "read", "status": "in_progress", "rawInput": { "path": "a.txt" } }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "in_progress", "content": [
                { "type": "content", "content": text("half") },
                { "type": "content", "content": { "type": "image", "data": "aGk=", "mimeType": "image/png" } },
            ] }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed", "rawOutput": "whole" }),
        ]
    );
}

#[test]
fn a_call_is_named_once_in_a_session_and_what_it_gave_is_shown() {
    let told = render_updates(vec![
        tool("1", "look", "", None),
        tool_ended("1", ToolStatus::Failed, Some(&json!("gone"))),
        tool_ended("unknown", ToolStatus::Failed, None),
    ]);
    let id = format!("{RUN}:1");
    assert_eq!((&told[0]["toolCallId"], &told[0]["title"]), (&json!(id), &json!("look")));
    assert_eq!(told[0].get("kind"), None);
    assert_eq!(told[1]["toolCallId"], id);
    assert_eq!(told[1]["content"], json!([{ "type": "content", "content": text("gone") }]));
    // The call began with an original, so it has the agent's id.
    assert_eq!(
        told[2],
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "unknown", "status": "failed" })
    );
}

#[test]
fn a_run_that_ends_leaves_no_call_open() {
    for (outcome, status) in [
        (Outcome::Completed, "completed"),
        (Outcome::Cancelled { reason: None }, "failed"),
        (Outcome::Failed(Failure::of(Code::AgentLost, "lost")), "failed"),
    ] {
        let told = render_updates(vec![tool("1", "look", "", None), run_ended(outcome)]);
        assert_eq!(told.len(), 2);
        assert_eq!(told[1]["status"], status);
    }
    let mut fold_of_two = updates();
    let mut events = run(vec![tool("1", "look", "", None), run_ended(Outcome::Completed)]);
    events[1].run = Some(RunKey(2));
    assert_eq!(fold(&mut fold_of_two, &events).len(), 1, "the other run goes on");
}

#[test]
fn plans_have_what_the_protocol_wants_of_them() {
    let entry = |content: &str, status: &str| PlanEntry {
        content: content.to_owned(),
        status: status.to_owned(),
    };
    let told = render_updates(vec![Body::State(StateEvent::Plan(vec![
        entry("a \"b\"", "in_progress"),
        entry("c", "odd"),
    ]))]);
    assert_eq!(
        told,
        [json!({ "sessionUpdate": "plan", "entries": [
        { "content": "a \"b\"", "priority": "medium", "status": "in_progress" },
        { "content": "c", "priority": "medium", "status": "pending" },
    ] })]
    );
    assert_eq!(
        render_updates(vec![Body::State(StateEvent::Plan(Vec::new()))])[0]["entries"],
        json!([])
    );
}

fn plan_of(id: &str, content: PlanContent) -> Body {
    Body::State(StateEvent::PlanUpdated { plan: id.to_owned(), content })
}

#[test]
fn plans_by_id_keep_their_ids() {
    let entry = PlanEntry { content: "a".to_owned(), status: "completed".to_owned() };
    let document = |path: Option<&str>| PlanContent::Markdown {
        text: "# \"P\"".to_owned(),
        path: path.map(str::to_owned),
    };
    let told = render_updates(vec![
        plan_of("p", PlanContent::Entries(vec![entry])),
        plan_of("q", document(Some("/p.md"))),
        plan_of("q", document(None)),
        Body::State(StateEvent::PlanRemoved { plan: "p".to_owned() }),
    ]);
    let updated = |plan: Value| json!({ "sessionUpdate": "plan_update", "plan": plan });
    let entries = json!([{ "content": "a", "priority": "medium", "status": "completed" }]);
    assert_eq!(
        told,
        [
            updated(json!({ "type": "items", "planId": "p", "entries": entries })),
            updated(
                json!({ "type": "markdown", "planId": "q", "content": "# \"P\"", "path": "/p.md" })
            ),
            updated(json!({ "type": "markdown", "planId": "q", "content": "# \"P\"" })),
            json!({ "sessionUpdate": "plan_removed", "planId": "p" }),
        ]
    );
}

#[test]
fn clients_with_one_plan_get_all_plans_as_one() {
    let mut fold = updates();
    let merged = |fold: &Updates| -> Value {
        let params: Value = serde_json::from_slice(&fold.merged_plan()).unwrap();
        assert_eq!(params["update"]["sessionUpdate"], "plan");
        assert_valid("SessionNotification", &params);
        let entries = params["update"]["entries"].as_array().unwrap();
        entries
            .iter()
            .map(|entry| json!([entry["content"], entry["priority"], entry["status"]]))
            .collect()
    };
    let push = |fold: &mut Updates, update: Value| {
        let params = json!({ "sessionId": "", "update": update }).to_string();
        fold.record_relayed_plan(params.as_bytes());
    };
    let entry = |text: &str| json!({ "content": text, "priority": "high", "status": "pending" });
    push(&mut fold, json!({ "sessionUpdate": "plan", "entries": [entry("whole")] }));
    assert!(!fold.merges_plans());
    let items = json!({ "type": "items", "planId": "a", "entries": [entry("a1"), entry("a2")] });
    push(&mut fold, json!({ "sessionUpdate": "plan_update", "plan": items }));
    let document = json!({ "type": "markdown", "planId": "b", "content": "# B\n- [x] b1\n- b2" });
    push(&mut fold, json!({ "sessionUpdate": "plan_update", "plan": document }));
    assert!(fold.merges_plans());
    let whole = json!(["whole", "high", "pending"]);
    let of_b = [json!(["b1", "medium", "completed"]), json!(["b2", "medium", "pending"])];
    let of_a = [json!(["a1", "high", "pending"]), json!(["a2", "high", "pending"])];
    let all: Vec<_> = [whole.clone()].into_iter().chain(of_a).chain(of_b.clone()).collect();
    assert_eq!(merged(&fold), json!(all));
    push(&mut fold, json!({ "sessionUpdate": "plan_removed", "planId": "a" }));
    let left: Vec<_> = [whole].into_iter().chain(of_b).collect();
    assert_eq!(merged(&fold), json!(left));
}

#[test]
fn a_native_agents_own_updates_are_told_where_the_protocol_has_them() {
    let usage = json!({ "used": 1, "size": 2 });
    let commands = json!({ "availableCommands": [{ "name": "a", "description": "b" }] });
    let notice = json!({ "severity": "info", "title": "t" });
    let mut fold_of_own = updates();
    let out = fold(
        &mut fold_of_own,
        &run(vec![
            custom("usage_update", &usage),
            custom("available_commands_update", &commands),
            custom("notice", &notice),
            custom("usage_update", &json!({ "used": "many" })),
            custom("usage_update", &json!([1])),
            custom("mood", &json!({ "any": 1 })),
            Body::State(StateEvent::Output(Json::null())),
            Body::Opaque,
        ]),
    );
    let gates: Vec<_> = out.iter().map(|update| update.gate).collect();
    assert_eq!(gates, [Gate::Always, Gate::Always, Gate::Notices]);
    assert_eq!(
        parsed(&out[0].params)["update"],
        json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2 })
    );
}

#[test]
fn that_an_agent_does_not_remember_is_a_notice_or_a_message() {
    let forgot = custom("session_restarted", &json!({ "reason": "it was away." }));
    let (mut first, mut again) = (updates(), updates());
    let out = fold(&mut first, &run(vec![forgot.clone(), custom("session_restarted", &json!(1))]));
    let gates: Vec<_> = out.iter().map(|update| update.gate).collect();
    assert_eq!(gates, [Gate::Notices, Gate::NoNotices]);
    let told: Vec<_> = out.iter().map(|it| parsed(&it.params)["update"].clone()).collect();
    let about = "It was away. It has begun another one, and is told again what was said before.";
    let title = "The agent does not remember this session";
    assert_eq!(
        told[0],
        json!({ "sessionUpdate": "notice", "severity": "warning", "title": title, "description": about })
    );
    let id = told[1]["messageId"].as_str().unwrap();
    assert_eq!(told[1], chunk("agent_message", id, &text(&format!("{title}. {about}"))));
    // The same event always gives the same message, and each new event a new one.
    assert_eq!(fold(&mut again, &run(vec![forgot.clone()]))[1], out[1]);
    let twice = fold(&mut updates(), &run(vec![forgot.clone(), forgot]));
    assert_ne!(parsed(&twice[3].params)["update"]["messageId"], id);
}

#[test]
fn what_was_too_large_to_pass_on_is_a_notice_or_a_message() {
    let long = json!({ "limit": 100, "method": "session/update\u{1b}[2J" });
    let events = vec![
        custom("line_too_long", &long),
        custom("update_too_large", &json!({ "bytes": 200 })),
        custom("update_too_large", &json!({})),
    ];
    let out = fold(&mut updates(), &run(events));
    let gates: Vec<_> = out.iter().map(|update| update.gate).collect();
    assert_eq!(gates, [Gate::Notices, Gate::NoNotices, Gate::Notices, Gate::NoNotices]);
    let told: Vec<_> = out.iter().map(|it| parsed(&it.params)["update"].clone()).collect();
    let title = "Part of what the agent sent is missing";
    assert_eq!(told[0]["title"], title);
    let about = told[0]["description"].as_str().unwrap();
    assert!(about.contains("longer than 100 bytes") && about.contains("`max_line`"), "{about}");
    assert!(about.contains("session/update") && !about.contains('\u{1b}'), "{about}");
    let id = told[1]["messageId"].as_str().unwrap();
    assert_eq!(told[1], chunk("agent_message", id, &text(&format!("{title}. {about}"))));
    assert!(told[2]["description"].as_str().unwrap().contains("200 bytes"), "{}", told[2]);
}

#[test]
fn a_citation_is_a_link_behind_its_text() {
    let citation = Citation {
        url: Some("https://a/b".to_owned()),
        title: Some("B".to_owned()),
        description: Some("About.".to_owned()),
        ..Citation::default()
    };
    let cited = Part::text("so").with_metadata(PartMetadata::Citation(citation.clone()));
    let meta = json!({ "trilogue": { "citation": { "url": "https://a/b", "title": "B", "description": "About." } } });
    let link = json!({ "type": "resource_link", "uri": "https://a/b", "name": "B", "description": "About.", "_meta": meta });
    let told = render_updates(vec![message_started("m", Role::Agent), part("m", cited.clone())]);
    assert_eq!(
        told,
        [chunk("agent_message", "m", &text("so")), chunk("agent_message", "m", &link)]
    );
    let alone = Part::annotation(PartMetadata::Citation(citation));
    assert_eq!(render_updates(vec![part("m", alone)]), [chunk("agent_message", "m", &link)]);
    let book =
        Citation { title: Some("A book".to_owned()), start_index: Some(1), ..Citation::default() };
    let book = Part::annotation(PartMetadata::Citation(book));
    let mut words = text(" [A book]");
    words["_meta"] = json!({ "trilogue": { "citation": { "title": "A book", "start_index": 1 } } });
    assert_eq!(render_updates(vec![part("m", book)]), [chunk("agent_message", "m", &words)]);
    let mut with_meta = updates().with_extension(Extension::Meta);
    let told = fold(&mut with_meta, &run(vec![part("m", cited)]));
    assert_eq!(told.len(), 1);
    let meta = &parsed(&told[0].params)["update"]["content"]["_meta"]["trilogue"];
    assert_eq!(meta["part"]["metadata"]["kind"], "citation");
}

#[test]
fn steps_in_messages_are_thoughts_and_tool_calls() {
    let step = |message: Option<&str>, tool_name: Option<&str>, tool_output: Option<Value>| {
        let step = Trajectory {
            message: message.map(str::to_owned),
            tool_name: tool_name.map(str::to_owned),
            tool_input: tool_name.map(|_| json_of(&json!({ "q": 1 }))),
            tool_output: tool_output.as_ref().map(json_of),
        };
        part("m", Part::annotation(PartMetadata::Trajectory(step)))
    };
    let told = render_updates(vec![
        step(Some("hm"), None, None),
        step(None, Some("search"), None),
        step(None, Some("search"), Some(json!({ "hits": 2 }))),
        step(None, Some("other"), Some(json!(1))),
        step(None, Some("left"), None),
        run_ended(Outcome::Completed),
    ]);
    let kinds: Vec<_> = told
        .iter()
        .map(|update| (update["sessionUpdate"].as_str().unwrap(), update["status"].as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("agent_thought_chunk", None),
            ("tool_call", Some("in_progress")),
            ("tool_call_update", Some("completed")),
            ("tool_call", Some("in_progress")),
            ("tool_call_update", Some("completed")),
            ("tool_call", Some("in_progress")),
            ("tool_call_update", Some("completed")),
        ]
    );
    assert_eq!(told[1]["toolCallId"], told[2]["toolCallId"]);
    assert_ne!(told[1]["toolCallId"], told[3]["toolCallId"]);
    assert_eq!(told[2]["rawOutput"], json!({ "hits": 2 }));
    assert_eq!((&told[1]["name"], &told[1]["kind"]), (&json!("search"), &json!("search")));
}

#[test]
fn artifacts_have_their_name_as_address() {
    let told = render_updates(vec![
        part("m", Part::new("text/csv", Content::Text(Arc::from("1,2"))).with_name("a b.csv")),
        part("m", Part::bytes("application/pdf", "hi").with_name("a.pdf")),
    ]);
    assert_eq!(
        told[0]["content"],
        json!({ "type": "resource", "resource": { "uri": "artifact:a%20b.csv", "mimeType": "text/csv", "text": "1,2" } })
    );
    assert_eq!(
        told[1]["content"],
        json!({ "type": "resource", "resource": { "uri": "artifact:a.pdf", "mimeType": "application/pdf", "blob": "aGk=" } })
    );
}

#[test]
fn large_text_goes_on_in_the_next_chunk_and_large_content_is_a_link() {
    let long = "ä".repeat(700_000);
    let told = render_updates(vec![part("m", Part::text(long.as_str()))]);
    assert_eq!(told.len(), 2);
    let joined: String =
        told.iter().map(|update| update["content"]["text"].as_str().unwrap()).collect();
    assert_eq!(joined, long);
    assert!(told.iter().all(|update| update["messageId"] == "m"));
    let blob = |length| BlobRef { hash: [7; 32], length, is_text: false };
    assert!(updates().can_inline(&blob(8 * 1024 * 1024)));
    assert!(!updates().can_inline(&blob(8 * 1024 * 1024 + 1)));
    let told =
        render_updates(vec![part("m", Part::new("video/mp4", Content::Blob(blob(9_000_000))))]);
    let hash = "07".repeat(32);
    let link = json!({ "type": "resource_link", "uri": format!("trilogue:/threads/{THREAD}/blobs/{hash}"), "name": hash, "mimeType": "video/mp4", "size": 9_000_000 });
    assert_eq!(told[0]["content"], link);
    assert_eq!(
        render_updates(vec![part("m", Part::text(""))]),
        [chunk("agent_message", "m", &text(""))]
    );
}

#[test]
fn values_are_said_as_their_text_or_in_a_fence() {
    let created = |input: &Value| {
        Body::Run(RunEvent::Created {
            run: RunId::parse(RUN).unwrap(),
            agent: AgentName::parse("a").unwrap(),
            input: Some(json_of(input)),
            audit: None,
        })
    };
    let told = render_updates(vec![
        created(&json!({ "message": "hi" })),
        result(&json!({ "a": 1, "b": 2 })),
    ]);
    assert_eq!(told[0], chunk("user_message", input_id(RUN).as_str(), &text("hi")));
    assert_eq!(told[1]["content"], text("```json\n{\"a\":1,\"b\":2}\n```"));
    assert_eq!(told[1]["sessionUpdate"], "agent_message_chunk");
    assert_eq!(render_updates(vec![result(&json!("plain"))])[0]["content"], text("plain"));
}

#[test]
fn a_title_is_told_when_it_changes() {
    let metadata = |value: Value| Body::Thread(ThreadEvent::Metadata(json_of(&value)));
    let created = Body::Thread(ThreadEvent::Created {
        thread: ThreadId::parse(THREAD).unwrap(),
        metadata: json_of(&json!({ "trilogue.title": "A" })),
        copied_from: None,
    });
    let told = render_updates(vec![
        created,
        metadata(json!({ "trilogue.title": "A", "x": 1 })),
        metadata(json!({ "trilogue.title": "B" })),
        metadata(json!({})),
        metadata(json!({ "trilogue.title": 5 })),
    ]);
    let title = |title: Value| json!({ "sessionUpdate": "session_info_update", "title": title });
    assert_eq!(told, [title(json!("A")), title(json!("B")), title(json!(null))]);
}

#[test]
fn originals_are_given_on_in_their_place_and_results_are_not() {
    let original = |dialect: &str, bytes: &str| {
        Some(Original {
            dialect: Arc::from(dialect),
            version: VERSION,
            bytes: Bytes::from(bytes.to_owned()),
        })
    };
    let mut events = run(vec![
        delta("m", "typed"),
        Body::Opaque,
        custom("turn_result", &json!({})),
        delta("m", "other"),
    ]);
    events[0].original = original(
        UPDATE,
        r#"{"sessionId":"","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"T","own":1}}"#,
    );
    events[1].original =
        original(UPDATE, r#"{"sessionId":"","update":{"sessionUpdate":"future"}}"#);
    events[2].original = original(RESULT, "{}");
    events[3].original = original("another", "{}");
    let mut out = Vec::new();
    let mut fold = updates();
    for event in &events {
        fold.push(event, Some(RUN), &mut out);
    }
    let gates: Vec<_> = out.iter().map(|update| update.gate).collect();
    assert_eq!(gates, [Gate::Always, Gate::Opaque, Gate::Always]);
    let expected = format!(
        r#"{{"sessionId":"{THREAD}","update":{{"sessionUpdate":"tool_call","toolCallId":"c","title":"T","own":1}}}}"#
    );
    assert_eq!(out[0].params, expected.as_bytes());
    assert_eq!(parsed(&out[2].params)["update"]["content"], text("other"));
}

#[test]
fn ids_that_are_no_uuids_become_some_where_that_is_asked_for() {
    let mut as_uuids = Updates::with_ids(&ThreadId::parse(THREAD).unwrap(), IdFormat::Uuid);
    let out = fold(
        &mut as_uuids,
        &run(vec![delta("msg_1", "a"), delta("msg_1", "b"), delta("msg_2", "c")]),
    );
    let ids: Vec<_> = out
        .iter()
        .map(|update| parsed(&update.params)["update"]["messageId"].as_str().unwrap().to_owned())
        .collect();
    assert!(ids.iter().all(|id| uuid::Uuid::parse_str(id).is_ok()));
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[1], ids[2]);
}

#[test]
fn an_update_is_one_line() {
    let out = fold(&mut updates(), &run(vec![delta("m", "a\nb\u{2028}")]));
    let mut line = Vec::new();
    out[0].push_line_into(&mut line);
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(line.last(), Some(&b'\n'));
    let line = parsed(&line);
    assert_eq!((&line["jsonrpc"], &line["method"]), (&json!("2.0"), &json!("session/update")));
    assert_eq!(line["params"], parsed(&out[0].params));
}
