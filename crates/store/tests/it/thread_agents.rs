//! Threads by agent: the agent in their metadata, and the agents of their runs.

use serde_json::{Value, json};
use trilogue_domain::thread::AGENT_MEMBER;
use trilogue_domain::{AgentName, Scope};
use trilogue_store::Change;
use trilogue_store::rows::ThreadFilter;

use crate::harness::{World, agent, alice, contract, own_scope, page, tenant_scope, thread_row};

contract!(
    a_thread_is_of_the_agents_that_ran_in_it_and_of_the_one_it_names,
    what_goes_takes_its_agent_along,
    threads_of_an_agent_have_pages_and_stay_their_owners,
    ephemeral_threads_are_not_listed_by_agent,
);

const NONE: [&str; 0] = [];

async fn threads_of_agent(world: &World, scope: &Scope, name: &str) -> Vec<String> {
    let filter = ThreadFilter { agent: Some(agent(name)), ..ThreadFilter::default() };
    let listing = world.store.threads(scope, &filter, &page(100, None)).await.unwrap();
    listing.rows.into_iter().map(|row| row.id.to_string()).collect()
}

fn naming(name: &Value) -> trilogue_domain::Json {
    crate::harness::json(&json!({ AGENT_MEMBER: name, "other": [1] }))
}

fn other() -> AgentName {
    agent("other")
}

async fn a_thread_is_of_the_agents_that_ran_in_it_and_of_the_one_it_names(world: World) {
    let mut ran = world.thread("ran").await;
    let run = ran.start("a").await;
    ran.end(run).await;
    assert_eq!(threads_of_agent(&world, &alice(), "echo").await, ["ran"]);
    let mut second = ran.run_row("b");
    second.agent = other();
    ran.step().run(&second).commit().await.unwrap();
    let mut named = thread_row(world.store.next_thread_key(), &alice(), "named");
    named.metadata = naming(&json!("other"));
    world.create(named).await.unwrap();
    for (number, name) in
        [json!("Not A Name"), json!(7), json!(["other"]), json!(null)].iter().enumerate()
    {
        let mut row = thread_row(world.store.next_thread_key(), &alice(), &format!("no-{number}"));
        row.metadata = naming(name);
        world.create(row).await.unwrap();
    }
    assert_eq!(threads_of_agent(&world, &alice(), "echo").await, ["ran"]);
    assert_eq!(threads_of_agent(&world, &alice(), "other").await, ["named", "ran"]);
    assert_eq!(threads_of_agent(&world, &alice(), "third").await, NONE);
    // Combined with a condition on metadata.
    let filter = ThreadFilter {
        agent: Some(other()),
        metadata: vec![(AGENT_MEMBER.to_owned(), "\"other\"".to_owned())],
        ..ThreadFilter::default()
    };
    let listing = world.store.threads(&alice(), &filter, &page(9, None)).await.unwrap();
    assert_eq!(listing.rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["named"]);
}

async fn what_goes_takes_its_agent_along(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("a").await;
    for (name, is_other) in [(json!("other"), true), (json!("third"), false), (json!(null), false)]
    {
        log.row.metadata = naming(&name);
        let row = log.row.clone();
        log.write([Change::Thread(row)]).await;
        assert_eq!(threads_of_agent(&world, &alice(), "echo").await, ["t"], "{name}");
        assert_eq!(
            !threads_of_agent(&world, &alice(), "other").await.is_empty(),
            is_other,
            "{name}"
        );
    }
    log.write([Change::RemoveRun(run.key)]).await;
    assert_eq!(threads_of_agent(&world, &alice(), "echo").await, NONE);
    log.start("b").await;
    assert_eq!(threads_of_agent(&world, &alice(), "echo").await, ["t"]);
    log.write([Change::RemoveThread]).await;
    assert_eq!(threads_of_agent(&world, &alice(), "echo").await, NONE);
}

async fn threads_of_an_agent_have_pages_and_stay_their_owners(world: World) {
    for number in 0..6 {
        let owner = if number % 2 == 0 { "alice" } else { "bob" };
        let mut log = world.thread_of(&own_scope("default", owner), &format!("t{number}")).await;
        log.start(&format!("r{number}")).await;
    }
    let mut foreign = world.thread_of(&tenant_scope("elsewhere"), "t0").await;
    foreign.start("r0").await;
    assert_eq!(
        threads_of_agent(&world, &own_scope("default", "bob"), "echo").await,
        ["t5", "t3", "t1"]
    );
    let filter = ThreadFilter { agent: Some(agent("echo")), ..ThreadFilter::default() };
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let listing = world.store.threads(&alice(), &filter, &page(2, after)).await.unwrap();
        seen.extend(listing.rows.into_iter().map(|row| row.id.to_string()));
        after = listing.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["t5", "t4", "t3", "t2", "t1", "t0"]);
}

async fn ephemeral_threads_are_not_listed_by_agent(world: World) {
    let mut row = thread_row(world.store.next_thread_key(), &alice(), "gone");
    row.ephemeral = true;
    row.metadata = naming(&json!("other"));
    world.create(row.clone()).await.unwrap();
    let mut log = crate::harness::Log::of(std::sync::Arc::clone(&world.store), row);
    log.start("r").await;
    assert_eq!(threads_of_agent(&world, &alice(), "echo").await, NONE);
    assert_eq!(threads_of_agent(&world, &alice(), "other").await, NONE);
}
