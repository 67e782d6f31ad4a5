//! Sessions: one per thread, reopened after their process has ended, and never replaced without notice.

use std::time::Duration;

use serde_json::Value;
use trilogue_backends::agent_client::Processes;
use trilogue_backends::child::Budget;
use trilogue_domain::{Json, Principal, PrincipalId, RunStatus};
use trilogue_runtime::{CallError, ThreadChoice};

use super::rig::{HEARD, Rig, caller, json, settle, until};
use crate::harness::{failure, new_run, user_input};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

async fn pid(rig: &Rig, thread: &trilogue_domain::ThreadId) -> u32 {
    let run = rig.run(thread, "pid").await;
    rig.reply_text(&run).await.parse().unwrap()
}

/// Kills a process, and waits until the rig has noticed.
async fn kill(rig: &Rig, pid: u32) {
    let before = rig.children.count();
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
    until("the child is gone", || rig.children.count() < before).await;
}

#[tokio::test]
async fn a_thread_is_a_session_and_has_a_process_of_its_own() {
    let rig = Rig::new(&[]).await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    let first = pid(&rig, &one).await;
    assert_eq!(pid(&rig, &one).await, first);
    assert_ne!(pid(&rig, &two).await, first);
    let binding = rig.context(&one).await.binding().await.unwrap().unwrap();
    assert!(binding.remote.starts_with("scripted-"));
    let cwd = rig.folder.path().display().to_string();
    assert_eq!(binding.capabilities.to_value()["cwd"], cwd);
    let run = rig.run(&one, "session").await;
    let opening = parsed(&rig.reply_text(&run).await);
    assert_eq!((&opening["cwd"], &opening["mcpServers"]), (&cwd.into(), &serde_json::json!([])));
    rig.end().await;
}

#[tokio::test]
async fn threads_share_a_process_where_that_is_wanted() {
    let rig = Rig::with(&[], |launch| launch.processes = Processes::Shared).await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    let (first, second) = tokio::join!(pid(&rig, &one), pid(&rig, &two));
    assert_eq!(first, second);
    let (one, two) = tokio::join!(rig.run(&one, "chunks:200"), rig.run(&two, "count"));
    assert_eq!(rig.messages(&one).await.len(), 1);
    assert!(rig.reply_text(&two).await.parse::<usize>().is_ok());
    rig.end().await;
}

