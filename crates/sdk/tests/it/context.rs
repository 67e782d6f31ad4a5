//! Agents over a [`Recorder`].

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use trilogue_domain::event::{MessageEvent, StateEvent, ToolEvent};
use trilogue_domain::{AgentName, Body};
use trilogue_sdk::prelude::*;
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{
    Effect, InputKind, InterruptKind, MessageId, PartMetadata, PrincipalId, Resolution, Role,
    RunId, RunInfo, Survives, ThreadId, Timestamp, ToolStatus, run_turn,
};

struct Script<F>(F);

#[async_trait]
impl<F, T> Agent for Script<F>
where
    F: Fn(Context) -> T + Send + Sync + 'static,
    T: Future<Output = Result<Outcome, AgentError>> + Send,
{
    fn card(&self) -> Card {
        Card::chat("script", "")
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        (self.0)(context).await
    }
}

async fn run<F, T>(recorder: &Arc<Recorder>, script: F) -> Result<Outcome, AgentError>
where
    F: Fn(Context) -> T + Send + Sync + 'static,
    T: Future<Output = Result<Outcome, AgentError>> + Send,
{
    let info = RunInfo {
        run: RunId::generate(),
        thread: ThreadId::generate(),
        agent: AgentName::parse("script").unwrap(),
        config: Some(Json::from_value(&json!({ "style": "friendly" }))),
    };
    let turn = Turn::Start { input: Input::Messages(Vec::new()) };
    run_turn(&Script(script), turn, info, recorder.clone()).await
}

fn names(recorder: &Recorder) -> Vec<&'static str> {
    recorder.events().iter().map(Body::name).collect()
}

#[tokio::test]
async fn a_tool_call_names_the_message_that_triggered_it() {
    let recorder = Arc::new(Recorder::default());
    let script = |context: Context| async move {
        context.tool("before", "", json!(null)).await?.complete(json!(1)).await?;
        context.text("I look").await?;
        context.tool("inside", "", json!(null)).await?.complete(json!(1)).await?;
        context.say([Part::text("found")]).await?;
        context.tool("behind", "", json!(null)).await?.complete(json!(1)).await?;
        Ok(Outcome::Completed)
    };
    let input = Input::from("hello");
    let Input::Messages(messages) = &input else { panic!("{input:?}") };
    let asked = messages[0].id.clone();
    let info = RunInfo::sample("script").unwrap();
    run_turn(&Script(script), Turn::Start { input }, info, recorder.clone()).await.unwrap();
    let (mut said, mut triggers) = (Vec::new(), Vec::new());
    for event in recorder.events() {
        match event {
            Body::Message(MessageEvent::Started { message, .. }) => said.push(message),
            Body::Tool(ToolEvent::Started { message, .. }) => triggers.push(message),
            _ => {}
        }
    }
    assert_eq!(triggers, [Some(asked), Some(said[0].clone()), Some(said[1].clone())]);
}

#[tokio::test]
async fn text_opens_a_message_and_the_end_closes_it() {
    let recorder = Arc::new(Recorder::default());
    let outcome = run(&recorder, |context| async move {
        context.text("Hello, ").await?;
        context.text("").await?;
        context.text("world").await?;
        context.say([Part::text("second")]).await?;
        context.text("third").await?;
        Ok(Outcome::Completed)
    })
    .await;
    assert_eq!(outcome, Ok(Outcome::Completed));
    let said: Vec<_> = recorder.messages();
    let texts: Vec<_> = said.iter().map(Message::text).collect();
    assert_eq!(texts, ["Hello, world", "second", "third"]);
    let role = Role::NamedAgent("script".into());
    assert!(said.iter().all(|message| message.role == role && message.completed_at.is_some()));
    let second = &names(&recorder)[2..5];
    assert_eq!(second, ["message.delta", "message.completed", "message.started"]);
}

#[tokio::test]
async fn a_turn_that_fails_leaves_its_message_unfinished() {
    let recorder = Arc::new(Recorder::default());
    let outcome = run(&recorder, |context| async move {
        context.text("half").await?;
        Err(AgentError::new("out_of_words", "no more words"))
    })
    .await;
    assert_eq!(outcome.map_err(|error| error.code().to_owned()), Err("out_of_words".to_owned()));
    assert_eq!(names(&recorder), ["message.started", "message.delta"]);
}

