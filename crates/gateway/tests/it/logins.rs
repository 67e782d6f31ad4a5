//! Logins from other machines: a code that a person approves, and a token that its program collects once.

use serde_json::{Value, json};
use trilogue_domain::{Right, Rights};
use trilogue_testkit::Client;
use trilogue_testkit::client::Reply;

use crate::rig::{Rig, text};

async fn begin(client: &Client) -> Value {
    let begun = client.post("/api/v1/logins", &json!({"label": "laptop"})).await.unwrap();
    assert_eq!(begun.status, 201, "{begun:?}");
    begun.json()
}

async fn collect(client: &Client, login: &Value) -> Reply {
    let secret = json!({"secret": login["secret"]});
    client.post("/api/v1/logins/collect", &secret).await.unwrap()
}

async fn approve(client: &Client, login: &Value, more: &Value) -> Reply {
    let mut body = json!({"code": login["code"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.post("/api/v1/logins/approve", &body).await.unwrap()
}

#[tokio::test]
async fn a_program_gets_its_token_once_after_a_person_has_approved_its_code() {
    let rig = Rig::start().await;
    let (program, person) = (rig.stranger(), rig.alice());
    let login = begin(&program).await;
    assert_eq!(collect(&program, &login).await.json(), json!({"status": "pending"}));
    let code = json!({"code": login["code"]});
    let seen = person.post("/api/v1/logins/look-up", &code).await.unwrap().ok().unwrap();
    assert_eq!((&seen["label"], &seen["address"]), (&json!("laptop"), &json!("127.0.0.1")));
    let approved = approve(&person, &login, &json!({})).await;
    assert_eq!(approved.status, 201, "{approved:?}");
    assert!(approved.json().get("secret").is_none(), "only the program gets it");
    assert_eq!(approve(&person, &login, &json!({})).await.status, 404, "a code works once");
    let collected = collect(&program, &login).await.ok().unwrap();
    assert_eq!(collected["status"], "approved");
    let token = program.clone().with_token(text(&collected, "/token/secret"));
    let caller = token.get("/api/v1/caller").await.unwrap().ok().unwrap();
    assert_eq!((&caller["principal"], &caller["own"]), (&json!("alice"), &json!(false)));
    assert_eq!(caller["rights"], json!(["read", "run", "answer"]));
    let listed = person.get("/api/v1/tokens").await.unwrap().ok().unwrap();
    assert!(listed["items"].as_array().unwrap().iter().any(|it| it["label"] == "laptop"));
    // The response may have been lost.
    let again = collect(&program, &login).await.ok().unwrap();
    assert_eq!(again, collected);
    assert_eq!(person.get("/api/v1/tokens").await.unwrap().ok().unwrap(), listed);
}

#[tokio::test]
async fn an_approval_gives_no_more_than_its_token_may_give() {
    let rig = Rig::start().await;
    let rights: Rights = [Right::Read, Right::Admin].into_iter().collect();
    rig.token("alpha", "admin", rights, true).await;
    let (program, admin) = (rig.stranger(), rig.as_("alpha", "admin"));
    let login = begin(&program).await;
    assert_eq!(approve(&admin, &login, &json!({})).await.status, 403, "it lacks 'run'");
    let other = json!({"rights": ["read"], "principal": "alice"});
    assert_eq!(approve(&admin, &login, &other).await.status, 403);
    assert_eq!(collect(&program, &login).await.json(), json!({"status": "pending"}));
    let approved = approve(&admin, &login, &json!({"rights": ["read"], "label": "mine"})).await;
    assert_eq!((approved.status, &approved.json()["own"]), (201, &json!(true)), "{approved:?}");
    assert_eq!(approved.json()["label"], "mine");
    // The approval ends with its token.
    let listed = rig.alice().get("/api/v1/tokens").await.unwrap().ok().unwrap();
    let items = listed["items"].as_array().unwrap();
    let id = items.iter().find(|it| it["principal"] == "admin").unwrap()["id"].clone();
    rig.revoke(&format!("/api/v1/tokens/{}", id.as_str().unwrap())).await;
    assert_eq!(collect(&program, &login).await.status, 401);
    let listed = rig.alice().get("/api/v1/tokens").await.unwrap().ok().unwrap();
    assert!(!listed["items"].as_array().unwrap().iter().any(|it| it["label"] == "mine"));
}

#[tokio::test]
async fn logins_and_guesses_of_one_address_are_bounded() {
    let rig = Rig::start().await;
    let (program, person) = (rig.stranger(), rig.alice());
    let mut logins = Vec::new();
    for _ in 0..32 {
        logins.push(begin(&program).await);
    }
    let sixth = program.post("/api/v1/logins", &json!({})).await.unwrap();
    assert_eq!((sixth.status, sixth.code().as_str()), (429, "overloaded"));
    let guess = json!({"code": "XXXX-XXXX"});
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(person.post("/api/v1/logins/look-up", &guess).await.unwrap().status);
    }
    assert_eq!((statuses[0], statuses[11]), (404, 429), "{statuses:?}");
    // A code that waits is still approved.
    assert_eq!(approve(&person, &logins[4], &json!({})).await.status, 201);
    let wrong = json!({"secret": "tril_wrong"});
    assert_eq!(program.post("/api/v1/logins/collect", &wrong).await.unwrap().status, 401);
    let long = json!({"label": "x".repeat(300)});
    assert_eq!(program.post("/api/v1/logins", &long).await.unwrap().code(), "invalid_request");
}