#[tokio::test]
async fn a_killed_agent_fails_its_run_and_the_next_one_loads_the_session() {
    for how in ["--load", "--resume"] {
        let rig = Rig::new(&[how, "--store", "{store}", "--commands"]).await;
        let run = rig
            .run(&rig.thread, "stderr:\u{1b}[31mthe disk is on fire\nsay:half\ntool-open\ncrash")
            .await;
        assert_eq!(run.status, RunStatus::Failed);
        let why = failure(&run);
        assert_eq!((&*why.code, why.transient), ("agent_lost", true));
        assert!(why.message.contains("was killed by signal 6"), "{}", why.message);
        assert!(
            why.message.ends_with("its standard error ends with: the disk is on fire"),
            "{}",
            why.message
        );
        let kinds: Vec<_> = rig.events(&run).await.iter().map(|event| event.body.name()).collect();
        assert_eq!(kinds[kinds.len() - 3..], ["message.completed", "tool.ended", "run.ended"]);

        let before = rig.context(&rig.thread).await.binding().await.unwrap().unwrap().remote;
        let run = rig.run(&rig.thread, "count").await;
        assert_eq!(run.status, RunStatus::Completed);
        // The agent remembers its output, and the log has none of it twice.
        let count: usize = rig.reply_text(&run).await.parse().unwrap();
        assert!(count > 4, "{count}");
        assert_eq!(rig.messages(&run).await.len(), 1);
        assert_eq!(rig.custom(&run, "session_restarted").await, Vec::<Json>::new());
        let after = rig.context(&rig.thread).await.binding().await.unwrap().unwrap().remote;
        assert_eq!(before, after);
        rig.end().await;
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_between_turns_loads_and_a_late_history_is_let_go_by() {
    for replay in ["before", "late", "never"] {
        let rig = Rig::new(&["--load", "--store", "{store}", "--replay", replay]).await;
        let first = rig.run(&rig.thread, "say:hello\npid").await;
        let said = rig.reply_text(&first).await;
        kill(&rig, said.lines().last().unwrap().parse().unwrap()).await;
        let run = rig.run(&rig.thread, "say:again").await;
        assert_eq!(rig.reply_text(&run).await, "again", "{replay}");
        let log = rig.log(&rig.thread).await;
        let hellos = log.iter().filter(|event| {
            event.original.as_ref().is_some_and(|it| super::rig::text_of(it).contains("hello"))
        });
        assert_eq!(hellos.count(), 1, "{replay}");
        rig.end().await;
    }
}

#[tokio::test]
async fn an_agent_that_cannot_remember_is_told_and_the_log_says_so() {
    for (flags, reason) in [
        (vec![], "cannot open its sessions again"),
        (vec!["--load"], "did not open its session again"),
        (vec!["--load", "--store", "{store}", "--load-error", "-32603"], "cannot be loaded"),
    ] {
        let rig = Rig::new(&flags).await;
        let first = rig.run(&rig.thread, "say:the answer is 42\npid").await;
        let said = rig.reply_text(&first).await;
        kill(&rig, said.lines().last().unwrap().parse().unwrap()).await;
        let run = rig.run(&rig.thread, "prompt").await;
        assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
        let prompt = rig.reply_text(&run).await;
        assert!(prompt.contains("the answer is 42"), "{prompt}");
        let restarted = rig.custom(&run, "session_restarted").await.remove(0).to_value();
        let why = restarted["reason"].as_str().unwrap();
        assert!(why.contains(reason), "{why}");
        // After the agent has received the conversation once, it does not receive it again.
        let run = rig.run(&rig.thread, "prompt").await;
        assert!(!rig.reply_text(&run).await.contains("the answer is 42"));
        rig.end().await;
    }
}

#[tokio::test]
async fn a_session_that_an_agent_forgot_while_it_ran_is_begun_again() {
    let rig = Rig::new(&[]).await;
    rig.run(&rig.thread, "say:first").await;
    let context = rig.context(&rig.thread).await;
    let closed =
        rig.sessions().call(Some(&context), &caller("{}"), "session/close", json("{}")).await;
    assert_eq!(closed, Ok(Json::empty_object()));
    let run = rig.run(&rig.thread, "prompt").await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    assert!(rig.reply_text(&run).await.contains("first"));
    assert_eq!(rig.custom(&run, "session_restarted").await.len(), 1);
    rig.end().await;
}

#[tokio::test]
async fn an_idle_process_is_stopped_whether_it_remembers_or_not() {
    for flags in [&["--load", "--store", "{store}"][..], &[]] {
        let rig = Rig::with(flags, |launch| {
            launch.idle_stop = Some(Duration::from_millis(50));
        })
        .await;
        let first = pid(&rig, &rig.thread).await;
        until("the process is stopped", || rig.children.count() == 0).await;
        let run = rig.run(&rig.thread, "pid").await;
        assert_ne!(rig.reply_text(&run).await.parse::<u32>().unwrap(), first);
        // An agent without memory gets the conversation, and the log reports that.
        let restarted = rig.custom(&run, "session_restarted").await.len();
        assert_eq!(restarted, usize::from(flags.is_empty()), "{flags:?}");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_process_goes_with_the_only_run_that_could_use_it() {
    for processes in [Processes::Thread, Processes::Shared] {
        let rig = Rig::with(&[], |launch| launch.processes = processes).await;
        for thread in [ThreadChoice::Ephemeral, ThreadChoice::Stateless] {
            let run = new_run("scripted", thread, user_input("say:hello"));
            let run = settle(rig.runtime.submit(&rig.by, run).await.unwrap()).await;
            assert_eq!(run.status, RunStatus::Completed);
            if processes == Processes::Thread {
                until("its process ends", || rig.children.count() == 0).await;
            } else {
                // Other threads may use this process. The agent is notified that the session is over.
                let record = rig.path(HEARD);
                let closed = || std::fs::read_to_string(&record).unwrap().contains("session/close");
                until("its session ends", closed).await;
            }
        }
        rig.end().await;
    }
}

#[tokio::test]
async fn all_agents_together_have_a_budget_and_the_longest_idle_makes_room() {
    let rig = Rig::new(&["--load", "--store", "{store}"]).await;
    let (one, two, three) = (rig.thread().await, rig.thread().await, rig.thread().await);
    let budget = Budget { max_processes: 2, ..Budget::default() };
    rig.children.set_budget(budget);
    let first = pid(&rig, &one).await;
    let second = pid(&rig, &two).await;
    assert_eq!((rig.children.count(), rig.children.idle_count()), (2, 2));
    pid(&rig, &three).await;
    assert_eq!(rig.children.count(), 2);
    assert_eq!(pid(&rig, &two).await, second, "the one that was idle longest went");
    assert_ne!(pid(&rig, &one).await, first);
    // Sessions in use stay.
    let busy = [rig.begin(&one, "slow").await, rig.begin(&two, "slow").await];
    until("both work", || rig.runtime.status().running == 2 && rig.children.idle_count() == 0)
        .await;
    let refused = rig.run(&three, "pid").await;
    assert_eq!(&*failure(&refused).code, "overloaded");
    for run in busy {
        let row = rig.store.run(&rig.by.scope(), &run.run.id).await.unwrap().unwrap();
        rig.cancel(&row).await;
    }
    until("both are idle", || rig.children.idle_count() == 2).await;
    // Memory is limited too: every process uses more than this.
    rig.children.set_budget(Budget { max_memory_bytes: 1024, ..Budget::default() });
    pid(&rig, &three).await;
    assert_eq!(rig.children.count(), 1);
    rig.end().await;
}

#[tokio::test]
async fn no_answer_names_the_session_by_the_agent_s_own_id() {
    let flags = ["--load", "--store", "{store}", "--config", "--names-session"];
    let rig = Rig::new(&flags).await;
    let context = rig.context(&rig.thread).await;
    let client = caller("{}");
    let params = || json(r#"{"cwd":"/tmp","mcpServers":[]}"#);
    for _ in 0..2 {
        let opened = rig.sessions().open(&context, &client, params()).await.unwrap();
        let opened = opened.to_value();
        assert!(opened["configOptions"].is_array() && opened.get("sessionId").is_none());
        let option = json(r#"{"configId":"model","value":"large"}"#);
        let method = "session/set_config_option";
        let set = rig.sessions().call(Some(&context), &client, method, option).await.unwrap();
        assert_eq!(set.to_value()["sessionId"], rig.thread.as_str());
        let pid = pid(&rig, &rig.thread).await;
        kill(&rig, pid).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn there_are_no_more_processes_than_allowed() {
    let rig = Rig::with(&["--load", "--store", "{store}"], |launch| launch.max_processes = 1).await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    let first = pid(&rig, &one).await;
    // The idle process makes space, and its session is reopened later.
    assert_ne!(pid(&rig, &two).await, first);
    assert_eq!(rig.children.count(), 1);
    assert_eq!(rig.run(&one, "count").await.status, RunStatus::Completed);
    let busy = rig.begin(&one, "slow").await;
    until("the agent works", || rig.runtime.status().running == 1).await;
    tokio::time::timeout(crate::harness::DEADLINE, async {
        loop {
            let run = rig.run(&two, "count").await;
            if run.status == RunStatus::Failed {
                let why = failure(&run);
                assert_eq!((&*why.code, why.transient), ("overloaded", true));
                return;
            }
        }
    })
    .await
    .unwrap();
    let run =
        rig.cancel(&rig.store.run(&rig.by.scope(), &busy.run.id).await.unwrap().unwrap()).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    rig.end().await;
}

#[tokio::test]
async fn one_principal_leaves_processes_of_an_agent_to_others() {
    let mut rig = Rig::with(&[], |launch| launch.max_processes = 4).await;
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let run = rig.run(&rig.thread().await, "permission").await;
        assert_eq!(run.status, RunStatus::Interrupted);
        waiting.push(run);
    }
    let thread = rig.thread().await;
    let why = failure(&rig.run(&thread, "say:x").await);
    assert_eq!((&*why.code, why.transient), ("overloaded", true), "{why:?}");
    assert!(why.message.contains("3 of the 4 processes"), "{why:?}");
    let bob = Principal { id: PrincipalId::parse("bob").unwrap(), ..rig.by.clone() };
    let alice = std::mem::replace(&mut rig.by, bob);
    let others = rig.run(&rig.thread().await, "say:x").await;
    assert_eq!(others.status, RunStatus::Completed, "{:?}", others.outcome);
    // One of its own that becomes idle makes room; those of others stay.
    rig.by = alice;
    rig.cancel(&waiting[0]).await;
    let run = rig.run(&thread, "say:x").await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    assert_eq!(rig.children.count(), 4);
    for run in &waiting[1..] {
        rig.cancel(run).await;
    }
    rig.end().await;
}

#[tokio::test]
async fn sessions_that_are_opened_at_once_wait_for_each_other() {
    let rig = Rig::with(&["--load", "--store", "{store}"], |launch| launch.max_processes = 2).await;
    let client = caller("{}");
    let cwd = rig.folder.path().display().to_string();
    let params = format!(r#"{{"cwd":"{cwd}","mcpServers":[],"sessionId":""}}"#);
    let mut threads = Vec::new();
    for _ in 0..8 {
        let thread = rig.thread().await;
        threads.push((rig.context(&thread).await, thread));
    }
    let opening =
        threads.iter().map(|(context, _)| rig.sessions().open(context, &client, json(&params)));
    for opened in futures_util::future::join_all(opening).await {
        opened.unwrap();
    }
    assert!(rig.children.count() <= 2);
    for (_, thread) in &threads {
        assert_eq!(rig.run(thread, "count").await.status, RunStatus::Completed);
    }
    rig.end().await;
}

#[tokio::test]
async fn a_client_of_the_same_protocol_opens_and_sets_and_closes() {
    let rig =
        Rig::new(&["--modes", "--config", "--commands", "--load", "--store", "{store}"]).await;
    let client = caller(r#"{"fs":{"readTextFile":true},"terminal":true}"#);
    let greeting = rig.sessions().greet(&client).await.unwrap().to_value();
    assert_eq!(greeting["agentInfo"]["name"], "scripted_agent");
    assert_eq!(greeting["agentCapabilities"]["_meta"]["scripted"], true);
    let thread = rig.thread().await;
    let context = rig.context(&thread).await;
    let cwd = rig.folder.path().display().to_string();
    let params = format!(
        r#"{{"cwd":"{cwd}","mcpServers":[{{"name":"m","command":"x","args":[],"env":[]}}],"sessionId":""}}"#
    );
    let opened = rig.sessions().open(&context, &client, json(&params)).await.unwrap().to_value();
    assert_eq!(opened["modes"]["currentModeId"], "ask");
    assert_eq!(opened.get("sessionId"), None);
    // The process that had only answered `initialize` has the session now.
    assert_eq!(rig.children.count(), 1);
    let again = rig.sessions().open(&context, &client, json(&params)).await.unwrap().to_value();
    assert_eq!(opened, again);

    let call = |method: &'static str, params: &'static str| {
        let (rig, context, client) = (&rig, &context, &client);
        async move { rig.sessions().call(Some(context), client, method, json(params)).await }
    };
    let set =
        call("session/set_config_option", r#"{"sessionId":"","configId":"model","value":"large"}"#);
    assert_eq!(set.await.unwrap().to_value()["configOptions"][0]["currentValue"], "large");
    assert_eq!(call("session/set_mode", r#"{"modeId":"code"}"#).await, Ok(Json::empty_object()));
    let unknown = call("_no/such", r#"{"sessionId":""}"#).await.unwrap_err();
    assert_eq!(unknown.code, CallError::METHOD_NOT_FOUND);
    let echo =
        call("_scripted/echo", r#"{"sessionId":"","b":1,"a":[2]}"#).await.unwrap().to_value();
    assert_eq!((&echo["b"], &echo["a"]), (&1.into(), &serde_json::json!([2])));
    let run = rig.run(&thread, "session").await;
    assert_eq!(parsed(&rig.reply_text(&run).await)["mcpServers"][0]["name"], "m");
    // The mode and the commands were logged outside of runs.
    let log = rig.log(&thread).await;
    let told: Vec<_> = log
        .iter()
        .filter(|event| event.run.is_none())
        .filter_map(|event| event.original.as_ref())
        .map(super::rig::text_of)
        .collect();
    assert!(told.iter().any(|it| it.contains("available_commands_update")), "{told:?}");
    assert!(told.iter().any(|it| it.contains(r#""currentModeId":"code""#)), "{told:?}");

    rig.sessions().close(&context).await;
    assert_eq!(rig.children.count(), 0);
    let run = rig.run(&thread, "session").await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(parsed(&rig.reply_text(&run).await)["mcpServers"][0]["name"], "m");
    rig.sessions().forget(&context).await;
    assert_eq!(rig.children.count(), 0);
    rig.end().await;
}

#[tokio::test]
async fn updates_that_overtake_the_answer_that_opens_a_session_are_not_lost() {
    let rig = Rig::new(&["--early-updates"]).await;
    rig.run(&rig.thread, "say:x").await;
    let log = rig.log(&rig.thread).await;
    let early = log.iter().filter_map(|event| event.original.as_ref()).map(super::rig::text_of);
    assert_eq!(early.filter(|it| it.contains("available_commands_update")).count(), 1);
    rig.end().await;
}
