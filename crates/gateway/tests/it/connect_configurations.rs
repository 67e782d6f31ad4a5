//! Configured instances.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use trilogue_runtime::Backend;

use crate::connect::{Face, NOBODY, expected_refusal, refusal};
use crate::fountain::Quick;
use crate::rig::{Rig, Setup, text, user};

const ALL: &str = "/agents/actor/configurations";

async fn configure(face: &Face, config: Value) -> Value {
    face.post_ok(ALL, &json!({"config": config})).await
}

#[tokio::test]
async fn an_instance_is_made_read_changed_found_and_removed() {
    let face = Face::start().await;
    let body = json!({"config": {"style": "formal"}, "metadata": {"a": 1}, "name": "mine"});
    let made = face.post_ok(ALL, &body).await;
    assert_eq!(made["config"], json!({"style": "formal"}));
    assert_eq!((text(&made, "/name"), &made["metadata"]), ("mine", &json!({"a": 1})));
    let path = format!("{ALL}/{}", text(&made, "/configuration_id"));
    assert_eq!(face.get_ok(&path).await, made);
    let patch = json!({"config": {"style": "friendly"}, "metadata": {"a": null, "b": 2}});
    let changed = face.patch(&path, &patch).await.json();
    assert_eq!(changed["config"], json!({"style": "friendly"}));
    assert_eq!((text(&changed, "/name"), &changed["metadata"]), ("mine", &json!({"b": 2})));
    let other = configure(&face, json!({"pace": 1})).await;
    let found = face.post_ok(&format!("{ALL}/search"), &json!({})).await;
    assert_eq!(found, json!([other, changed]), "newest first");
    let found = face.post_ok(&format!("{ALL}/search"), &json!({"metadata": {"b": 2}})).await;
    assert_eq!(found, json!([changed]));
    let page = face.post_ok(&format!("{ALL}/search"), &json!({"limit": 1, "offset": 1})).await;
    assert_eq!(page, json!([changed]));
    let mail = "/agents/org.agntcy.mailcomposer/configurations";
    assert_eq!(face.post_ok(&format!("{mail}/search"), &Value::Null).await, json!([]));
    let elsewhere = format!("{mail}/{}", text(&made, "/configuration_id"));
    assert_eq!(
        refusal(&face.get(&elsewhere).await),
        expected_refusal(404, "configuration_not_found")
    );
    let replies = [face.delete(&path).await, face.delete(&path).await];
    assert_eq!(replies.map(|reply| reply.status), [204, 404]);
    assert_eq!(refusal(&face.get(&path).await), expected_refusal(404, "configuration_not_found"));
}

#[tokio::test]
async fn an_instance_runs_under_its_own_id_and_under_the_agents() {
    let face = Face::start().await;
    let made = configure(&face, json!({"style": "formal", "pace": 1})).await;
    let id = text(&made, "/configuration_id");
    for body in [
        json!({"agent_id": id, "input": {"do": "config"}}),
        json!({"agent_id": "actor", "configuration_id": id, "input": {"do": "config"}}),
        json!({"configuration_id": id, "input": {"do": "config"}}),
    ] {
        let done = face.post_ok("/runs/wait", &body).await;
        let config: Value = serde_json::from_str(text(&done, "/output/values/message")).unwrap();
        assert_eq!(config, json!({"style": "formal", "pace": 1}), "{body}");
        assert_eq!(done["run"]["agent_id"], made["agent_id"]);
        assert_eq!(done["run"]["configuration_id"], id);
    }
    let over = json!({"agent_id": id, "input": {"do": "config"}, "config": {"pace": 2}});
    let done = face.post_ok("/runs/wait", &over).await;
    let config: Value = serde_json::from_str(text(&done, "/output/values/message")).unwrap();
    assert_eq!(config, json!({"style": "formal", "pace": 2}), "the run's members win");
    let thread = face.thread().await;
    let body = json!({"agent_id": id, "input": {"do": "config"}});
    let done = face.post_ok(&format!("/threads/{thread}/runs/wait"), &body).await;
    assert!(text(&done, "/output/values/message").contains("formal"));
}

