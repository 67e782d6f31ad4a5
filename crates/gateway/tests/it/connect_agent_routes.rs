//! Agents: search, descriptions, and the documentation of errors and credentials.

use std::collections::HashSet;

use http::Method;
use serde_json::{Value, json};
use trilogue_gateway::ConnectOptions;

use crate::connect::{Face, NOBODY, expected_refusal, refusal};
use crate::rig::text;

async fn names(face: &Face, body: Value) -> Vec<String> {
    let found = face.post_ok("/agents/search", &body).await;
    let name = |agent: &Value| text(agent, "/metadata/ref/name").to_owned();
    found.as_array().unwrap().iter().map(name).collect()
}

async fn id_of(face: &Face, name: &str) -> String {
    let found = face.post_ok("/agents/search", &json!({"name": name})).await;
    text(&found, "/0/agent_id").to_owned()
}

#[tokio::test]
async fn agents_are_found_by_name_and_version_in_the_order_in_which_they_are_served() {
    let face = Face::start().await;
    let all = names(&face, json!({})).await;
    let mail = "org.agntcy.mailcomposer";
    let others = ["greeter", "plain", "primitive", "counter", "secretive", "puppet"];
    let served = [&["org.test.actor", mail][..], &others].concat();
    assert_eq!(all, served);
    assert_eq!(names(&face, Value::Null).await, served, "an empty body asks for all");
    assert_eq!(names(&face, json!({"name": null, "version": null})).await, served);
    assert_eq!(names(&face, json!({"limit": 2})).await, served[..2]);
    assert_eq!(names(&face, json!({"limit": 2, "offset": 3})).await, served[3..5]);
    assert_eq!(names(&face, json!({"offset": 99})).await, Vec::<String>::new());
    assert_eq!(names(&face, json!({"name": mail})).await, [mail]);
    assert_eq!(names(&face, json!({"name": mail, "version": "0.0.1"})).await, [mail]);
    assert_eq!(names(&face, json!({"version": "1.2.0"})).await, ["org.test.actor"]);
    for nothing in [json!({"name": "org"}), json!({"name": mail, "version": "9"})] {
        assert_eq!(names(&face, nothing).await, Vec::<String>::new());
    }
    for bad in
        [json!({"limit": 0}), json!({"limit": 1001}), json!({"offset": -1}), json!({"name": 5})]
    {
        let reply = face.post("/agents/search", &bad).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{bad}");
    }
}

