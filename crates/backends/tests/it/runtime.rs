//! Native agents through the real runtime, on the memory store.

use std::time::Duration;

use serde_json::json;
use trilogue_backends::builtin::{Echo, MailComposer, Researcher};
use trilogue_domain::{Code, RunStatus};
use trilogue_runtime::AnswerTo;
use trilogue_sdk::Effect;
use trilogue_sdk::prelude::*;

use super::harness::{DEADLINE, Harness, failure, native, user_input, value};

#[tokio::test]
async fn echo_answers_what_was_said() {
    let house = Harness::with(vec![native(Echo)]).await;
    let run = house.settle("echo", user_input("hello")).await;
    assert_eq!(run.status, RunStatus::Completed);
    let messages = house.messages(&run).await;
    let texts: Vec<_> =
        messages.iter().map(|message| (message.role.to_text(), message.text())).collect();
    let pair = |role: &str| (role.to_owned(), "hello".to_owned());
    assert_eq!(texts, [pair("user"), pair("agent/echo")]);
    assert!(messages.iter().all(|message| message.completed_at.is_some()));
}

#[tokio::test]
async fn a_mail_waits_for_its_approval_and_the_thread_remembers() {
    let agent = MailComposer::default();
    let house = Harness::with(vec![native(agent.clone())]).await;
    let order = "Write to alice@example.com that the meeting moves to Tuesday.";
    let run = house.settle("mailcomposer", user_input(order)).await;
    assert_eq!(run.status, RunStatus::Interrupted);
    // The agent got a value; the user's original text stays in the history.
    let said_first = house.messages(&run).await.remove(0);
    assert_eq!((said_first.role.is_user(), said_first.text().as_str()), (true, order));
    let wrong = Answer::Json(Json::from_value(&json!({ "approved": "perhaps" })));
    let to = AnswerTo::Interrupt(house.pending(&run).await.id);
    let refused = house.runtime.answer(&house.by, to, wrong).await;
    assert_eq!(refused.map(drop).map_err(|error| error.code()), Err(Code::AnswerInvalid));

    let no = json!({ "approved": false, "reason": "Tuesday is a holiday" });
    let run = house.answer(&run, Answer::Json(Json::from_value(&no))).await;
    assert_eq!(run.status, RunStatus::Completed);
    let reply = house.result(&run).await.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(reply.contains("Tuesday is a holiday"), "{reply}");
    assert!(agent.outbox().is_empty());

    let run = house.settle("mailcomposer", user_input(order)).await;
    let yes = Answer::Json(Json::from_value(&json!({ "approved": true })));
    let run = house.answer(&run, yes).await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(agent.outbox().len(), 1);

    house.settle("mailcomposer", user_input("My name is Ada.")).await;
    let run = house.settle("mailcomposer", user_input("What is my name?")).await;
    let reply = house.result(&run).await.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(reply.contains("Ada"), "{reply}");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_there_is_a_run() {
    let house = Harness::with(vec![native(MailComposer::default())]).await;
    let new = house.run("mailcomposer", value(&json!({ "message": 5 })));
    let refused = house.runtime.submit(&house.by, new).await.map(drop);
    assert_eq!(refused.map_err(|error| error.code()), Err(Code::InvalidInput));
    let thread = house.store.thread(&house.by.scope(), &house.thread).await.unwrap();
    assert!(thread.is_none());
}

#[tokio::test]
async fn a_research_is_logged_as_it_was_streamed() {
    let house = Harness::with(vec![native(Researcher::new(Duration::ZERO))]).await;
    let run = house.settle("researcher", user_input("Tell me about durable logs")).await;
    assert_eq!(run.status, RunStatus::Completed);
    let messages = house.messages(&run).await;
    let [_, answer] = messages.as_slice() else { panic!("{messages:?}") };
    assert!(answer.text().starts_with("I looked at 3 sources on durable logs. "));
    assert!(answer.parts.iter().any(|part| part.name.as_deref() == Some("report.md")));
}

#[tokio::test]
async fn a_research_that_is_cancelled_ends_as_cancelled() {
    let house = Harness::with(vec![native(Researcher::new(Duration::from_secs(3_600)))]).await;
    let new = house.run("researcher", user_input("durable logs"));
    let submitted = house.runtime.submit(&house.by, new).await.unwrap();
    house.runtime.cancel(&house.by, &submitted.run.id).await.unwrap();
    let settled = tokio::time::timeout(DEADLINE, submitted.settled.wait());
    assert_eq!(settled.await.unwrap().unwrap().status, RunStatus::Cancelled);
}

async fn guest(turn: Turn, context: Context) -> Result<(), AgentError> {
    match turn.text().as_str() {
        "ask" => {
            let question = Question::permission("May I come in?")
                .option("yes", "Yes", Effect::Allow)
                .option("no", "No", Effect::Reject);
            let decision = context.ask_permission(question).await?;
            context.text(format!("{} by {:?}", decision.allowed, decision.by)).await?;
        }
        "remember" => {
            let texts: Vec<_> = context.history().await?.iter().map(Message::text).collect();
            context.text(texts.join("|")).await?;
            context.commit().await?;
        }
        "fail" => {
            context.text("half").await?;
            return Err(AgentError::new("no_seats", "all seats are taken").transient());
        }
        "panic" => panic!("swordfish"),
        "much" => {
            for _ in 0..5_000 {
                context.text("0123456789").await?;
            }
            context.part(Part::bytes("image/png", vec![7_u8; 300_000])).await?;
        }
        other => context.text(other).await?,
    }
    Ok(())
}

#[tokio::test]
async fn asking_waits_inside_the_turn() {
    let house = Harness::with(vec![native(agent_fn("guest", "", guest))]).await;
    for (option, reply) in [("yes", "true"), ("no", "false")] {
        let run = house.settle("guest", user_input("ask")).await;
        assert_eq!(run.status, RunStatus::Interrupted);
        let run = house.answer(&run, Answer::Option(option.to_owned())).await;
        assert_eq!(run.status, RunStatus::Completed);
        let text = house.messages(&run).await.last().unwrap().text();
        assert!(text.starts_with(reply) && text.contains("alice"), "{text}");
    }
}

#[tokio::test]
async fn history_is_what_completed_runs_said() {
    let house = Harness::with(vec![native(agent_fn("guest", "", guest))]).await;
    house.settle("guest", user_input("one")).await;
    house.settle("guest", user_input("fail")).await;
    let run = house.settle("guest", user_input("remember")).await;
    assert_eq!(house.messages(&run).await.last().unwrap().text(), "one|one");
}

#[tokio::test]
async fn failures_keep_their_code_and_panics_their_text() {
    let house = Harness::with(vec![native(agent_fn("guest", "", guest))]).await;
    let run = house.settle("guest", user_input("fail")).await;
    let failed = failure(&run);
    assert_eq!((failed.code.as_str(), failed.transient), ("no_seats", true));
    let half = house.messages(&run).await.pop().unwrap();
    assert_eq!((half.text().as_str(), half.completed_at), ("half", None));

    let run = house.settle("guest", user_input("panic")).await;
    assert_eq!(failure(&run).code, "agent_panicked");
    let all = format!("{run:?} {:?}", house.events(&run).await);
    assert!(!all.contains("swordfish"), "{all}");
}

#[tokio::test]
async fn much_output_is_all_there_in_order() {
    let house = Harness::with(vec![native(agent_fn("guest", "", guest))]).await;
    let run = house.settle("guest", user_input("much")).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    let answer = house.messages(&run).await.pop().unwrap();
    assert_eq!(answer.text(), "0123456789".repeat(5_000));
    assert!(answer.parts.len() >= 2);
    let numbers: Vec<_> = house.events(&run).await.iter().map(|event| event.run_number).collect();
    assert!(numbers.iter().copied().eq(1..=run.last_run_number), "{}", run.last_run_number);
}