#[tokio::test]
async fn a_run_keeps_what_it_was_given() {
    let face = Face::start().await;
    let made = configure(&face, json!({"style": "formal"})).await;
    let id = text(&made, "/configuration_id");
    let body = json!({"agent_id": id, "input": {"do": "config"}, "after_seconds": 1});
    let run = face.begin("/runs", &body).await;
    let patch = json!({"config": {"style": "friendly"}});
    assert_eq!(face.patch(&format!("{ALL}/{id}"), &patch).await.status, 200);
    let done = face.get_ok(&format!("/runs/{run}/wait")).await;
    assert_eq!(done["output"]["values"]["message"], r#"{"style":"formal"}"#);
}

#[tokio::test]
async fn what_cannot_be_configured_is_refused() {
    let face = Face::start().await;
    for agent in ["plain", "secretive"] {
        let reply =
            face.post(&format!("/agents/{agent}/configurations"), &json!({"config": {}})).await;
        assert_eq!(
            refusal(&reply),
            expected_refusal(422, "configuration_not_supported"),
            "{agent}"
        );
    }
    for config in [json!({"style": "rude"}), json!({"unknown": 1}), json!(5)] {
        let reply = face.post(ALL, &json!({"config": config})).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "config_schema_violation"), "{config}");
    }
    let violated = face.post(ALL, &json!({"config": {"style": "rude"}})).await.json();
    assert_eq!(text(&violated, "/data/path"), "/style", "{violated}");
    for bad in [json!({"ttl_seconds": 0, "config": {}}), json!({"ttl_seconds": -1, "config": {}})] {
        assert_eq!(
            refusal(&face.post(ALL, &bad).await),
            expected_refusal(422, "validation_error"),
            "{bad}"
        );
    }
    let large = json!({"config": {"key": "x".repeat(300_000)}});
    assert_eq!(refusal(&face.post(ALL, &large).await), expected_refusal(413, "payload_too_large"));
    let made = configure(&face, json!({})).await;
    let id = text(&made, "/configuration_id");
    let patch = json!({"config": {"style": "rude"}});
    let refused = face.patch(&format!("{ALL}/{id}"), &patch).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "config_schema_violation"));
    let mixed = json!({"agent_id": "org.agntcy.mailcomposer", "configuration_id": id, "input": {}});
    let refused = face.post("/runs", &mixed).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "config_schema_violation"));
    let unknown = json!({"configuration_id": NOBODY, "input": {"do": "say"}});
    assert_eq!(
        refusal(&face.post("/runs", &unknown).await),
        expected_refusal(404, "configuration_not_found")
    );
}

#[tokio::test]
async fn settings_may_be_wrapped_as_a_run_takes_them() {
    let face = Face::start().await;
    let wrapped = json!({"configurable": {"style": "formal"}, "tags": ["a"], "recursion_limit": 5});
    let reply = face.post(ALL, &json!({"config": wrapped})).await;
    let made = reply.json();
    assert_eq!(made["config"], json!({"style": "formal"}), "{made}");
    let warnings: Vec<_> = reply.headers.get_all("warning").iter().collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let path = format!("{ALL}/{}", text(&made, "/configuration_id"));
    let patch = json!({"config": {"configurable": {"pace": 2}}});
    assert_eq!(face.patch(&path, &patch).await.json()["config"], json!({"pace": 2}));
    for config in [
        json!({"configurable": {"style": "rude"}}),
        json!({"configurable": {"styl": "formal"}}),
        json!({"style": "formal", "tags": []}),
    ] {
        for reply in [
            face.post(ALL, &json!({"config": config})).await,
            face.patch(&path, &json!({"config": config})).await,
        ] {
            assert_eq!(
                refusal(&reply),
                expected_refusal(422, "config_schema_violation"),
                "{config}"
            );
        }
    }
}

/// An unknown setting would be lost without a notice to the client.
#[tokio::test]
async fn unknown_settings_are_refused() {
    let face = Face::start().await;
    let mail = "/agents/mailcomposer/configurations";
    let typo = json!({"styl": "formal"});
    let refused = face.post(mail, &json!({"config": typo})).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "config_schema_violation"));
    assert_eq!(text(&refused.json(), "/data/path"), "/styl");
    assert!(text(&refused.json(), "/description").contains("style"), "{}", refused.json());
    let run = json!({"agent_id": "mailcomposer", "input": {"message": "x"}, "config": typo});
    assert_eq!(
        refusal(&face.post("/runs", &run).await),
        expected_refusal(422, "config_schema_violation")
    );
    // Settings next to `config` are not members of the request.
    let beside = face.post(mail, &json!({"style": "formal"})).await;
    assert_eq!(refusal(&beside), expected_refusal(422, "validation_error"));
    assert!(text(&beside.json(), "/description").contains("style"), "{}", beside.json());
    let made = face.post_ok(mail, &json!({"config": {"style": "formal"}})).await;
    let path = format!("{mail}/{}", text(&made, "/configuration_id"));
    let beside = face.patch(&path, &json!({"style": "friendly"})).await;
    assert_eq!(refusal(&beside), expected_refusal(422, "validation_error"));
    assert_eq!(face.get_ok(&path).await, made);
}

