//! The inspector's page, and how a browser signs in to it.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_domain::Rights;
use trilogue_gateway::{CommunicationOptions, Mount, Options};
use trilogue_testkit::client::Reply;

use crate::rig::{Rig, Setup, text};

const PAGE: (&str, &str) = ("trilogue-page", "1");

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

/// What a browser sends back of a cookie that it was given.
fn kept(signed_in: &Reply) -> String {
    assert_eq!(signed_in.status, 204, "{}", signed_in.json());
    let cookie = header(signed_in, "set-cookie");
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/api/v1", "; Max-Age=604800"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    cookie.split_once(';').unwrap().0.to_owned()
}

fn header<'a>(reply: &'a Reply, name: &str) -> &'a str {
    reply.headers.get(name).unwrap().to_str().unwrap()
}

async fn get(rig: &Rig, path: &str, cookie: &str) -> Reply {
    rig.stranger().send(Method::GET, path, &[("cookie", cookie)], Bytes::new()).await.unwrap()
}

#[tokio::test]
async fn a_link_becomes_a_session_with_the_rights_of_its_token() {
    let rig = Rig::with(with_inspector("")).await;
    let rights = [trilogue_domain::Right::Read].into_iter().collect::<Rights>();
    rig.token("alpha", "reader", rights, true).await;
    let cookie = kept(&sign_in(&rig, &code(&rig, "alpha", "reader").await).await);
    let caller = get(&rig, "/api/v1/caller", &cookie).await.ok().unwrap();
    assert_eq!(caller["principal"], "reader");
    assert_eq!(caller["rights"], json!(["read"]));
    assert_eq!(caller["own"], true);
    assert!(caller["session_expires_at"].is_string());
    let run = json!({"agent": "puppet", "input": "x"}).to_string();
    let headers = [("cookie", cookie.as_str()), PAGE];
    let refused = rig.stranger().send(Method::POST, "/api/v1/runs", &headers, run.into()).await;
    assert_eq!(refused.unwrap().code(), "forbidden");
}

#[tokio::test]
async fn a_code_works_once_and_for_pages_only() {
    let rig = Rig::with(with_inspector("")).await;
    let code = code(&rig, "alpha", "alice").await;
    let form = json!({ "code": code });
    let refused = rig.stranger().post("/api/v1/sign-in", &form).await.unwrap();
    assert_eq!(refused.code(), "invalid_request");
    kept(&sign_in(&rig, &code).await);
    assert_eq!(sign_in(&rig, &code).await.code(), "unauthenticated");
    assert_eq!(sign_in(&rig, "tril_guessed").await.code(), "unauthenticated");
}

#[tokio::test]
async fn a_cookie_changes_nothing_without_the_header_that_no_form_sends() {
    let rig = Rig::with(with_inspector("")).await;
    let cookie = kept(&sign_in(&rig, &code(&rig, "alpha", "alice").await).await);
    let cookie = ("cookie", cookie.as_str());
    let run = Bytes::from(json!({"agent": "puppet", "input": "x"}).to_string());
    let send = async |path: &str, headers: &[(&str, &str)]| {
        rig.stranger().send(Method::POST, path, headers, run.clone()).await.unwrap()
    };
    assert_eq!(send("/api/v1/runs", &[cookie]).await.code(), "unauthenticated");
    assert_eq!(send("/api/v1/runs", &[cookie, PAGE]).await.status, 200);
    let foreign = ("origin", "http://evil.example");
    assert_eq!(send("/api/v1/runs", &[cookie, PAGE, foreign]).await.code(), "origin_not_allowed");
    // The other faces know no cookies.
    for path in ["/communication/runs", "/connect/runs"] {
        assert_eq!(send(path, &[cookie, PAGE]).await.status, 401, "{path}");
    }
    assert_eq!(rig.stranger().get("/api/v1/threads").await.unwrap().status, 401);
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_by_signing_out() {
    let rig = Rig::of(Setup { on_disk: true, ..with_inspector("").into() }).await;
    let (client, path) = rig.short_lived().await;
    let link = client.post("/api/v1/sign-in-links", &Value::Null).await.unwrap().ok().unwrap();
    let (_, code) = text(&link, "/url").split_once("#sign-in=").unwrap();
    let cookie = kept(&sign_in(&rig, code).await);
    assert_eq!(get(&rig, "/api/v1/threads", &cookie).await.status, 200);
    let unused = client.post("/api/v1/sign-in-links", &Value::Null).await.unwrap().ok().unwrap();
    rig.revoke(&path).await;
    assert_eq!(get(&rig, "/api/v1/threads", &cookie).await.status, 401);
    let (_, code) = text(&unused, "/url").split_once("#sign-in=").unwrap();
    assert_eq!(sign_in(&rig, code).await.code(), "unauthenticated");

    let cookie = kept(&sign_in(&rig, &self::code(&rig, "alpha", "alice").await).await);
    let headers = [("cookie", cookie.as_str()), PAGE];
    let out = rig.stranger().send(Method::POST, "/api/v1/sign-out", &headers, Bytes::new()).await;
    assert!(header(&out.unwrap(), "set-cookie").contains("Max-Age=0"));
    assert_eq!(get(&rig, "/api/v1/threads", &cookie).await.status, 401);
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
