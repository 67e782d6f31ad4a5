//! How callers authenticate, by agent: what each agent accepts and refuses, and what anonymous callers may see.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_domain::{AgentName, TenantId};
use trilogue_gateway::{Access, ConnectOptions, Options, Protocol, Scheme, Server, anonymous};
use trilogue_testkit::client::Reply;
use trilogue_testkit::parts::principal;

use crate::fountain::Quick;
use crate::rig::{Rig, Setup, text};

/// Agents that accept one scheme each; the last one names none.
const AGENTS: [(&str, &[Scheme]); 5] = [
    ("open", &[Scheme::None]),
    ("key", &[Scheme::ApiKey]),
    ("basic", &[Scheme::Basic]),
    ("bearer", &[Scheme::Bearer]),
    ("plain", &[]),
];

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

type Headers = Vec<(&'static str, String)>;

/// The ways to send alice's token, with the agents that accept each.
fn ways() -> Vec<(Headers, &'static [&'static str])> {
    vec![
        (vec![], &["open"]),
        (vec![("x-api-key", "alpha-alice".to_owned())], &["open", "key", "plain"]),
        (vec![("authorization", basic("anybody:alpha-alice"))], &["open", "basic"]),
        (vec![("authorization", "Bearer alpha-alice".to_owned())], &["open", "bearer", "plain"]),
        (vec![("x-api-key", "wrong".to_owned())], &[]),
        (vec![("authorization", basic("alpha-alice:"))], &[]),
        (vec![("authorization", basic("alice"))], &[]),
        (vec![("authorization", "Bearer wrong".to_owned())], &[]),
        (vec![("authorization", "Digest alpha-alice".to_owned())], &[]),
    ]
}

fn options() -> Options {
    let named = AGENTS.iter().filter(|(_, schemes)| !schemes.is_empty());
    let agent_schemes: HashMap<_, _> =
        named.map(|(name, schemes)| (AgentName::parse(name).unwrap(), schemes.to_vec())).collect();
    let nobody = anonymous(TenantId::parse("alpha").unwrap()).unwrap();
    Options {
        agent_schemes,
        anonymous: Some(nobody),
        public_agents: true,
        max_failed_sign_ins: u32::MAX,
        ..Options::default()
    }
}

async fn rig() -> Rig {
    let agents = AGENTS.iter().map(|(name, _)| Quick::new(name) as _).collect();
    Rig::of(Setup { options: options(), agents, ..Setup::default() }).await
}

