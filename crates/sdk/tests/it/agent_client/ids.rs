//! Message ids: sent, recorded or not, and known by an alias; and how they group messages.

use serde_json::{Value, json};
use trilogue_sdk::agent_client::{Client, Options, RejectAll, SessionOptions, Speaker, TurnEnd};

use super::{Agent, connect, pipes, quiet_session, session_with};

/// Sends one prompt. `by` maps the sent id to the id in the agent's response. Returns the sent id and the end of the turn.
async fn acknowledged(by: impl Fn(&Value) -> Value) -> (String, TurnEnd) {
    let (session, mut agent) = quiet_session().await;
    let turn = session.prompt("hi").await.unwrap();
    let sent = turn.message_id().unwrap().to_owned();
    let (id, params) = agent.read_request("session/prompt").await;
    assert_eq!(params["messageId"], sent.as_str());
    assert_eq!(params["prompt"], json!([{ "type": "text", "text": "hi" }]));
    let mut result = json!({ "stopReason": "end_turn", "unknown": [1.0] });
    if let Some(id) = Some(by(&params["messageId"])).filter(|id| *id != json!("leave out")) {
        result["userMessageId"] = id;
    }
    agent.answer(&id, &result).await;
    let ended = turn.finish().await.unwrap();
    assert!(ended.original.as_str().contains("[1.0]"));
    (sent, ended)
}

#[tokio::test]
async fn an_id_is_recorded_where_the_agent_says_the_same_and_only_there() {
    let (sent, ended) = acknowledged(Value::clone).await;
    assert_eq!(uuid::Uuid::parse_str(&sent).unwrap().get_version_num(), 4);
    assert_eq!((ended.user_message_id, ended.alias), (Some(sent), None));

    for none in [json!("leave out"), Value::Null, json!(7)] {
        let (_, ended) = acknowledged(|_| none.clone()).await;
        assert_eq!((ended.user_message_id, ended.alias), (None, None), "{none}");
    }

    let (sent, ended) = acknowledged(|_| json!("msg_1")).await;
    assert_eq!((ended.user_message_id.as_deref(), ended.alias), (Some("msg_1"), Some(sent)));
}

#[tokio::test]
async fn no_id_is_sent_where_that_is_turned_off_and_a_given_one_always() {
    let options = Options { sends_message_ids: false, ..Options::default() };
    let (session, mut agent) = session_with(json!({}), RejectAll, options).await;
    let turn = session.prompt("hi").await.unwrap();
    let (id, params) = agent.read_request("session/prompt").await;
    assert_eq!(params.get("messageId"), None);
    agent.answer(&id, &json!({ "stopReason": "end_turn", "userMessageId": "theirs" })).await;
    let ended = turn.finish().await.unwrap();
    assert_eq!((ended.user_message_id.as_deref(), ended.alias), (Some("theirs"), None));

    let prompt = trilogue_sdk::agent_client::Prompt::from("hi").with_message_id("mine");
    let turn = session.prompt(prompt).await.unwrap();
    let (id, params) = agent.read_request("session/prompt").await;
    assert_eq!(params["messageId"], "mine");
    agent.answer(&id, &json!({ "stopReason": "end_turn" })).await;
    turn.finish().await.unwrap();
}

#[tokio::test]
async fn two_messages_of_the_agent_in_a_row_are_two() {
    let (session, mut agent) = quiet_session().await;
    let turn = session.prompt("hi").await.unwrap();
    let (id, _) = agent.read_request("session/prompt").await;
    for (kind, id, text) in [
        ("agent_thought_chunk", "t", "hm"),
        ("agent_message_chunk", "a", "one "),
        ("agent_message_chunk", "a", "still one"),
        ("agent_message_chunk", "b", "two"),
    ] {
        agent.chunk(kind, id, text).await;
    }
    agent.answer(&id, &json!({ "stopReason": "end_turn" })).await;
    let (_, messages) = turn.collect().await.unwrap();
    let said: Vec<_> = messages
        .as_slice()
        .iter()
        .map(|message| (message.speaker, message.id.as_deref().unwrap(), message.text()))
        .collect();
    let of = |speaker, id, text: &str| (speaker, id, text.to_owned());
    assert_eq!(
        said,
        [
            of(Speaker::Thought, "t", "hm"),
            of(Speaker::Agent, "a", "one still one"),
            of(Speaker::Agent, "b", "two")
        ]
    );
}