#[tokio::test]
async fn an_id_is_taken_once_and_an_alias_makes_the_same() {
    let face = Face::start().await;
    let body = json!({"configuration_id": NOBODY, "config": {"pace": 1}, "agent_id": "actor"});
    let made = face.post_ok("/configurations", &body).await;
    assert_eq!(text(&made, "/configuration_id"), NOBODY);
    assert_eq!(
        refusal(&face.post(ALL, &body).await),
        expected_refusal(409, "configuration_exists")
    );
    let again = json!({
        "configuration_id": NOBODY, "config": {"pace": 2}, "if_exists": "do_nothing",
    });
    assert_eq!(face.post_ok(ALL, &again).await, made);
    let short = json!({"config": {}, "ttl_seconds": 1});
    let short = face.post_ok(ALL, &short).await;
    assert!(text(&short, "/expires_at") > text(&short, "/created_at"), "{short}");
    face.wait_until_gone(&format!("{ALL}/{}", text(&short, "/configuration_id"))).await;
}

#[tokio::test]
async fn an_instance_is_seen_by_its_tenant() {
    let face = Face::start().await;
    let made = configure(&face, json!({"pace": 1})).await;
    face.rig.token("beta", "bob", user(), false).await;
    let bob = face.rig.as_("beta", "bob");
    let id = text(&made, "/configuration_id");
    let path = format!("{ALL}/{id}");
    let patch = json!({"config": {}});
    for (method, body) in
        [(Method::GET, &Value::Null), (Method::PATCH, &patch), (Method::DELETE, &Value::Null)]
    {
        let reply = face.send_as(&bob, method.clone(), &path, body).await;
        assert_eq!(refusal(&reply), expected_refusal(404, "configuration_not_found"), "{method}");
    }
    let body = json!({"agent_id": id, "input": {"do": "config"}});
    let reply = face.send_as(&bob, Method::POST, "/runs", &body).await;
    assert_eq!(refusal(&reply), expected_refusal(404, "agent_not_found"));
    assert_eq!(face.get_ok(&path).await, made);
}

#[tokio::test]
async fn an_instance_alone_says_which_agent_runs() {
    let agents: Vec<Arc<dyn Backend>> = vec![Quick::new("first"), Quick::new("second")];
    let rig = Rig::of(Setup { agents, ..Setup::default() }).await;
    let alice = rig.alice();
    let made = alice.post("/connect/agents/second/configurations", &json!({})).await.unwrap();
    let made = made.ok().unwrap();
    let body = json!({"configuration_id": made["configuration_id"], "input": {"n": 1}});
    for path in ["/connect/runs/wait", "/connect/threads/t/runs/wait"] {
        alice.post("/connect/threads", &json!({"thread_id": "t"})).await.unwrap();
        let done = alice.post(path, &body).await.unwrap().ok().unwrap();
        assert_eq!(done["run"]["agent_id"], made["agent_id"], "{path}");
        assert_eq!(done["run"]["configuration_id"], made["configuration_id"], "{path}");
        assert_eq!(done["output"]["values"], json!({"n": 1}), "{path}");
    }
}

#[tokio::test]
async fn what_needs_nothing_said_may_be_empty() {
    let face = Face::start().await;
    let made = face.post_ok(ALL, &Value::Null).await;
    assert_eq!((&made["config"], &made["metadata"]), (&json!({}), &json!({})));
    assert_eq!(face.post_ok("/configurations", &Value::Null).await["agent_id"], made["agent_id"]);
}

#[tokio::test]
async fn no_change_undoes_another() {
    let face = Face::of(Setup { on_disk: true, ..Setup::default() }).await;
    let made = configure(&face, json!({})).await;
    let path = format!("{ALL}/{}", text(&made, "/configuration_id"));
    let patches: Vec<_> = (0..16).map(|n| json!({"metadata": {format!("k{n}"): n}})).collect();
    let all = patches.iter().map(|patch| face.patch(&path, patch));
    for reply in futures_util::future::join_all(all).await {
        assert_eq!(reply.status, 200, "{}", reply.json());
    }
    let changed = face.get_ok(&path).await;
    assert_eq!(changed["metadata"].as_object().unwrap().len(), 16, "{changed}");
}

#[tokio::test]
async fn a_lifetime_out_of_bounds_is_told_the_bounds() {
    let face = Face::start().await;
    for ttl in [json!(-1), json!(0), json!(31_536_001), json!(5_000_000_000_u64)] {
        let reply = face.post(ALL, &json!({"ttl_seconds": ttl, "config": {}})).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{ttl}");
        let told = text(&reply.json(), "/description").to_owned();
        assert!(told.contains("from 1 to 31536000"), "{told}");
    }
    let reply = face.post(ALL, &json!({"ttl_seconds": 1.5, "config": {}})).await;
    assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"));
    assert!(text(&reply.json(), "/description").contains("whole number"), "{}", reply.json());
}
