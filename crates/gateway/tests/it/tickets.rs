//! Tickets: how a page in a browser opens a WebSocket, which carries no token.

use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use trilogue_gateway::Options;
use trilogue_testkit::Client;
use trilogue_testkit::client::Reply;

use crate::rig::{Rig, text};
use crate::websocket::{Head, bridge, open_raw};

const APP: &str = "https://app.example.com";
const OTHER: &str = "https://other.example.com";

async fn rig() -> Rig {
    let allowed_origins = vec![APP.to_owned(), OTHER.to_owned()];
    Rig::with(Options { allowed_origins, ..Options::default() }).await
}

async fn ask(client: &Client, headers: &[(&str, &str)]) -> Reply {
    client.send(Method::POST, "/api/v1/tickets", headers, Bytes::new()).await.unwrap()
}

async fn ticket(client: &Client) -> String {
    let reply = ask(client, &[("origin", APP)]).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    text(&reply.json(), "/protocol").to_owned()
}

/// Opens a WebSocket as a browser does: with an origin and subprotocols, and without a token.
async fn open(rig: &Rig, origin: &str, protocols: &str) -> (Head, tokio::net::TcpStream) {
    let headers =
        [("authorization", ""), ("origin", origin), ("sec-websocket-protocol", protocols)];
    open_raw(rig, &headers).await
}

#[tokio::test]
async fn a_page_opens_one_websocket_with_a_ticket() {
    let rig = rig().await;
    let ticket = ticket(&rig.alice()).await;
    let (head, stream) = open(&rig, APP, &ticket).await;
    assert_eq!((head.status, &head.headers["sec-websocket-protocol"]), (101, &ticket), "{head:?}");
    let socket = WebSocketStream::from_partially_read(stream, head.rest, Role::Client, None).await;
    let mut editor = bridge(socket);
    editor.initialize(json!({})).await;
    let session = editor.session().await;
    editor.prompt(&session, "hello").await;
    let thread = rig.alice().get(&format!("/api/v1/threads/{session}")).await.unwrap();
    assert_eq!(thread.status, 200, "it is the principal of the token");
    assert_eq!(open(&rig, APP, &ticket).await.0.status, 401, "it is used");
}

#[tokio::test]
async fn a_ticket_is_refused_elsewhere_and_after_its_token() {
    let rig = rig().await;
    let elsewhere = ticket(&rig.alice()).await;
    assert_eq!(open(&rig, OTHER, &elsewhere).await.0.status, 401);
    assert_eq!(open(&rig, APP, &elsewhere).await.0.status, 401, "a refused use counts too");
    assert_eq!(open(&rig, "", &ticket(&rig.alice()).await).await.0.status, 401, "no origin");
    assert_eq!(open(&rig, APP, "trilogue.ticket.tril_x").await.0.status, 401);
    assert_eq!(open(&rig, APP, "acp").await.0.status, 401);
    let (short, path) = rig.short_lived().await;
    let revoked = ticket(&short).await;
    rig.revoke(&path).await;
    assert_eq!(open(&rig, APP, &revoked).await.0.status, 401);
    // It opens nothing but a WebSocket of a client, and only in that place.
    let spare = ticket(&rig.alice()).await;
    for (path, name, value) in [
        ("/api/v1/agents", "sec-websocket-protocol", spare.clone()),
        ("/communication/agents", "sec-websocket-protocol", spare.clone()),
        ("/client/puppet", "sec-websocket-protocol", spare.clone()),
        ("/client/puppet", "authorization", format!("Bearer {spare}")),
    ] {
        let headers = [("origin", APP), (name, &*value)];
        let reply = rig.stranger().send(Method::GET, path, &headers, Bytes::new()).await.unwrap();
        assert_eq!(reply.status, 401, "{path} {name}");
    }
    assert_eq!(open(&rig, APP, &spare).await.0.status, 101);
}

#[tokio::test]
async fn only_pages_with_a_token_get_tickets() {
    let rig = rig().await;
    assert_eq!(ask(&rig.alice(), &[]).await.code(), "invalid_request");
    assert_eq!(ask(&rig.stranger(), &[("origin", APP)]).await.status, 401);
    let own = format!("http://{}", rig.address);
    let session = rig.old_session("alpha", "alice").await;
    let mut headers: Vec<_> = session.iter().map(|(name, value)| (*name, value.as_str())).collect();
    headers.push(("origin", &own));
    let refused = ask(&rig.stranger(), &headers).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{refused:?}");
    let unused = async || ask(&rig.alice(), &[("origin", APP)]).await.status;
    let mut statuses = Vec::new();
    for _ in 0..33 {
        statuses.push(unused().await);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 32);
    assert_eq!(statuses.last(), Some(&429));
}