#[tokio::test]
async fn a_turn_is_another_message_even_without_ids() {
    let (session, mut agent) = quiet_session().await;
    let mut numbers = Vec::new();
    for _ in 0..2 {
        let mut turn = session.prompt("hi").await.unwrap();
        let (id, _) = agent.read_request("session/prompt").await;
        agent.chunk("agent_message_chunk", "", "the same").await;
        agent.answer(&id, &json!({ "stopReason": "end_turn" })).await;
        let piece = turn.next().await.unwrap().unwrap().message.unwrap();
        assert!(piece.is_first);
        numbers.push(piece.number);
        assert_eq!(turn.next().await.unwrap(), None);
    }
    assert_ne!(numbers[0], numbers[1]);
}

async fn load(agent: &mut Agent, replayed: &[(&str, &str, &str)]) {
    let (id, params) = agent.read_request("session/load").await;
    assert_eq!(params, json!({ "sessionId": "s", "cwd": "/work", "mcpServers": [] }));
    for (kind, id, text) in replayed {
        agent.chunk(kind, id, text).await;
    }
    agent.answer(&id, &Value::Null).await;
}

/// OpenCode records the client's ids and replays its own.
#[tokio::test]
async fn a_replayed_message_is_known_by_its_id_or_by_its_place_and_words() {
    let (client, mut agent) =
        connect(json!({ "loadSession": true }), RejectAll, Options::default()).await;
    let client: Client = client.unwrap();
    let opened = client.new_session(SessionOptions::new("/work"));
    let (session, ()) = tokio::join!(opened, async {
        let (id, _) = agent.read_request("session/new").await;
        agent.answer(&id, &json!({ "sessionId": "s" })).await;
    });
    let session = session.unwrap();
    let mut recorded = Vec::new();
    for text in ["first", "second"] {
        let turn = session.prompt(text).await.unwrap();
        let (id, params) = agent.read_request("session/prompt").await;
        let result = json!({ "stopReason": "end_turn", "userMessageId": params["messageId"] });
        agent.answer(&id, &result).await;
        recorded.push(turn.finish().await.unwrap().user_message_id.unwrap());
    }
    let known = session.user_messages();
    assert_eq!(known.ids().collect::<Vec<_>>(), recorded);
    drop(session);

    let opening = SessionOptions::new("/work").user_messages(known);
    let mut loading = client.load_session("s", opening).await.unwrap();
    let first = recorded[0].as_str();
    let replay = [
        ("user_message_chunk", first, "first"),
        ("agent_message_chunk", "a", "answer"),
        ("user_message_chunk", "msg_2", "sec"),
        ("user_message_chunk", "msg_2", "ond"),
        ("user_message_chunk", "msg_3", "never said here"),
    ];
    load(&mut agent, &replay).await;
    let mut known_as = Vec::new();
    while let Some(update) = loading.next().await.unwrap() {
        known_as.push(update.message.unwrap().known_as);
    }
    assert_eq!(known_as, [Some(first.to_owned()), None, None, None, None]);
    let users = loading.finish().await.unwrap().user_messages();
    assert_eq!(users.canonical("msg_2"), Some(recorded[1].as_str()));
    assert_eq!(users.canonical("msg_3"), None);
    assert_eq!(users.canonical(&recorded[1]), Some(recorded[1].as_str()));
}

#[tokio::test]
async fn ids_that_cannot_be_read_are_none_and_the_content_stays() {
    let (session, mut agent) = quiet_session().await;
    let mut turn = session.prompt("hi").await.unwrap();
    let (id, _) = agent.read_request("session/prompt").await;
    for strange in [json!(7), Value::Null, json!({})] {
        let content = json!({ "type": "text", "text": "x" });
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content, "messageId": strange });
        agent.update("s", &update).await;
    }
    agent.answer(&id, &json!({ "stopReason": "end_turn" })).await;
    let mut pieces = Vec::new();
    while let Some(update) = turn.next().await.unwrap() {
        assert_eq!(update.text(), "x");
        pieces.push(update.message.unwrap());
    }
    assert!(pieces.iter().all(|piece| piece.id.is_none() && piece.number == pieces[0].number));
    assert_eq!(pieces.len(), 3);
    drop(pipes());
}
