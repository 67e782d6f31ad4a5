//! The inspector's page, and a browser's sign-in to it.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{Rights, Timestamp};
use trilogue_gateway::{CommunicationOptions, Mount, Options};
use trilogue_testkit::Client;
use trilogue_testkit::client::Reply;

use crate::rig::{Rig, Setup, text};

/// The header that the page sends before it has a session.
const PAGE: (&str, &str) = ("trilogue-page", "1");

/// The parts of a session that a browser and its page send back.
struct Session {
    cookie: String,
    page: String,
}

impl Session {
    /// The two parts of a sign-in's session.
    fn of(signed_in: &Reply) -> Self {
        assert_eq!(signed_in.status, 200, "{}", signed_in.json());
        let cookie = header(signed_in, "set-cookie");
        for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/api/v1", "; Max-Age=604800"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        let cookie = cookie.split_once(';').unwrap().0.to_owned();
        Self { cookie, page: text(&signed_in.json(), "/page_secret").to_owned() }
    }

    async fn alice(rig: &Rig) -> Self {
        Self::of(&sign_in(rig, &code(rig, "alpha", "alice").await).await)
    }

    fn headers(&self) -> [(&str, &str); 2] {
        [("cookie", &self.cookie), ("trilogue-page", &self.page)]
    }

    async fn send(&self, rig: &Rig, method: Method, path: &str, body: &Value) -> Reply {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        rig.stranger().send(method, path, &self.headers(), body).await.unwrap()
    }

    async fn get(&self, rig: &Rig, path: &str) -> Reply {
        self.send(rig, Method::GET, path, &Value::Null).await
    }
}

fn with_inspector(prefix: &str) -> Options {
    Options { inspector: Some(prefix.to_owned()), ..Options::default() }
}

pub(crate) async fn sign_in(rig: &Rig, code: &str) -> Reply {
    let body = Bytes::from(json!({ "code": code }).to_string());
    let headers = [PAGE, ("content-type", "application/json")];
    rig.stranger().send(Method::POST, "/api/v1/sign-in", &headers, body).await.unwrap()
}

/// The code of a new link of this caller.
pub(crate) async fn code(rig: &Rig, tenant: &str, principal: &str) -> String {
    let client = rig.as_(tenant, principal);
    let link = client.post("/api/v1/sign-in-links", &Value::Null).await.unwrap().ok().unwrap();
    let (page, code) = text(&link, "/url").split_once("#sign-in=").unwrap();
    assert_eq!(page, format!("http://{}/", rig.address));
    code.to_owned()
}

fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply.headers.get(name).unwrap().to_str().unwrap()
}

#[tokio::test]
async fn a_link_becomes_a_session_with_the_rights_of_its_token() {
    let rig = Rig::with(with_inspector("")).await;
    let rights = [trilogue_domain::Right::Read].into_iter().collect::<Rights>();
    rig.token("alpha", "reader", rights, true).await;
    let session = Session::of(&sign_in(&rig, &code(&rig, "alpha", "reader").await).await);
    let caller = session.get(&rig, "/api/v1/caller").await.ok().unwrap();
    assert_eq!(caller["principal"], "reader");
    assert_eq!(caller["rights"], json!(["read"]));
    assert_eq!(caller["own"], true);
    assert!(caller["session_expires_at"].is_string());
    let run = json!({"agent": "puppet", "input": "x"});
    let refused = session.send(&rig, Method::POST, "/api/v1/runs", &run).await;
    assert_eq!(refused.code(), "forbidden");
}

#[tokio::test]
async fn a_code_works_once_and_for_pages_only() {
    let rig = Rig::with(with_inspector("")).await;
    let code = code(&rig, "alpha", "alice").await;
    let form = json!({ "code": code });
    let refused = rig.stranger().post("/api/v1/sign-in", &form).await.unwrap();
    assert_eq!(refused.code(), "invalid_request");
    Session::of(&sign_in(&rig, &code).await);
    assert_eq!(sign_in(&rig, &code).await.code(), "unauthenticated");
    assert_eq!(sign_in(&rig, "tril_guessed").await.code(), "unauthenticated");
}

