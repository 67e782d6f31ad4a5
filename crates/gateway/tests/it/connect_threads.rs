//! Threads: create, read, search, change, copy, delete.

use serde_json::{Value, json};

use crate::connect::{Face, NOBODY, expected_refusal, refusal, run_body};
use crate::rig::text;

async fn say(face: &Face, thread: &str, words: &str) -> Value {
    let done = face.post_ok(&format!("/threads/{thread}/runs/wait"), &run_body("say", words)).await;
    assert_eq!(done["run"]["status"], "success", "{done}");
    done
}

#[tokio::test]
async fn a_thread_is_made_once() {
    let face = Face::start().await;
    let thread = face.post_ok("/threads", &Value::Null).await;
    assert_eq!((text(&thread, "/status"), &thread["metadata"]), ("idle", &json!({})));
    assert!(thread.get("values").is_none(), "{thread}");
    let body = json!({"thread_id": "abc", "metadata": {"a": 1}});
    let made = face.post_ok("/threads", &body).await;
    assert_eq!(text(&made, "/thread_id"), "abc");
    let refused = face.post("/threads", &body).await;
    assert_eq!(refusal(&refused), expected_refusal(409, "thread_exists"));
    let same = json!({"thread_id": "abc", "metadata": {"b": 2}, "if_exists": "do_nothing"});
    assert_eq!(face.post_ok("/threads", &same).await, made);
    assert_eq!(face.get_ok("/threads/abc").await, made);
    for bad in [
        json!({"metadata": "x"}),
        json!({"if_exists": "overwrite"}),
        json!({"thread_id": 5}),
        json!({"thread_id": ""}),
        json!({"thread_id": "x".repeat(300)}),
    ] {
        assert_eq!(
            refusal(&face.post("/threads", &bad).await),
            expected_refusal(422, "validation_error"),
            "{bad}"
        );
    }
    let large = json!({"metadata": {"a": "x".repeat(70_000)}});
    assert_eq!(
        refusal(&face.post("/threads", &large).await),
        expected_refusal(413, "payload_too_large")
    );
}

#[tokio::test]
async fn runs_of_a_thread_share_its_state() {
    let face = Face::start().await;
    let thread = face.thread().await;
    say(&face, &thread, "one").await;
    let done = say(&face, &thread, "two").await;
    assert_eq!(done["output"]["values"]["message"], "one two");
    assert_eq!(text(&done, "/run/thread_id"), thread);
    let shown = face.get_ok(&format!("/threads/{thread}")).await;
    assert_eq!(shown["values"], json!({"messages": ["one", "two"]}));
    assert_eq!(shown["status"], "idle");
    assert_eq!(face.get_ok(&format!("/threads/{thread}/state")).await, shown["values"]);
    let run = text(&done, "/run/run_id");
    let left = face.get_ok(&format!("/threads/{thread}/runs/{run}/threadstate")).await;
    assert_eq!(left, shown["values"]);
    let runs = face.get_ok(&format!("/threads/{thread}/runs")).await;
    assert_eq!(runs.as_array().unwrap().len(), 2);
    assert_eq!(text(&runs, "/0/run_id"), run, "newest first");
    let page = face.get_ok(&format!("/threads/{thread}/runs?limit=1&offset=1")).await;
    assert_eq!(page[0], runs[1]);
    // A header has the offset of the next page.
    for (query, next) in [("limit=1", Some("1")), ("limit=1&offset=1", None), ("limit=2", None)] {
        let reply = face.get(&format!("/threads/{thread}/runs?{query}")).await;
        let told = reply.headers.get("trilogue-next").map(|next| next.to_str().unwrap().to_owned());
        assert_eq!(told.as_deref(), next, "{query}");
    }
    let history = face.get(&format!("/threads/{thread}/history?limit=1")).await;
    let first = text(&history.json(), "/0/checkpoint/checkpoint_id").to_owned();
    assert_eq!(history.headers["trilogue-next"], first.as_str());
    let rest = face.get(&format!("/threads/{thread}/history?before={first}")).await;
    assert_eq!(rest.json().as_array().map(Vec::len), Some(1));
    assert!(rest.headers.get("trilogue-next").is_none());
    for query in ["limit=0", "limit=x", "offset=-1", "limit=1001"] {
        let reply = face.get(&format!("/threads/{thread}/runs?{query}")).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{query}");
    }
}

#[tokio::test]
async fn a_run_belongs_to_its_thread() {
    let face = Face::start().await;
    let (mine, other) = (face.thread().await, face.thread().await);
    let done = say(&face, &mine, "x").await;
    let run = text(&done, "/run/run_id");
    face.get_ok(&format!("/threads/{mine}/runs/{run}")).await;
    for path in ["", "/wait", "/stream"] {
        let reply = face.get(&format!("/threads/{other}/runs/{run}{path}")).await;
        assert_eq!(refusal(&reply), expected_refusal(404, "run_not_found"), "{path}");
        let reply = face.get(&format!("/threads/{NOBODY}/runs/{run}{path}")).await;
        assert_eq!(refusal(&reply), expected_refusal(404, "thread_not_found"), "{path}");
    }
    let reply = face.delete(&format!("/threads/{other}/runs/{run}")).await;
    assert_eq!(refusal(&reply), expected_refusal(404, "run_not_found"));
    assert_eq!(face.delete(&format!("/threads/{mine}/runs/{run}")).await.status, 204);
}