async fn send(
    rig: &Rig,
    method: Method,
    path: &str,
    headers: &[(&'static str, String)],
    body: &Value,
) -> Reply {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    rig.stranger().send(method, path, &headers, body).await.unwrap()
}

fn challenges(reply: &Reply) -> Vec<String> {
    let values = reply.headers.get_all("www-authenticate").iter();
    values.map(|value| value.to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn each_agent_takes_exactly_the_ways_that_it_names_on_every_face() {
    let rig = rig().await;
    for (headers, takers) in ways() {
        for (agent, _) in AGENTS {
            let body = json!({"agent_id": agent, "input": {}});
            let reply = send(&rig, Method::POST, "/connect/runs/wait", &headers, &body).await;
            let status = if takers.contains(&agent) { 200 } else { 401 };
            assert_eq!(reply.status, status, "{agent} {headers:?}: {}", reply.json());
            // The other protocols accept no caller without a token, even if the agent declares so.
            let status = if headers.is_empty() { 401 } else { status };
            let native = json!({"agent": agent, "input": {}});
            let reply = send(&rig, Method::POST, "/api/v1/runs", &headers, &native).await;
            assert_eq!(reply.status, status, "{agent} {headers:?}: {}", reply.json());
            let part = json!([{"role": "user", "parts": [{"content": "{}", "content_type": "application/json"}]}]);
            let theirs = json!({"agent_name": agent, "input": part});
            let reply = send(&rig, Method::POST, "/communication/runs", &headers, &theirs).await;
            assert_eq!(reply.status, status, "{agent} {headers:?}: {}", reply.json());
        }
    }
}

#[tokio::test]
async fn a_refusal_names_the_ways_and_the_place_that_tells_of_them() {
    let rig = rig().await;
    for (agent, ways, known) in [
        ("key", &["ApiKey realm=\"trilogue\", header=\"x-api-key\""][..], &["x-api-key"][..]),
        ("basic", &["Basic realm=\"trilogue\", charset=\"UTF-8\""], &["basic"]),
        ("bearer", &["Bearer realm=\"trilogue\""], &["bearer"]),
        (
            "plain",
            &["ApiKey realm=\"trilogue\", header=\"x-api-key\"", "Bearer realm=\"trilogue\""],
            &["bearer", "x-api-key"],
        ),
    ] {
        let body = json!({"agent_id": agent, "input": 5});
        let reply = send(&rig, Method::POST, "/connect/runs", &[], &body).await;
        // A refused caller learns nothing of schemas.
        assert_eq!((reply.status, reply.code().as_str()), (401, "unauthenticated"), "{agent}");
        assert_eq!(challenges(&reply), ways, "{agent}");
        assert_eq!(reply.headers["x-acp-error-code"], "unauthenticated");
        let link = reply.headers["link"].to_str().unwrap();
        let (place, rest) = link.strip_prefix('<').unwrap().split_once('>').unwrap();
        assert_eq!(rest, "; rel=\"authentication\"");
        let told = send(&rig, Method::GET, place, &[], &Value::Null).await.ok().unwrap();
        let schemes: Vec<_> = told["schemes"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(
            (schemes, &told["required"]),
            (known.iter().map(|it| (*it).to_owned()).collect(), &json!(true))
        );
        assert!(told.get("permissions").is_none(), "{told}");
    }
    let open = send(&rig, Method::GET, "/connect/agents/open/authentication", &[], &Value::Null);
    let open = open.await.ok().unwrap();
    assert_eq!((&open["required"], &open["security"]), (&json!(false), &json!([{}])));
}

#[tokio::test]
async fn who_shows_nothing_lists_nothing() {
    let rig = rig().await;
    let mut closed = Vec::new();
    for operation in ConnectOptions::default().operations() {
        let path = operation.path.replace("{agent_id}", "open").replace(['{', '}'], "");
        let method = Method::from_bytes(operation.method.as_bytes()).unwrap();
        let reply = send(&rig, method, &format!("/connect{path}"), &[], &Value::Null).await;
        if reply.status == 401 {
            closed.push(operation.name);
        }
    }
    closed.sort_unstable();
    // All other operations name an agent, or an object by an id that only its creator knows.
    let lists = [
        "connect_list_thread_runs",
        "connect_search_agents",
        "connect_search_configurations",
        "connect_search_runs",
        "connect_search_threads",
    ];
    assert_eq!(closed, lists);
}

#[tokio::test]
async fn where_no_agent_takes_them_callers_without_a_token_see_what_everybody_may() {
    let rig = Rig::start().await;
    let mut open = Vec::new();
    for operation in ConnectOptions::default().operations() {
        let path = operation.path.replace("{agent_id}", "puppet").replace(['{', '}'], "");
        let method = Method::from_bytes(operation.method.as_bytes()).unwrap();
        let path = format!("/connect{path}");
        for headers in [&[][..], &[("x-api-key", "wrong".to_owned())]] {
            let reply = send(&rig, method.clone(), &path, headers, &Value::Null).await;
            if reply.status != 401 {
                assert_eq!(reply.status, 200, "{operation:?}: {}", reply.json());
                open.push(operation.name);
            }
        }
    }
    open.sort_unstable();
    open.dedup();
    // Other operations that reveal an agent are closed, unless the operator publishes the agents.
    let told = [
        "connect_get_agent_authentication",
        "connect_get_authentication",
        "connect_get_openapi",
        "connect_list_errors",
    ];
    assert_eq!(open, told);
}

#[tokio::test]
async fn without_a_token_a_hidden_agent_and_one_that_never_was_look_alike() {
    for takes_anybody in [false, true] {
        let options = Options { public_agents: false, ..options() };
        let options = match takes_anybody {
            true => options,
            false => Options { agent_schemes: HashMap::new(), anonymous: None, ..options },
        };
        let agents = AGENTS.iter().map(|(name, _)| Quick::new(name) as _).collect();
        let rig = Rig::of(Setup { options, agents, ..Setup::default() }).await;
        let wrong = [("x-api-key", "wrong".to_owned())];
        for (method, path, body) in [
            (Method::GET, "/agents/AGENT/openapi", Value::Null),
            (Method::GET, "/agents/AGENT", Value::Null),
            (Method::GET, "/agents/AGENT/descriptor", Value::Null),
            (Method::POST, "/agents/AGENT/configurations", Value::Null),
            (Method::POST, "/runs", json!({"agent_id": "AGENT", "input": {}})),
            (Method::POST, "/runs/wait", json!({"agent_id": "AGENT", "input": {}})),
            (Method::POST, "/threads/t/runs/stream", json!({"agent_id": "AGENT", "input": {}})),
        ] {
            for headers in [&[][..], &wrong[..]] {
                let ask = async |agent: &str| {
                    let path = format!("/connect{}", path.replace("AGENT", agent));
                    let body = body.to_string().replace("AGENT", agent);
                    let body = serde_json::from_str(&body).unwrap();
                    let reply = send(&rig, method.clone(), &path, headers, &body).await;
                    let id = reply.headers["x-request-id"].to_str().unwrap();
                    let told = String::from_utf8_lossy(&reply.body).replace(id, "");
                    let link = reply.headers.get("link").cloned();
                    (reply.status, told, challenges(&reply), link)
                };
                let hidden = ask("plain").await;
                let missing = ask("never").await;
                assert_eq!(hidden, missing, "{method} {path} {headers:?} {takes_anybody}");
                assert_eq!(hidden.0, 401, "{method} {path} {headers:?}: {}", hidden.1);
            }
        }
    }
}

/// The document requires this without credentials. It does not reveal which ids agents have.
#[tokio::test]
async fn what_an_agent_accepts_is_told_to_everybody() {
    let options = Options { public_agents: false, ..options() };
    let agents = AGENTS.iter().map(|(name, _)| Quick::new(name) as _).collect();
    let rig = Rig::of(Setup { options, agents, ..Setup::default() }).await;
    for headers in [vec![], vec![("x-api-key", "wrong".to_owned())]] {
        let ask = async |agent: &str| {
            let path = format!("/connect/agents/{agent}/authentication");
            send(&rig, Method::GET, &path, &headers, &Value::Null).await.ok().unwrap()
        };
        assert_eq!(ask("plain").await, ask("never").await);
        let basic = ask("basic").await;
        assert_eq!(basic["schemes"].as_object().unwrap().keys().collect::<Vec<_>>(), ["basic"]);
        assert!(basic.get("agent_id").is_none(), "{basic}");
    }
}

#[tokio::test]
async fn callers_without_a_token_see_their_own_runs_by_id_and_no_others() {
    let rig = rig().await;
    let create = json!({"agent_id": "open", "input": {"mine": true}, "on_completion": "keep"});
    let made = send(&rig, Method::POST, "/connect/runs", &[], &create).await.ok().unwrap();
    let run = text(&made, "/run_id");
    let path = format!("/connect/runs/{run}/wait");
    let waited = send(&rig, Method::GET, &path, &[], &Value::Null).await.ok().unwrap();
    assert_eq!(waited["output"]["values"], json!({"mine": true}));
    // A caller with a token has created this run, of the same agent.
    let bearer = [("authorization", "Bearer alpha-alice".to_owned())];
    let made = send(&rig, Method::POST, "/connect/runs", &bearer, &create).await.ok().unwrap();
    for (method, rest) in [
        (Method::GET, ""),
        (Method::GET, "/wait"),
        (Method::GET, "/stream"),
        (Method::POST, ""),
        (Method::POST, "/cancel"),
        (Method::DELETE, ""),
    ] {
        let path = format!("/connect/runs/{}{rest}", text(&made, "/run_id"));
        let reply = send(&rig, method.clone(), &path, &[], &json!({})).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (404, "run_not_found"),
            "{method} {path}"
        );
    }
    let thread = send(&rig, Method::POST, "/connect/threads", &bearer, &json!({})).await;
    let path = format!("/connect/threads/{}", text(&thread.ok().unwrap(), "/thread_id"));
    for (method, rest) in [
        (Method::GET, ""),
        (Method::GET, "/history"),
        (Method::PATCH, ""),
        (Method::POST, "/copy"),
        (Method::DELETE, ""),
    ] {
        let path = format!("{path}{rest}");
        let reply = send(&rig, method.clone(), &path, &[], &json!({})).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (404, "thread_not_found"),
            "{method} {path}"
        );
    }
    // Their runs belong to them through a random id; a guessable key would give the runs to others.
    let keyed = [("idempotency-key", "one".to_owned())];
    let refused = send(&rig, Method::POST, "/connect/runs", &keyed, &create).await;
    assert_eq!(refused.status, 422, "{}", refused.json());
}

#[tokio::test]
async fn callers_without_a_token_get_no_callbacks() {
    let rig = rig().await;
    for callback in [json!({"webhook": "https://example.com/"}), json!({"callback": "http://x/"})] {
        let mut body = json!({"agent_id": "open", "input": {}});
        body.as_object_mut().unwrap().extend(callback.as_object().unwrap().clone());
        let refused = send(&rig, Method::POST, "/connect/runs", &[], &body).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{body}");
    }
    let runs = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
    assert_eq!(runs["items"], json!([]));
}

#[tokio::test]
async fn what_a_server_cannot_check_it_does_not_promise() {
    let start = async |options: Options| {
        let store = std::sync::Arc::new(trilogue_store::memory::MemoryStore::default());
        let ports = crate::rig::ports(store).await;
        Server::start(options, &[], ports, Vec::new()).map(drop).map_err(|error| error.to_string())
    };
    let principal = principal("local", "local");
    let unchecked = Options { access: Access::Open(principal), ..options() };
    assert!(start(unchecked).await.unwrap_err().contains("authentication is off"));
    let nameless = Options { anonymous: None, ..options() };
    assert!(start(nameless).await.unwrap_err().contains("'open'"));
    start(options()).await.unwrap();
}

#[tokio::test]
async fn who_is_not_known_is_told_what_the_agent_takes_where_no_agent_is_open() {
    let (key, basic) = ([Scheme::ApiKey], [Scheme::Basic]);
    let agent_schemes = [("key", &key[..]), ("basic", &basic[..])]
        .map(|(name, schemes)| (AgentName::parse(name).unwrap(), schemes.to_vec()));
    let options = Options {
        agent_schemes: HashMap::from(agent_schemes),
        public_agents: true,
        ..Options::default()
    };
    let agents = ["basic", "key"].map(|name| Quick::new(name) as _);
    let rig = Rig::of(Setup { options, agents: agents.into(), ..Setup::default() }).await;
    let ways = [
        "ApiKey realm=\"trilogue\", header=\"x-api-key\"",
        "Basic realm=\"trilogue\", charset=\"UTF-8\"",
        "Bearer realm=\"trilogue\"",
    ];
    let wrong = [("authorization", "Bearer wrong".to_owned())];
    let of =
        |agent: &str| format!("</connect/agents/{agent}/authentication>; rel=\"authentication\"");
    let own = "</connect/authentication>; rel=\"authentication\"".to_owned();
    for (path, body, way, link) in [
        ("/runs", json!({"agent_id": "basic"}), &ways[1..2], of("basic")),
        ("/runs/wait", json!({"agent_id": "basic", "input": 5}), &ways[1..2], of("basic")),
        ("/threads/t/runs/stream", json!({"agent_id": "key"}), &ways[..1], of("key")),
        ("/configurations", json!({"agent_id": "key"}), &ways[..1], of("key")),
        ("/agents/key/configurations", Value::Null, &ways[..1], of("key")),
        // A request without an agent goes to the first one.
        ("/runs", json!({}), &ways[1..2], of("basic")),
        ("/runs", Value::Null, &ways[1..2], of("basic")),
        ("/runs", json!({"agent_id": "nobody"}), &[ways[0], ways[2]][..], own.clone()),
        ("/runs", json!({"configuration_id": "x"}), &[ways[0], ways[2]][..], own.clone()),
        ("/runs", json!(5), &[ways[0], ways[2]][..], own.clone()),
        (
            "/runs",
            json!({"agent_id": "basic", "input": "x".repeat(70_000)}),
            &[ways[0], ways[2]][..],
            own,
        ),
    ] {
        for headers in [&[][..], &wrong[..]] {
            let path = format!("/connect{path}");
            let reply = send(&rig, Method::POST, &path, headers, &body).await;
            let about = format!("{path} {way:?}: {}", reply.json());
            assert_eq!((reply.status, reply.code().as_str()), (401, "unauthenticated"), "{about}");
            assert_eq!(challenges(&reply), way, "{about}");
            assert_eq!(reply.headers["link"], link, "{about}");
        }
    }
}

#[tokio::test]
async fn callers_without_a_token_do_what_they_like_with_threads_of_their_own() {
    let rig = rig().await;
    let send = async |method: Method, path: &str, body: Value| {
        let reply = send(&rig, method, &format!("/connect/threads{path}"), &[], &body).await;
        assert!(reply.status < 300, "{path}: {}", reply.json());
        reply
    };
    let made = send(Method::POST, "", json!({})).await.json();
    let path = format!("/{}", text(&made, "/thread_id"));
    let run = json!({"agent_id": "open", "input": {"n": 1}});
    send(Method::POST, &format!("{path}/runs/wait"), run).await;
    assert_eq!(send(Method::GET, &path, Value::Null).await.json()["values"], json!({"n": 1}));
    let history = send(Method::GET, &format!("{path}/history"), Value::Null).await.json();
    assert_eq!(history.as_array().unwrap().len(), 1);
    let copy = send(Method::POST, &format!("{path}/copy"), Value::Null).await.json();
    assert_eq!(copy["values"], json!({"n": 1}));
    let patch = json!({"values": {"n": 2}});
    assert_eq!(send(Method::PATCH, &path, patch).await.json()["values"], json!({"n": 2}));
    send(Method::DELETE, &path, Value::Null).await;
}