#[tokio::test]
async fn an_agent_is_known_by_its_id_and_both_its_names() {
    let face = Face::start().await;
    let id = id_of(&face, "org.test.actor").await;
    let agent = face.get_ok(&format!("/agents/{id}")).await;
    assert_eq!(agent["agent_id"], id);
    assert_eq!(agent["id"], id);
    for name in ["actor", "org.test.actor", &id.to_uppercase()] {
        assert_eq!(face.get_ok(&format!("/agents/{name}")).await, agent, "{name}");
    }
    // The same for the agent of a configured instance.
    let made = face.post_ok("/agents/actor/configurations", &Value::Null).await;
    let instance = text(&made, "/configuration_id");
    for path in
        ["", "/descriptor", "/capabilities", "/schemas", "/errors", "/authentication", "/openapi"]
    {
        let of_instance = face.get_ok(&format!("/agents/{instance}{path}")).await;
        if path.is_empty() {
            let names = [&of_instance["agent_id"], &of_instance["configuration_id"]];
            assert_eq!(names, [instance, instance]);
            assert_eq!(of_instance["metadata"], agent["metadata"]);
        } else {
            assert_eq!(of_instance, face.get_ok(&format!("/agents/{id}{path}")).await, "{path}");
        }
        for unknown in [NOBODY, "nope", "%00", &"x".repeat(300)] {
            let reply = face.get(&format!("/agents/{unknown}{path}")).await;
            assert_eq!(
                refusal(&reply),
                expected_refusal(404, "agent_not_found"),
                "{unknown}{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_descriptor_stands_at_every_path_that_it_ever_had() {
    let face = Face::start().await;
    let id = id_of(&face, "org.test.actor").await;
    let descriptor = face.get_ok(&format!("/agents/{id}/descriptor")).await;
    assert_eq!(descriptor["metadata"]["ref"]["name"], "org.test.actor");
    assert_eq!(descriptor["specs"]["capabilities"]["threads"], true);
    assert_eq!(descriptor["specs"]["interrupts"][0]["interrupt_type"], "approval");
    for path in [
        format!("/agents/agent/{id}/descriptor"),
        format!("/agents/{id}/manifest"),
        format!("/agents/{id}/details"),
    ] {
        assert_eq!(face.get_ok(&path).await, descriptor, "{path}");
    }
    let schemas = face.get_ok(&format!("/agents/{id}/schemas")).await;
    for (schema, spec) in [
        ("input_schema", "input"),
        ("output_schema", "output"),
        ("state_schema", "thread_state"),
        ("config_schema", "config"),
        ("interrupts", "interrupts"),
        ("custom_streaming_update", "custom_streaming_update"),
    ] {
        assert_eq!(schemas[schema], descriptor["specs"][spec], "{schema}");
    }
}

#[tokio::test]
async fn what_the_server_adds_shows_in_the_capabilities_alone() {
    let face = Face::start().await;
    let mail = face.get_ok("/agents/org.agntcy.mailcomposer/descriptor").await;
    assert!(mail["specs"]["capabilities"].get("streaming").is_none(), "{mail}");
    let adds = face.get_ok("/agents/org.agntcy.mailcomposer/capabilities").await;
    assert_eq!(adds["streaming"]["values"], true, "{adds}");
    assert_eq!(adds["configurations"], true);
    assert_eq!((text(&adds, "/protocol"), text(&adds, "/spec_version")), ("acp-connect", "0.2.3"));
    let plain = face.get_ok("/agents/plain/capabilities").await;
    let flags = ["threads", "callbacks", "interrupts", "configurations", "errors"];
    for flag in flags {
        assert_eq!(plain[flag], false, "{flag} of {plain}");
    }
    assert_eq!(face.get_ok("/agents/actor/capabilities").await["errors"], true);
}

#[tokio::test]
async fn the_catalogue_has_one_definition_a_code() {
    let face = Face::start().await;
    let errors = face.rig.stranger();
    let reply = face.send_as(&errors, Method::GET, "/errors", &Value::Null).await;
    assert_eq!(reply.status, 200);
    let errors = reply.json();
    let mut codes: Vec<_> = errors.as_array().unwrap().iter().map(|it| text(it, "/code")).collect();
    let count = codes.len();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), count);
    let numbers = errors.as_array().unwrap().iter().map(|it| it["errcode"].as_u64().unwrap());
    assert_eq!(numbers.collect::<HashSet<_>>().len(), count);
    for known in ["run_cancelled", "thread_busy", "input_schema_violation", "run_not_interrupted"] {
        assert!(codes.contains(&known), "{known}");
    }
    let own = face.get_ok("/agents/actor/errors").await;
    assert_eq!(own["errors"].as_array().unwrap().len(), 1, "{own}");
    let declared = &own["errors"][0];
    assert_eq!(text(declared, "/code"), "out_of_paper");
    assert!(declared["errcode"].as_u64().unwrap() >= 10_000, "{declared}");
    assert_eq!(declared["transient"], true);
    assert_eq!(declared["schema"]["required"], json!(["tray"]));
    assert_eq!(face.get_ok("/agents/plain/errors").await["errors"], json!([]));
}

#[tokio::test]
async fn everybody_learns_how_to_show_who_they_are() {
    let face = Face::start().await;
    let id = id_of(&face, "org.test.actor").await;
    let stranger = face.rig.stranger();
    for (path, reader) in [
        ("/authentication".to_owned(), &stranger),
        (format!("/agents/{id}/authentication"), &stranger),
    ] {
        let reply = face.send_as(reader, Method::GET, &path, &Value::Null).await;
        assert_eq!(reply.status, 200, "{path}");
        let ways = reply.json();
        assert_eq!(ways["required"], true);
        assert_eq!(ways["schemes"]["x-api-key"]["type"], "apiKey");
        assert_eq!(ways["schemes"]["bearer"]["scheme"], "bearer");
        assert!(ways.get("permissions").is_none() && ways.get("agent_id").is_none(), "{ways}");
        let known = face.get_ok(&path).await;
        let rights = ["read", "run", "answer", "admin", "server"];
        assert_eq!(known["permissions"], json!(rights), "{known}");
    }
    let refused =
        face.send_as(&stranger, Method::GET, &format!("/agents/{id}"), &Value::Null).await;
    assert_eq!(refusal(&refused), expected_refusal(401, "unauthenticated"));
    assert!(refused.headers["link"].to_str().unwrap().contains("/authentication"));
}

#[tokio::test]
async fn slashes_and_unknown_parameters_are_overlooked() {
    let face = Face::with(ConnectOptions::default()).await;
    let agent = face.get_ok("/agents/actor").await;
    for path in ["//agents//actor", "/agents/actor/", "/agents/actor?x=1", "///agents/actor//?y"] {
        assert_eq!(face.get_ok(path).await, agent, "{path}");
    }
}