#[tokio::test]
async fn a_thread_that_is_not_there_is_made_where_the_run_says_so() {
    let face = Face::start().await;
    let mut body = run_body("say", "x");
    let refused = face.post("/threads/new/runs/wait", &body).await;
    assert_eq!(refusal(&refused), expected_refusal(404, "thread_not_found"));
    body["if_not_exists"] = json!("create");
    let done = face.post_ok("/threads/new/runs/wait", &body).await;
    assert_eq!(text(&done, "/run/thread_id"), "new");
    assert_eq!(face.get_ok("/threads/new").await["values"], json!({"messages": ["x"]}));
}

#[tokio::test]
async fn a_thread_stands_as_its_runs_do() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let path = format!("/threads/{thread}");
    let runs = format!("{path}/runs");
    face.post_ok(&format!("{runs}/wait"), &run_body("fail", "")).await;
    assert_eq!(face.get_ok(&path).await["status"], "error");
    face.post_ok(&format!("{runs}/wait"), &run_body("ask", "")).await;
    assert_eq!(face.get_ok(&path).await["status"], "interrupted");
    let id = face.begin(&runs, &run_body("sleep", "")).await;
    assert_eq!(face.get_ok(&path).await["status"], "busy");
    for (status, found) in [("busy", 1), ("idle", 0), ("error", 0), ("interrupted", 0)] {
        let threads = face.post_ok("/threads/search", &json!({"status": status})).await;
        assert_eq!(threads.as_array().unwrap().len(), found, "{status}");
    }
    assert_eq!(face.post(&format!("{runs}/{id}/cancel?wait=true"), &Value::Null).await.status, 204);
    assert_eq!(face.get_ok(&path).await["status"], "idle");
}

#[tokio::test]
async fn threads_are_searched_by_metadata_state_and_status() {
    let face = Face::start().await;
    let mut ids = Vec::new();
    for number in 0..3 {
        let body = json!({"metadata": {"n": number, "all": true, "deep": {"a": 1}}});
        let thread = face.post_ok("/threads", &body).await;
        ids.push(text(&thread, "/thread_id").to_owned());
    }
    let patch = json!({"values": {"topic": "birds"}});
    assert_eq!(face.patch(&format!("/threads/{}", ids[1]), &patch).await.status, 200);
    let found = async |body: Value| {
        let threads = face.post_ok("/threads/search", &body).await;
        let id = |thread: &Value| text(thread, "/thread_id").to_owned();
        threads.as_array().unwrap().iter().map(id).collect::<Vec<_>>()
    };
    let newest_first: Vec<_> = ids.iter().rev().cloned().collect();
    assert_eq!(found(Value::Null).await, newest_first);
    assert_eq!(found(json!({"metadata": {"all": true}, "status": "idle"})).await, newest_first);
    assert_eq!(found(json!({"limit": 1, "offset": 2})).await, ids[..1]);
    assert_eq!(found(json!({"metadata": {"n": 2}})).await, ids[2..]);
    assert_eq!(found(json!({"metadata": {"deep": {"a": 1}}})).await.len(), 3);
    assert_eq!(found(json!({"metadata": {"deep": {"a": 2}}})).await, Vec::<String>::new());
    assert_eq!(found(json!({"values": {"topic": "birds"}})).await, ids[1..2]);
    for bad in [json!({"status": "sleeping"}), json!({"offset": -1}), json!({"values": 5})] {
        let reply = face.post("/threads/search", &bad).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{bad}");
    }
}

#[tokio::test]
async fn a_patch_merges_metadata_and_sets_the_state() {
    let face = Face::start().await;
    let body = json!({"metadata": {"a": 1, "b": 2}});
    let thread = face.post_ok("/threads", &body).await;
    let path = format!("/threads/{}", text(&thread, "/thread_id"));
    let patched = face.patch(&path, &json!({"metadata": {"b": null, "c": 3}})).await.json();
    assert_eq!(patched["metadata"], json!({"a": 1, "c": 3}));
    assert!(patched.get("values").is_none());
    assert_eq!(face.patch(&path, &json!({})).await.json(), patched);
    let refused = face.patch(&path, &json!({"messages": []})).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "messages_not_supported"));
    let set = json!({"values": {"messages": ["x"], "topic": "y"}});
    let patched = face.patch(&path, &set).await.json();
    assert_eq!(patched["values"], set["values"]);
    let messages = json!([{"role": "user", "content": "z"}]);
    let patched = face.patch(&path, &json!({"messages": messages})).await.json();
    assert_eq!(patched["values"], json!({"messages": messages, "topic": "y"}));
    let history = face.get_ok(&format!("{path}/history")).await;
    assert_eq!(history.as_array().unwrap().len(), 2, "{history}");
    for bad in [json!({"metadata": 1}), json!({"checkpoint": "x"}), json!({"messages": "x"})] {
        assert_eq!(
            refusal(&face.patch(&path, &bad).await),
            expected_refusal(422, "validation_error"),
            "{bad}"
        );
    }
    let unknown = json!({"checkpoint": {"checkpoint_id": NOBODY}, "values": {}});
    assert_eq!(
        refusal(&face.patch(&path, &unknown).await),
        expected_refusal(404, "checkpoint_not_found")
    );
}