#[tokio::test]
async fn a_code_lives_for_ten_minutes() {
    let rig = Rig::with(with_inspector("")).await;
    let before = SystemClock.now();
    let link = rig.alice().post("/api/v1/sign-in-links", &Value::Null).await.unwrap();
    let end = Timestamp::parse(text(&link.ok().unwrap(), "/expires_at")).unwrap();
    let life = Duration::from_secs(10 * 60);
    assert!((before.after(life)..=SystemClock.now().after(life)).contains(&end), "{end}");
}

#[tokio::test]
async fn a_look_at_a_link_says_whose_it_is_and_leaves_it() {
    let rig = Rig::with(with_inspector("")).await;
    let code = code(&rig, "alpha", "alice").await;
    let look = async |code: &str, headers: &[(&str, &str)]| {
        let body = Bytes::from(json!({ "code": code }).to_string());
        let path = "/api/v1/sign-in-links/look-up";
        rig.stranger().send(Method::POST, path, headers, body).await.unwrap()
    };
    let page = [PAGE, ("content-type", "application/json")];
    for _ in 0..2 {
        let owner = look(&code, &page).await.ok().unwrap();
        assert_eq!(owner, json!({ "tenant": "alpha", "principal": "alice" }));
    }
    assert_eq!(look(&code, &page[1..]).await.code(), "invalid_request");
    assert_eq!(look("tril_guessed", &page).await.code(), "unauthenticated");
    Session::of(&sign_in(&rig, &code).await);
    assert_eq!(look(&code, &page).await.code(), "unauthenticated");
}

#[tokio::test]
async fn a_session_needs_both_halves_and_is_no_token() {
    let rig = Rig::with(with_inspector("")).await;
    let session = Session::alice(&rig).await;
    let [cookie, page] = session.headers();
    let (_, secret) = session.cookie.split_once('=').unwrap();
    let both = format!("{secret}.{}", session.page);
    let run = Bytes::from(json!({"agent": "puppet", "input": "x"}).to_string());
    let run = async |path: &str, headers: &[(&str, &str)]| {
        rig.stranger().send(Method::POST, path, headers, run.clone()).await.unwrap()
    };
    assert_eq!(run("/api/v1/runs", &[cookie, page]).await.status, 200);
    let foreign = ("origin", "http://evil.example");
    assert_eq!(run("/api/v1/runs", &[cookie, page, foreign]).await.code(), "origin_not_allowed");
    for secret in [secret, session.page.as_str(), both.as_str()] {
        let bearer = format!("Bearer {secret}");
        for headers in [
            &[("authorization", bearer.as_str())][..],
            &[("x-api-key", secret)],
            &[("authorization", bearer.as_str()), cookie, page],
        ] {
            assert_eq!(run("/api/v1/runs", headers).await.code(), "unauthenticated", "{headers:?}");
        }
    }
    for headers in [&[cookie][..], &[page], &[cookie, PAGE]] {
        assert_eq!(run("/api/v1/runs", headers).await.code(), "unauthenticated", "{headers:?}");
        let read = rig.stranger().send(Method::GET, "/api/v1/threads", headers, Bytes::new()).await;
        assert_eq!(read.unwrap().code(), "unauthenticated", "{headers:?}");
    }
    // The other protocols accept no session in any form.
    let scheme = format!("Session {both}");
    for path in ["/communication/runs", "/connect/runs"] {
        assert_eq!(run(path, &[cookie, page]).await.status, 401, "{path}");
        assert_eq!(run(path, &[("authorization", &scheme)]).await.status, 401, "{path}");
    }
    // A token is not accepted as a session.
    let token = [("authorization", "Session alpha-alice")];
    assert_eq!(run("/api/v1/runs", &token).await.code(), "unauthenticated");
}

