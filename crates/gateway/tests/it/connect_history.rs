//! The history of a thread's state: checkpoints, branches, copies.

use serde_json::{Value, json};

use crate::connect::{Face, NOBODY, expected_refusal, refusal, run_body};
use crate::rig::text;

async fn spoken(face: &Face, words: &[&str]) -> String {
    let thread = face.thread().await;
    for word in words {
        let runs = format!("/threads/{thread}/runs/wait");
        let done = face.post_ok(&runs, &run_body("say", word)).await;
        assert_eq!(done["run"]["status"], "success", "{done}");
    }
    format!("/threads/{thread}")
}

async fn history(face: &Face, path: &str, query: &str) -> Vec<Value> {
    face.get_ok(&format!("{path}/history{query}")).await.as_array().unwrap().clone()
}

#[tokio::test]
async fn history_is_newest_first_and_paged_by_checkpoint() {
    let face = Face::start().await;
    let path = spoken(&face, &["a", "b", "c"]).await;
    let all = history(&face, &path, "").await;
    let said_so_far: Vec<_> = all.iter().map(|state| &state["values"]["messages"]).collect();
    assert_eq!(said_so_far, [&json!(["a", "b", "c"]), &json!(["a", "b"]), &json!(["a"])]);
    let ids: Vec<_> = all.iter().map(|state| text(state, "/checkpoint/checkpoint_id")).collect();
    assert_eq!(text(&all[0], "/metadata/parent_checkpoint_id"), ids[1]);
    assert!(all[2]["metadata"].get("parent_checkpoint_id").is_none(), "{}", all[2]);
    let newest = face.get_ok(&format!("{path}/runs?limit=1")).await;
    assert_eq!(all[0]["metadata"]["run_id"], newest[0]["run_id"]);
    assert_eq!(text(&all[0], "/metadata/source"), "run");
    assert_eq!(history(&face, &path, "?limit=1").await, all[..1]);
    assert_eq!(history(&face, &path, &format!("?before={}", ids[0])).await, all[1..]);
    assert_eq!(history(&face, &path, &format!("?limit=1&before={}", ids[0])).await, all[1..2]);
    assert_eq!(history(&face, &path, &format!("?before={}", ids[2])).await, Vec::<Value>::new());
    for unknown in [NOBODY, "x"] {
        let reply = face.get(&format!("{path}/history?before={unknown}")).await;
        assert_eq!(refusal(&reply), expected_refusal(404, "checkpoint_not_found"), "{unknown}");
    }
    for bad in ["limit=0", "limit=-1", "limit=x"] {
        let reply = face.get(&format!("{path}/history?{bad}")).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{bad}");
    }
    let fresh = face.thread().await;
    assert_eq!(history(&face, &format!("/threads/{fresh}"), "").await, Vec::<Value>::new());
    let reply = face.get(&format!("/threads/{fresh}/state")).await;
    assert_eq!(refusal(&reply), expected_refusal(404, "checkpoint_not_found"));
}

#[tokio::test]
async fn a_state_branches_from_an_old_one() {
    let face = Face::start().await;
    let path = spoken(&face, &["a", "b"]).await;
    let all = history(&face, &path, "").await;
    let first = &all[1]["checkpoint"];
    let back = face.patch(&path, &json!({"checkpoint": first})).await.json();
    assert_eq!(back["values"], json!({"messages": ["a"]}), "{back}");
    let runs = format!("{path}/runs/wait");
    let done = face.post_ok(&runs, &run_body("say", "c")).await;
    assert_eq!(done["output"]["values"]["message"], "a c");
    let set = json!({"checkpoint": first, "values": {"messages": ["z"]}});
    let set = face.patch(&path, &set).await.json();
    assert_eq!(set["values"], json!({"messages": ["z"]}));
    let branch = history(&face, &path, "").await;
    assert_eq!(branch.len(), 2, "{branch:?}");
    assert_eq!(&branch[1]["checkpoint"], first);
    assert_eq!(text(&branch[0], "/metadata/source"), "update");
    let ignored = json!({"checkpoint": first, "metadata": {"a": 1}});
    let kept = face.patch(&path, &ignored).await.json();
    assert_eq!(kept["values"], set["values"], "metadata alone does not branch");
}

#[tokio::test]
async fn a_copy_has_state_and_checkpoints_and_goes_its_own_way() {
    let face = Face::start().await;
    let path = spoken(&face, &["a", "b"]).await;
    assert_eq!(face.patch(&path, &json!({"metadata": {"k": "v"}})).await.status, 200);
    let source = face.get_ok(&path).await;
    let copy = face.post_ok(&format!("{path}/copy"), &Value::Null).await;
    assert_ne!(copy["thread_id"], source["thread_id"]);
    assert_eq!((&copy["values"], &copy["metadata"]), (&source["values"], &source["metadata"]));
    assert_eq!(copy["status"], "idle");
    let copied = format!("/threads/{}", text(&copy, "/thread_id"));
    let states =
        |all: Vec<Value>| all.into_iter().map(|state| state["values"].clone()).collect::<Vec<_>>();
    let (one, other) = (history(&face, &copied, "").await, history(&face, &path, "").await);
    assert_eq!(states(one), states(other));
    let done = face.post_ok(&format!("{copied}/runs/wait"), &run_body("say", "c")).await;
    assert_eq!(done["output"]["values"]["message"], "a b c");
    assert_eq!(face.get_ok(&path).await["values"], source["values"]);
    let reply = face.post(&format!("/threads/{NOBODY}/copy"), &Value::Null).await;
    assert_eq!(refusal(&reply), expected_refusal(404, "thread_not_found"));
}

#[tokio::test]
async fn what_was_said_is_the_state_of_a_chat() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let body = json!({"agent_id": "puppet", "input": {"message": "hello"}});
    face.post_ok(&format!("/threads/{thread}/runs/wait"), &body).await;
    let shown = face.get_ok(&format!("/threads/{thread}")).await;
    let messages = shown["values"]["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2, "{shown}");
    assert_eq!(text(&messages[0], "/role"), "user");
    let all = history(&face, &format!("/threads/{thread}"), "").await;
    assert_eq!(all[0]["values"], shown["values"]);
}