#[tokio::test]
async fn a_state_that_does_not_fit_is_not_set() {
    let face = Face::start().await;
    let thread = face.thread().await;
    say(&face, &thread, "x").await;
    let path = format!("/threads/{thread}");
    let refused = face.patch(&path, &json!({"values": {"messages": "none"}})).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "thread_state_schema_violation"));
    assert_eq!(face.get_ok(&path).await["values"], json!({"messages": ["x"]}));
    let other = json!({"agent_id": "counter", "input": {}});
    let refused = face.post(&format!("{path}/runs"), &other).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "thread_state_incompatible"));
    let plain = json!({"agent_id": "plain", "input": "x"});
    let refused = face.post(&format!("{path}/runs"), &plain).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "threads_not_supported"));
}

/// A client sees one kind of state on a thread: either values that were set, or messages.
#[tokio::test]
async fn agents_of_different_states_never_share_a_thread() {
    let face = Face::start().await;
    let chat = || json!({"agent_id": "puppet", "input": {"message": "hello"}});
    let of = |agent: &str| json!({"agent_id": agent, "input": {"message": "hello"}});
    let set = face.thread().await;
    say(&face, &set, "x").await;
    let spoken = face.thread().await;
    face.post_ok(&format!("/threads/{spoken}/runs/wait"), &chat()).await;
    let patched = face.thread().await;
    let patch = json!({"values": {"messages": []}});
    assert_eq!(face.patch(&format!("/threads/{patched}"), &patch).await.status, 200);
    for (thread, strangers) in [
        (&set, vec![chat(), of("greeter"), of("counter")]),
        (&spoken, vec![run_body("say", "x"), of("mailcomposer"), of("greeter"), of("secretive")]),
        (&patched, vec![chat(), of("greeter")]),
    ] {
        let path = format!("/threads/{thread}");
        let before = face.get_ok(&path).await["values"].clone();
        for stranger in strangers {
            for runs in ["runs", "runs/wait", "runs/stream"] {
                let refused = face.post(&format!("{path}/{runs}"), &stranger).await;
                let wanted = expected_refusal(422, "thread_state_incompatible");
                assert_eq!(refusal(&refused), wanted, "{stranger} {}", refused.json());
            }
        }
        assert_eq!(face.get_ok(&path).await["values"], before);
    }
    // An agent continues its own threads, and those of agents of the same kind.
    for (thread, friends) in [
        (&set, vec![run_body("say", "y"), of("mailcomposer")]),
        (&spoken, vec![chat()]),
        (&patched, vec![run_body("say", "y")]),
    ] {
        for friend in friends {
            let done = face.post_ok(&format!("/threads/{thread}/runs/wait"), &friend).await;
            assert_eq!(done["run"]["status"], "success", "{done}");
        }
    }
}

#[tokio::test]
async fn a_queued_run_meets_no_state_of_another_kind() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let path = format!("/threads/{thread}");
    let first = face.begin(&format!("{path}/runs"), &run_body("hold", "x")).await;
    let mut chat = json!({"agent_id": "puppet", "input": "hello"});
    chat["multitask_strategy"] = json!("enqueue");
    let second = face.begin(&format!("{path}/runs"), &chat).await;
    face.gate.add_permits(1);
    face.reach(&format!("/runs/{first}"), "success").await;
    let ended = face.get_ok(&format!("/runs/{second}/wait")).await;
    assert_eq!(text(&ended, "/output/code"), "thread_state_incompatible", "{ended}");
    assert_eq!(face.get_ok(&path).await["values"], json!({"messages": ["x"]}));
}

#[tokio::test]
async fn a_busy_thread_keeps_its_state_and_itself() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let path = format!("/threads/{thread}");
    let run = face.begin(&format!("{path}/runs"), &run_body("sleep", "")).await;
    let refused = face.patch(&path, &json!({"values": {"topic": "x"}})).await;
    assert_eq!(refusal(&refused), expected_refusal(409, "thread_busy"));
    assert_eq!(face.patch(&path, &json!({"metadata": {"a": 1}})).await.status, 200);
    assert_eq!(refusal(&face.delete(&path).await), expected_refusal(422, "thread_busy"));
    let cancel = format!("{path}/runs/{run}/cancel?wait=true");
    assert_eq!(face.post(&cancel, &Value::Null).await.status, 204);
    let all = (0..4).map(|_| face.delete(&path));
    let replies = futures_util::future::join_all(all).await;
    let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404, 404, 404]);
    assert_eq!(refusal(&face.get(&path).await), expected_refusal(404, "thread_not_found"));
    assert_eq!(
        refusal(&face.get(&format!("/runs/{run}")).await),
        expected_refusal(404, "run_not_found")
    );
}