#[tokio::test]
async fn citations_cover_the_words_in_characters() {
    let recorder = Arc::new(Recorder::default());
    run(&recorder, |context| async move {
        context.text("Schön: ").await?;
        context.cite("das Meer", Source::url("https://example.org/").title("Meer")).await?;
        context.artifact("note.txt", Part::text("counted too")).await?;
        context.artifact("image.png", Part::bytes("image/png", "not counted")).await?;
        context.text(" ist ").await?;
        context.cite("blau", Source::titled("Farben")).await?;
        Ok(Outcome::Completed)
    })
    .await
    .unwrap();
    let message = recorder.messages().remove(0);
    // The citation index counts characters of all text parts, including artifacts.
    let text: String = message.parts.iter().filter_map(Part::as_text).collect();
    assert_eq!(text, "Schön: das Meercounted too ist blau");
    let text: Vec<char> = text.chars().collect();
    let cited: Vec<String> = message
        .parts
        .iter()
        .filter_map(|part| match &part.metadata {
            Some(PartMetadata::Citation(citation)) => Some(citation),
            _ => None,
        })
        .map(|citation| {
            let start = usize::try_from(citation.start_index.unwrap()).unwrap();
            let end = usize::try_from(citation.end_index.unwrap()).unwrap();
            text[start..end].iter().collect()
        })
        .collect();
    assert_eq!(cited, ["das Meer", "blau"]);
}

#[tokio::test]
async fn a_message_is_repeated_with_its_parts_and_its_own_times() {
    let at = |micros| Some(Timestamp::from_micros(micros));
    let original = Message {
        id: MessageId::generate(),
        role: Role::User,
        parts: vec![
            Part::text("Howdy!"),
            Part::bytes("image/png", "x").with_name("a.png"),
            Part::url("application/pdf", "https://example.org/a.pdf"),
        ],
        created_at: at(1_700_000_000_133_102),
        completed_at: None,
    };
    let bare = Message { parts: Vec::new(), completed_at: at(7), ..original.clone() };
    let recorder = Arc::new(Recorder::default());
    let messages = [original, bare];
    let said = messages.clone();
    run(&recorder, move |context| {
        let said = said.clone();
        async move {
            context.text("open").await?;
            for message in &said {
                context.repeat(message).await?;
            }
            Ok(Outcome::Completed)
        }
    })
    .await
    .unwrap();
    let repeated = recorder.messages().split_off(1);
    assert_eq!(repeated.len(), 2);
    for (repeated, original) in repeated.iter().zip(&messages) {
        assert_ne!(repeated.id, original.id);
        assert_eq!(repeated.role, Role::NamedAgent("script".into()));
        assert_eq!(repeated.parts, original.parts);
        assert_eq!(repeated.created_at, original.created_at);
        assert_eq!(repeated.completed_at, original.completed_at);
    }
    assert_eq!(names(&recorder)[2], "message.completed", "the open message is closed before");
}

#[tokio::test(start_paused = true)]
async fn a_wait_takes_its_time_and_ends_at_once_when_the_run_is_cancelled() {
    let recorder = Arc::new(Recorder::default());
    let begun = tokio::time::Instant::now();
    let outcome = run(&recorder, |context| async move {
        context.wait(Duration::from_secs(1)).await?;
        Ok(Outcome::Completed)
    })
    .await;
    assert_eq!(outcome, Ok(Outcome::Completed));
    assert_eq!(begun.elapsed(), Duration::from_secs(1));

    let cancelling = Arc::clone(&recorder);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        cancelling.cancel();
    });
    let begun = tokio::time::Instant::now();
    let outcome = run(&recorder, |context| async move {
        context.wait(Duration::from_secs(3_600)).await?;
        Ok(Outcome::Completed)
    })
    .await;
    assert!(outcome.unwrap_err().is_stopped());
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_message_can_be_asked_for_without_a_word_and_may_have_no_parts() {
    let by = PrincipalId::parse("alice").unwrap();
    let answer = Answer::Message(Vec::new());
    let recorder = Recorder::default().answering(Resolution::Answered {
        by,
        answer,
        digest: String::new(),
        extra: None,
    });
    let recorder = Arc::new(recorder);
    run(&recorder, |context| async move {
        assert_eq!(context.ask_message("").await?, []);
        Ok(Outcome::Completed)
    })
    .await
    .unwrap();
    assert_eq!(recorder.questions()[0].kind, InterruptKind::Message);
    assert_eq!(recorder.questions()[0].prompt, []);

    let Outcome::Suspended { interrupt, .. } =
        Outcome::suspended(Question::message(""), ()).unwrap()
    else {
        panic!("it is suspended");
    };
    assert_eq!(interrupt.prompt, []);
}

