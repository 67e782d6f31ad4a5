//! A thread's state at its checkpoints, and which agents can continue it.

use trilogue_domain::{AgentName, CheckpointId, Code, Json, Outcome, ThreadId};
use trilogue_runtime::{RunRequest, StateContent, StateReader, ThreadChoice, ThreadPatch};
use trilogue_store::rows::ThreadRow;

use crate::fixture::{TestServer, alice, on, scope};

fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

fn counting(new: RunRequest) -> RunRequest {
    RunRequest { agent: AgentName::parse("counter").unwrap(), ..new }
}

async fn row(server: &TestServer, thread: &ThreadId) -> ThreadRow {
    server.store.thread(&scope(), thread).await.unwrap().unwrap()
}

fn state_text(state: &StateContent) -> String {
    match state {
        StateContent::Value(value) => value.as_str().to_owned(),
        StateContent::Messages(messages) => {
            messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("|")
        }
    }
}

async fn servers() -> [TestServer; 2] {
    [TestServer::memory().await, TestServer::sqlite().await]
}

#[tokio::test]
async fn a_checkpoint_has_what_was_set_last_or_what_was_said() {
    for server in servers().await {
        assert_eq!(
            server.runtime.state_at(&row(&server, &server.main).await, None).await.unwrap(),
            StateContent::Messages(Vec::new())
        );
        let scripts = ["say:one", "say:two", r#"set:{"n":1}"#, "say:three", r#"set:{"n":2}"#];
        for script in scripts {
            server.run(script, ThreadChoice::Existing(server.main.clone())).await;
        }
        let row = row(&server, &server.main).await;
        let path = server.store.path(&scope(), &server.main, None, 99).await.unwrap();
        let expected = [
            r#"{"n":2}"#,
            // An agent of messages continued with the messages.
            r#"say:one|one|say:two|two|set:{"n":1}|say:three|three"#,
            r#"{"n":1}"#,
            "say:one|one|say:two|two",
            "say:one|one",
        ];
        let states = server.runtime.states(&row, &path, usize::MAX).await.unwrap();
        assert_eq!(states.iter().map(state_text).collect::<Vec<_>>(), expected);
        for (checkpoint, state) in path.iter().zip(&states) {
            let one = server.runtime.state_at(&row, Some(checkpoint.key)).await.unwrap();
            assert_eq!(one, *state);
            let page = std::slice::from_ref(checkpoint);
            assert_eq!(
                server.runtime.states(&row, page, usize::MAX).await.unwrap(),
                std::slice::from_ref(state)
            );
        }
        assert_eq!(state_text(&server.runtime.state_at(&row, None).await.unwrap()), expected[0]);
        assert_eq!(server.runtime.states(&row, &[], usize::MAX).await.unwrap(), []);
    }
}

#[tokio::test]
async fn an_agent_with_a_state_hands_on_what_was_set_before_its_run() {
    for server in servers().await {
        server.run(r#"set:{"n":1}"#, ThreadChoice::Existing(server.main.clone())).await;
        server.submit(counting(on(&server.main, "say:x"))).await.settled.wait().await.unwrap();
        let row = row(&server, &server.main).await;
        let path = server.store.path(&scope(), &server.main, None, 9).await.unwrap();
        let states = server.runtime.states(&row, &path, usize::MAX).await.unwrap();
        assert_eq!(states.iter().map(state_text).collect::<Vec<_>>(), [r#"{"n":1}"#; 2]);
        assert_eq!(server.runtime.state_at(&row, None).await.unwrap(), states[0]);
    }
}

#[tokio::test]
async fn what_was_said_is_not_replaced_where_only_a_state_is_to_be() {
    for server in servers().await {
        let set = async |from: Option<CheckpointId>, only_where_set| {
            let values = Some(json(r#"{"n":1}"#));
            let patch = ThreadPatch { values, from, only_where_set, ..ThreadPatch::default() };
            let changed = server.runtime.patch_thread(&alice(), &server.main, patch).await;
            changed.map(|row| row.head).map_err(|error| error.to_string())
        };
        assert!(set(None, true).await.is_ok(), "nothing was said");
        let patched = server.store.path(&scope(), &server.main, None, 9).await.unwrap().remove(0);
        server.run("say:one", ThreadChoice::Existing(server.main.clone())).await;
        let refused = set(None, true).await.unwrap_err();
        assert!(refused.contains("what was said in it, and cannot be set"), "{refused}");
        let head = row(&server, &server.main).await;
        assert_eq!(state_text(&server.runtime.state_at(&head, None).await.unwrap()), "say:one|one");
        assert!(set(Some(patched.id), true).await.is_ok(), "that checkpoint has a state");
        server.run("say:two", ThreadChoice::Existing(server.main.clone())).await;
        assert!(set(None, false).await.is_ok(), "nobody asked for that");
        server.run(r#"set:{"n":2}"#, ThreadChoice::Existing(server.main.clone())).await;
        assert!(set(None, true).await.is_ok(), "the agent keeps a state");
    }
}

#[tokio::test]
async fn a_page_of_history_ends_before_the_state_that_is_too_large_for_it() {
    const SAID: usize = 10_000;
    for server in servers().await {
        let text = "x".repeat(SAID);
        for script in [r#"set:{"n":1}"#, &format!("say:{text}"), r#"set:{"n":2}"#] {
            server.run(script, ThreadChoice::Existing(server.main.clone())).await;
        }
        let row = row(&server, &server.main).await;
        let path = server.store.path(&scope(), &server.main, None, 9).await.unwrap();
        for (max_bytes, count) in [(0, 0), (100, 1), (SAID, 1), (SAID * 3, 3), (usize::MAX, 3)] {
            let states = server.runtime.states(&row, &path, max_bytes).await.unwrap();
            assert_eq!(states.len(), count, "within {max_bytes} bytes");
        }
        let said = path[1].key;
        let within = server.runtime.state_within(&row, Some(said), SAID).await.unwrap();
        assert_eq!(within, None);
        let whole = server.runtime.state_at(&row, Some(said)).await.unwrap();
        assert_eq!(
            server.runtime.state_within(&row, Some(said), SAID * 3).await.unwrap().as_ref(),
            Some(&whole)
        );
        let StateReader::Messages(mut reader) =
            server.runtime.read_state(&row, Some(said)).await.unwrap()
        else {
            panic!("the state is what was said");
        };
        let mut messages = Vec::new();
        while let Some(message) = reader.next().await.unwrap() {
            messages.push(message);
        }
        assert_eq!(StateContent::Messages(messages), whole);
    }
}

#[tokio::test]
async fn a_page_of_history_may_name_branches_and_any_order() {
    for server in servers().await {
        server.run("say:one", ThreadChoice::Existing(server.main.clone())).await;
        let base = server.store.path(&scope(), &server.main, None, 9).await.unwrap().remove(0);
        server.run("say:left", ThreadChoice::Existing(server.main.clone())).await;
        let left = server.store.path(&scope(), &server.main, None, 9).await.unwrap().remove(0);
        let back = ThreadPatch { from: Some(base.id.clone()), ..ThreadPatch::default() };
        server.runtime.patch_thread(&alice(), &server.main, back).await.unwrap();
        server.run("say:right", ThreadChoice::Existing(server.main.clone())).await;
        let row = row(&server, &server.main).await;
        let right = server.store.path(&scope(), &server.main, None, 9).await.unwrap().remove(0);
        let named = [base.clone(), left, right, base];
        let states = server.runtime.states(&row, &named, usize::MAX).await.unwrap();
        let expected = [
            "say:one|one",
            "say:one|one|say:left|left",
            "say:one|one|say:right|right",
            "say:one|one",
        ];
        assert_eq!(states.iter().map(state_text).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn an_agent_goes_on_only_with_a_state_that_fits_it() {
    for server in servers().await {
        let thread = server.thread().await;
        server.run(r#"set:{"m":1}"#, ThreadChoice::Existing(thread.clone())).await;
        // A head without a value keeps the one before it.
        server.run("say:x", ThreadChoice::Existing(thread.clone())).await;
        let new = counting(on(&thread, "state"));
        let error = server.runtime.submit(&alice(), new.clone()).await.map(|_| ()).unwrap_err();
        assert_eq!(error.code(), Code::StateIncompatible);
        assert_eq!(error.violated()[0].message, "'n' is missing");
        server.run(r#"set:{"n":1}"#, ThreadChoice::Existing(thread.clone())).await;
        let run = server.submit(new).await.settled.wait().await.unwrap();
        assert_eq!(server.output_text(&run).await, r#"{"n":1}"#);
        // Messages are not a value.
        let chat = server.thread().await;
        server.run("say:x", ThreadChoice::Existing(chat.clone())).await;
        server.submit(counting(on(&chat, "say:y"))).await.settled.wait().await.unwrap();
    }
}

/// A state that is accepted at submission can be refused at the run's turn.
#[tokio::test]
async fn a_queued_run_fails_where_the_one_before_it_left_another_state() {
    for server in servers().await {
        server.run(r#"set:{"n":1}"#, ThreadChoice::Existing(server.main.clone())).await;
        let first = server.submit(on(&server.main, r#"gate set:{"m":1}"#)).await;
        let second = server.submit(counting(on(&server.main, "state"))).await;
        server.agent.gate.add_permits(1);
        assert_eq!(first.settled.wait().await.unwrap().outcome, Some(Outcome::Completed));
        let ended = second.settled.wait().await.unwrap();
        let Some(Outcome::Failed(failure)) = &ended.outcome else { panic!("{ended:?}") };
        assert_eq!(failure.code, Code::StateIncompatible.as_str());
        assert_eq!(server.output_text(&ended).await, "");
    }
}

#[tokio::test]
async fn a_state_that_a_client_sets_fits_the_agent_of_the_newest_run() {
    for server in servers().await {
        let patch = |text| ThreadPatch { values: Some(json(text)), ..ThreadPatch::default() };
        let set = async |text| {
            let changed = server.runtime.patch_thread(&alice(), &server.main, patch(text)).await;
            changed.map(drop).map_err(|error| error.code())
        };
        assert_eq!(set(r#"{"m":1}"#).await, Ok(()), "nobody has said what fits");
        assert_eq!(set(r#"{"n":1}"#).await, Ok(()));
        server.submit(counting(on(&server.main, "say:x"))).await.settled.wait().await.unwrap();
        assert_eq!(set(r#"{"m":1}"#).await, Err(Code::StateInvalid));
        assert_eq!(set(r#"{"n":2}"#).await, Ok(()));
        server.run("say:x", ThreadChoice::Existing(server.main.clone())).await;
        assert_eq!(set(r#"{"m":1}"#).await, Ok(()), "this agent takes any");
    }
}

#[tokio::test]
async fn an_unknown_checkpoint_is_named_as_such() {
    let server = TestServer::memory().await;
    let from = trilogue_domain::CheckpointId::parse("none").unwrap();
    let patch = ThreadPatch { from: Some(from), ..ThreadPatch::default() };
    let error = server.runtime.patch_thread(&alice(), &server.main, patch).await.unwrap_err();
    assert_eq!(error.code(), Code::CheckpointNotFound);
}

#[tokio::test]
async fn agents_are_told_in_the_order_in_which_they_came_and_check_configurations() {
    let server = TestServer::memory().await;
    let names = |cards: Vec<&trilogue_domain::AgentCard>| -> Vec<String> {
        cards.into_iter().map(|card| card.name.to_string()).collect()
    };
    assert_eq!(names(server.runtime.all_agents()), ["script", "child", "private", "counter"]);
    assert_eq!(names(server.runtime.agents()), ["child", "counter", "private", "script"]);
    let check = |agent: &str, config| {
        let agent = AgentName::parse(agent).unwrap();
        server.runtime.check_config(&agent, &json(config)).map_err(|error| error.code())
    };
    assert_eq!(check("script", "{}"), Ok(()));
    assert_eq!(check("script", "1"), Err(Code::ConfigInvalid));
    assert_eq!(check("nobody", "{}"), Err(Code::AgentNotFound));
}
