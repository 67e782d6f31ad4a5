//! Questions that their askers withdraw.

use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Answer, Body, Code, Json, Resolution, RunStatus};
use trilogue_runtime::{AnswerTo, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page};

use crate::fixture::{TestServer, alice, scope, until};

#[tokio::test]
async fn nobody_is_asked_any_more_what_its_task_does_not_wait_for() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let choice = ThreadChoice::Existing(thread.clone());
        let run = server.run("say:a ask-until-gate say:b gate say:c", choice).await;
        assert_eq!(run.status, RunStatus::Interrupted);
        let filter = InterruptFilter { thread: None, run: Some(run.id.clone()), pending: true };
        let pending = async || {
            let page = Page::default();
            server.store.interrupts(&scope(), &filter, &page).await.unwrap().rows
        };
        let id = pending().await.remove(0).interrupt.id;
        server.agent.gate.add_permits(1);
        // It is withdrawn while the run is still active.
        until("it is withdrawn", || async { pending().await.is_empty() }).await;
        let row = server.store.interrupt(&scope(), &id).await.unwrap().unwrap();
        let withdrawn = Resolution::Withdrawn { reason: Code::InterruptResolved };
        assert_eq!(row.resolution.as_ref(), Some(&withdrawn));
        let at_work = server.store.run(&scope(), &run.id).await.unwrap().unwrap();
        assert_eq!(at_work.status, RunStatus::Running);
        let answer = Answer::Json(Json::parse("1").unwrap());
        let late = server.runtime.answer(&alice(), AnswerTo::Interrupt(id.clone()), answer).await;
        assert_eq!(late.unwrap_err().code(), Code::InterruptResolved);
        server.agent.gate.add_permits(1);
        until("it has ended", || async {
            let row = server.store.run(&scope(), &run.id).await.unwrap().unwrap();
            row.status == RunStatus::Completed
        })
        .await;
        assert_eq!(server.output_text(&run).await, "abc");
        let resolved = server.events(&run).await.into_iter().filter_map(|event| match event.body {
            Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution }) => {
                Some((interrupt, resolution))
            }
            _ => None,
        });
        assert_eq!(resolved.collect::<Vec<_>>(), [(id, withdrawn)]);
    }
}