#[tokio::test]
async fn what_is_dropped_unfinished_is_closed_at_the_end() {
    let recorder = Arc::new(Recorder::default());
    run(&recorder, |context| async move {
        let mut message = context.message().await?;
        message.text("open").await?;
        drop(message);
        drop(context.tool("search", "Searching", json!({ "q": 1 })).await?);
        context.tool("read", "Reading", json!(null)).await?.complete(json!("done")).await?;
        Ok(Outcome::Completed)
    })
    .await
    .unwrap();
    assert!(recorder.messages()[0].completed_at.is_some());
    let ends: Vec<_> = recorder
        .events()
        .into_iter()
        .filter_map(|body| match body {
            Body::Tool(ToolEvent::Ended { status, output, .. }) => Some((status, output)),
            _ => None,
        })
        .collect();
    let done = Some(Json::from_value(&json!("done")));
    assert_eq!(ends, [(ToolStatus::Completed, done), (ToolStatus::Failed, None)]);
}

#[tokio::test]
async fn several_tasks_speak_through_a_log_that_is_behind() {
    // Room for three events at a time, so nearly every event has to wait.
    let recorder = Arc::new(Recorder::with_capacity(3));
    let script = |context: Context| async move {
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let context = context.clone();
                tokio::spawn(async move {
                    for word in 0..25 {
                        context.text(format!("{task}.{word} ")).await?;
                        if word == 10 {
                            context.say([Part::text("own")]).await?;
                        }
                    }
                    Ok::<_, AgentError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.map_err(|_| AgentError::agent_failed("a task was lost"))??;
        }
        Ok(Outcome::Completed)
    };
    let mut events = Vec::new();
    let running = run(&recorder, script);
    tokio::pin!(running);
    let outcome = loop {
        tokio::select! {
            outcome = &mut running => break outcome,
            () = tokio::task::yield_now() => events.extend(recorder.take()),
        }
    };
    events.extend(recorder.take());
    assert_eq!(outcome, Ok(Outcome::Completed));

    let mut open = std::collections::HashSet::new();
    let mut words = vec![Vec::new(); 4];
    for body in events {
        match body {
            Body::Message(MessageEvent::Started { message, .. }) => assert!(open.insert(message)),
            Body::Message(MessageEvent::Completed { message }) => assert!(open.remove(&message)),
            Body::Message(MessageEvent::Part { message, .. }) => assert!(open.contains(&message)),
            Body::Message(MessageEvent::Delta { message, text }) => {
                assert!(open.contains(&message), "'{text}' was said outside of its message");
                let (task, word) = text.trim().split_once('.').unwrap();
                words[task.parse::<usize>().unwrap()].push(word.parse::<usize>().unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty());
    assert!(words.iter().all(|said| said.iter().copied().eq(0..25)), "{words:?}");
}

#[tokio::test]
async fn a_permission_is_never_given_by_a_time_out() {
    let answered = |option: &str| Resolution::Answered {
        by: PrincipalId::parse("alice").unwrap(),
        answer: Answer::Option(option.to_owned()),
        digest: String::new(),
        extra: None,
    };
    let dismissed = Resolution::Answered {
        by: PrincipalId::parse("alice").unwrap(),
        answer: Answer::Json(Json::null()),
        digest: String::new(),
        extra: None,
    };
    let timed_out = |option: &str| Resolution::TimedOut { option: Some(option.to_owned()) };
    for (resolution, allowed) in [
        (answered("allow"), true),
        (answered("reject"), false),
        (dismissed, false),
        (timed_out("reject"), false),
        (timed_out("allow"), false),
    ] {
        let recorder = Arc::new(Recorder::default().answering(resolution.clone()));
        run(&recorder, move |context| async move {
            let decision = context.ask_permission(Question::permission("May I?")).await?;
            assert_eq!(decision.allowed, allowed);
            Ok(Outcome::Completed)
        })
        .await
        .unwrap();
        let asked = recorder.questions().remove(0);
        assert_eq!(asked.survives, Survives::Process);
        let effects: Vec<_> = asked.options.iter().map(|option| option.effect).collect();
        assert_eq!(effects, [Effect::Allow, Effect::Reject], "{resolution:?}");
    }
}

#[tokio::test]
async fn answers_come_back_typed_and_cancelled_questions_stop_the_agent() {
    let by = PrincipalId::parse("alice").unwrap();
    let answered = |answer| Resolution::Answered {
        by: by.clone(),
        answer,
        digest: String::new(),
        extra: None,
    };
    let recorder = Recorder::default()
        .answering(answered(Answer::Json(Json::from_value(&json!({ "seats": 4 })))))
        .answering(answered(Answer::Message(vec![Part::text("by the window")])))
        .answering(Resolution::Cancelled);
    let recorder = Arc::new(recorder);
    let outcome = run(&recorder, |context| async move {
        #[derive(serde::Deserialize, JsonSchema)]
        struct Table {
            seats: u32,
        }
        let table: Table = context.ask_form("How many seats?").await?;
        let place = context.ask_text("Where?").await?;
        assert_eq!((table.seats, place.as_str()), (4, "by the window"));
        context.ask_message("Anything else?").await?;
        Ok(Outcome::Completed)
    })
    .await;
    assert!(outcome.unwrap_err().is_stopped());
    let form = recorder.questions()[0].schema.as_ref().map(Json::to_value).unwrap();
    assert_eq!(form["required"], json!(["seats"]));
}

#[tokio::test]
async fn a_function_is_an_agent_and_a_recorder_runs_it() {
    let parrot = agent_fn("parrot", "Repeats your message.", |turn, context| async move {
        context.result(("said", turn.text())).await
    });
    let recorder = Recorder::default();
    assert_eq!(recorder.run(&parrot, "hello").await, Ok(Outcome::Completed));
    assert_eq!(recorder.output().map(|it| it.to_value()), Some(json!(["said", "hello"])));
    let typed = parrot.with_card(Card::schema("typed", "Takes text.", schema_of::<String>()));
    assert!(matches!(typed.card().build().unwrap().input, InputKind::Schema(_)));

    let waits = agent_fn("waits", "Asks, and waits.", |_, _| async move {
        Outcome::suspended(Question::form("How many?", schema_of::<u32>()), 1)
    });
    let outcome = recorder.run(&waits, json!({})).await.unwrap();
    assert!(matches!(outcome, Outcome::Suspended { saved, .. } if saved.as_str() == "1"));

    // A value that cannot be written as JSON is an error, not an empty value.
    let broken = std::collections::HashMap::from([([1], "no text is its key")]);
    let question = Question::custom("odd").payload(&broken);
    assert!(Outcome::suspended(question, ()).is_err());
    assert!(Outcome::suspended(Question::custom("odd"), &broken).is_err());
}

#[tokio::test]
async fn state_configuration_and_stopping_are_seen() {
    #[derive(serde::Deserialize, Default)]
    struct Config {
        style: String,
    }
    #[derive(serde::Deserialize, serde::Serialize, Default)]
    struct Count {
        runs: u32,
    }
    let state = Json::from_value(&json!({ "runs": 41 }));
    let recorder = Arc::new(Recorder::default().with_state(state));
    let watched = Arc::clone(&recorder);
    let outcome = run(&recorder, move |context| {
        let recorder = Arc::clone(&watched);
        async move {
            assert_eq!(context.config::<Config>()?.style, "friendly");
            let mut count: Count = context.state().await?;
            count.runs += 1;
            context.set_state(serde_json::to_value(count)?).await?;
            assert_eq!(context.state::<Count>().await?.runs, 42);
            assert!(!context.is_cancelled());
            recorder.cancel();
            context.cancelled().await;
            recorder.stop();
            context.text("not heard").await?;
            Ok(Outcome::Completed)
        }
    })
    .await;
    assert!(outcome.unwrap_err().is_stopped());
    let state = Json::from_value(&json!({ "runs": 42 }));
    assert_eq!(recorder.events(), [Body::State(StateEvent::Values(state))]);
}

#[tokio::test]
async fn output_grows_until_there_is_a_result() {
    let recorder = Arc::new(Recorder::default());
    let seen = Arc::clone(&recorder);
    run(&recorder, move |context| {
        let seen = Arc::clone(&seen);
        async move {
            assert_eq!(seen.output(), None);
            for message in ["Hello", "Hello, how"] {
                context.output_so_far(json!({ "message": message })).await?;
                let shown = seen.output().map(|output| output.to_value());
                assert_eq!(shown, Some(json!({ "message": message })));
            }
            context.custom("words", json!({ "said": 2 })).await?;
            context.result(json!({ "message": "Hello!" })).await?;
            Ok(Outcome::Completed)
        }
    })
    .await
    .unwrap();
    assert_eq!(recorder.output(), Some(Json::from_value(&json!({ "message": "Hello!" }))));
    let update = ("words".to_owned(), Json::from_value(&json!({ "said": 2 })));
    assert_eq!(recorder.updates(), [update]);
    assert_eq!(names(&recorder), ["state.output", "state.output", "state.custom", "run.result"]);
}

#[test]
fn a_suspension_survives_a_restart() {
    let question = Question::custom("approval").payload(json!({ "amount": 5 }));
    let Outcome::Suspended { interrupt, saved } =
        Outcome::suspended(question, json!({ "at": 2 })).unwrap()
    else {
        panic!("it is suspended");
    };
    assert_eq!(interrupt.survives, Survives::Restart);
    assert_eq!(saved.to_value(), json!({ "at": 2 }));
}