#[tokio::test]
async fn an_old_session_reads_the_status_and_needs_a_new_sign_in_for_what_outlives_it() {
    let rig = Rig::with(with_inspector("")).await;
    rig.token("alpha", "bob", trilogue_domain::Rights::all(), false).await;
    let body = json!({"agent": "puppet", "input": "x", "thread_id": "of-bob", "create_thread": true, "mode": "wait"});
    let bob = rig.as_("alpha", "bob");
    let run = bob.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let run = format!("/api/v1/runs/{}", text(&run, "/id"));
    let tokens = bob.get("/api/v1/tokens").await.unwrap().ok().unwrap();
    let is_of_bob = |row: &&Value| row["principal"] == "bob";
    let of_bob = tokens["items"].as_array().unwrap().iter().find(is_of_bob).unwrap();
    let of_bob = format!("/api/v1/tokens/{}", text(of_bob, "/id"));
    let fresh = Session::alice(&rig).await;
    let [(_, cookie), (_, page)] = rig.old_session("alpha", "alice").await;
    let old = Session { cookie, page };
    assert_eq!(old.get(&rig, "/api/v1/status").await.status, 200);
    let token = json!({"label": "x"});
    for (method, path, body) in [
        (Method::POST, "/api/v1/backup", &Value::Null),
        (Method::POST, "/api/v1/tokens", &token),
        (Method::POST, "/api/v1/sign-in-links", &Value::Null),
        (Method::POST, "/api/v1/nodes/main/drain", &Value::Null),
        (Method::DELETE, "/api/v1/nodes/main/drain", &Value::Null),
        (Method::DELETE, &run, &Value::Null),
        (Method::DELETE, "/api/v1/threads/of-bob", &Value::Null),
        (Method::DELETE, &of_bob, &Value::Null),
    ] {
        let refused = old.send(&rig, method.clone(), path, body).await;
        assert_eq!(refused.code(), "forbidden", "{path}");
        assert!(text(&refused.json(), "/hint").contains("trilogue ui"), "{path}");
        let allowed = fresh.send(&rig, method, path, body).await;
        assert_ne!(allowed.code(), "forbidden", "{path}");
    }
    assert_eq!(bob.get("/api/v1/threads").await.unwrap().status, 401, "the token is revoked");
    let own = json!({"agent": "puppet", "input": "x", "thread_id": "own", "create_thread": true, "mode": "wait"});
    let own = old.send(&rig, Method::POST, "/api/v1/runs", &own).await;
    assert_eq!(own.status, 200);
    let run = format!("/api/v1/runs/{}", text(&own.json(), "/id"));
    assert_eq!(old.send(&rig, Method::DELETE, &run, &Value::Null).await.status, 204);
    assert_eq!(
        old.send(&rig, Method::DELETE, "/api/v1/threads/own", &Value::Null).await.status,
        204
    );
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_by_signing_out() {
    let rig = Rig::of(Setup { on_disk: true, ..with_inspector("").into() }).await;
    let (client, path) = rig.short_lived().await;
    let link = client.post("/api/v1/sign-in-links", &Value::Null).await.unwrap().ok().unwrap();
    let (_, code) = text(&link, "/url").split_once("#sign-in=").unwrap();
    let session = Session::of(&sign_in(&rig, code).await);
    assert_eq!(session.get(&rig, "/api/v1/threads").await.status, 200);
    let unused = client.post("/api/v1/sign-in-links", &Value::Null).await.unwrap().ok().unwrap();
    rig.revoke(&path).await;
    assert_eq!(session.get(&rig, "/api/v1/threads").await.status, 401);
    let (_, code) = text(&unused, "/url").split_once("#sign-in=").unwrap();
    assert_eq!(sign_in(&rig, code).await.code(), "unauthenticated");

    let session = Session::alice(&rig).await;
    let out = session.send(&rig, Method::POST, "/api/v1/sign-out", &Value::Null).await;
    assert!(header(&out, "set-cookie").contains("Max-Age=0"));
    assert_eq!(session.get(&rig, "/api/v1/threads").await.status, 401);
    let refused = rig.alice().post("/api/v1/sign-out", &Value::Null).await.unwrap();
    assert_eq!(refused.code(), "invalid_request");
    assert_eq!(rig.alice().get("/api/v1/threads").await.unwrap().status, 200);
}

#[tokio::test]
async fn the_page_runs_nothing_but_its_own_files() {
    let rig = Rig::with(with_inspector("")).await;
    let page = rig.stranger().get("/").await.unwrap();
    assert_eq!(page.status, 200);
    let policy = header(&page, "content-security-policy");
    for directive in [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(directive), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers.get("x-frame-options").map(|it| it.to_str().unwrap()), Some("DENY"));
    let html = String::from_utf8(page.body.to_vec()).unwrap();
    let main = html.split('"').find(|it| it.ends_with("/main.js")).unwrap();
    let plain = rig.stranger().get(main).await.unwrap();
    assert_eq!(
        plain.headers.get("content-type").map(|it| it.to_str().unwrap()),
        Some("text/javascript; charset=utf-8")
    );
    assert!(header(&plain, "cache-control").contains("immutable"));
    let gzip = [("accept-encoding", "br, gzip;q=0.9")];
    let small = rig.stranger().send(Method::GET, main, &gzip, Bytes::new()).await.unwrap();
    assert_eq!(small.headers.get("content-encoding").map(|it| it.to_str().unwrap()), Some("gzip"));
    assert_eq!(small.body[..2], [0x1f, 0x8b]);
    let old = main.replace("/assets/", "/assets/0");
    for path in [old.as_str(), "/assets/x/../main.js", "/nothing"] {
        assert_eq!(rig.stranger().get(path).await.unwrap().code(), "not_found", "{path}");
    }
}

#[tokio::test]
async fn the_page_can_be_elsewhere_or_nowhere() {
    let mounts = vec![Mount::new(CommunicationOptions::default(), "/").unwrap()];
    let setup = Setup { mounts: Some(mounts), ..with_inspector("/inspector").into() };
    let rig = Rig::with(setup).await;
    for path in ["/inspector", "/inspector/"] {
        let page = rig.stranger().get(path).await.unwrap();
        assert!(
            String::from_utf8(page.body.to_vec()).unwrap().contains("/inspector/assets/"),
            "{path}"
        );
    }
    let link = rig.alice().post("/api/v1/sign-in-links", &Value::Null).await.unwrap();
    assert!(text(&link.ok().unwrap(), "/url").contains("/inspector/#sign-in="));
    let rig = Rig::start().await;
    assert_eq!(rig.stranger().get("/").await.unwrap().code(), "not_found");
    let link = rig.alice().post("/api/v1/sign-in-links", &Value::Null).await.unwrap();
    assert_eq!(link.code(), "not_found");
}

#[tokio::test]
async fn texts_are_drawn_as_safe_html() {
    let rig = Rig::start().await;
    let texts = json!({"items": [
        {"markdown": "*a* <script>x</script>"},
        {"before": "a\n", "after": "b\n"},
    ]});
    let drawn = rig.alice().post("/api/v1/draw", &texts).await.unwrap().ok().unwrap();
    assert_eq!(drawn["items"][0]["html"], "<p><em>a</em> &lt;script&gt;x&lt;/script&gt;</p>\n");
    assert!(text(&drawn, "/items/1/html").contains("class=\"added\""));
    let much = json!({"items": [{"markdown": "x".repeat(256 * 1024 + 1)}]});
    assert_eq!(rig.alice().post("/api/v1/draw", &much).await.unwrap().code(), "body_too_large");
}

#[tokio::test]
async fn a_text_that_nests_without_end_is_drawn_to_a_limit() {
    let rig = Rig::start().await;
    for (text, tag) in [
        (">".repeat(64 * 1024), "<blockquote>"),
        (format!("{}a", "- ".repeat(32 * 1024)), "<ul>"),
        (format!("{}a{}", "*a ".repeat(8_000), " b*".repeat(8_000)), "<em>"),
    ] {
        let texts = json!({"items": [{"markdown": text}]});
        let drawn = rig.alice().post("/api/v1/draw", &texts).await.unwrap().ok().unwrap();
        let html = self::text(&drawn, "/items/0/html");
        assert!(html.matches(tag).count() <= 32, "{tag}: {}", html.matches(tag).count());
        assert!(html.len() >= text.len() / 4, "the text is still there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drawings_of_one_principal_leave_a_processor_to_others() {
    let rig = Rig::start().await;
    rig.token("alpha", "bob", Rights::all(), false).await;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = 2 * processors + 6;
    let draw = |client: Client, text: String| async move {
        let texts = json!({"items": [{"markdown": text}]});
        client.post("/api/v1/draw", &texts).await.unwrap().ok().unwrap();
    };
    let mut pending = tokio::task::JoinSet::new();
    for number in 0..count {
        // Each is another text: what was drawn is not drawn again.
        let text = format!("{number} {}", "**a** `b` [c](d) ".repeat(6_000));
        pending.spawn(draw(rig.alice(), text));
    }
    pending.join_next().await.unwrap().unwrap();
    draw(rig.as_("alpha", "bob"), "short".to_owned()).await;
    while let Some(ended) = pending.try_join_next() {
        ended.unwrap();
    }
    // If all of them had waited for processors, this one would have waited behind all.
    assert!(pending.len() > processors, "{} of {count} are left", pending.len());
}
