//! Tests of the outbound client with real sockets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed expectation ends the test")]

mod websocket;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use trilogue_egress::{AddressClass, Client, Error, Options, Policy};

/// Sends these bytes to every connection, chunk by chunk, and keeps it open.
async fn serve(pieces: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, pieces));
        }
    });
    address
}

async fn answer(mut stream: TcpStream, pieces: &'static [&'static str]) {
    let mut request = [0_u8; 4096];
    let _read = stream.read(&mut request).await.unwrap();
    for piece in pieces {
        stream.write_all(piece.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }
    std::future::pending::<()>().await;
}

/// Returns limits that no peer of these tests reaches, except the size.
fn small() -> Options {
    Options {
        connect_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(60),
        total_timeout: Some(Duration::from_secs(60)),
        max_response_bytes: 16,
        ..Options::default()
    }
}

fn get(url: &str) -> http::Request<Bytes> {
    http::Request::get(url).body(Bytes::new()).unwrap()
}

async fn fetch(policy: Policy, options: Options, url: &str) -> Result<(StatusCode, Bytes), Error> {
    let client = Client::new(policy, options)?;
    let (status, _, body) = client.send(get(url)).await?;
    Ok((status, body.collect().await?))
}

fn refusal_class(result: Result<(StatusCode, Bytes), Error>) -> AddressClass {
    match result.unwrap_err() {
        error @ Error::Refused { class, .. } => {
            assert_eq!(error.code(), "egress_refused");
            assert!(error.hint().unwrap().contains("[egress] allow"));
            class
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_loopback_address_is_refused_however_it_is_written() {
    let port = serve(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"]).await.port();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
    ] {
        let url = format!("http://{host}:{port}/");
        let class = refusal_class(fetch(Policy::default(), small(), &url).await);
        assert_eq!(class, AddressClass::Loopback, "{host}");
    }
    let url = format!("http://0.0.0.0:{port}/");
    assert_eq!(
        refusal_class(fetch(Policy::default(), small(), &url).await),
        AddressClass::Unspecified
    );
}

#[tokio::test]
async fn ssrf_to_cloud_metadata_is_refused() {
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "2852039166"] {
        let url = format!("http://{host}/latest/meta-data/");
        let class = refusal_class(fetch(Policy::local(), small(), &url).await);
        assert_eq!(class, AddressClass::LinkLocal, "{host}");
    }
}

#[tokio::test]
async fn a_local_server_is_reached_under_the_local_policy_and_by_name() {
    let port = serve(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"]).await.port();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{port}/");
        let answer = fetch(Policy::local(), small(), &url).await;
        assert_eq!(answer, Ok((StatusCode::OK, Bytes::from_static(b"hi"))), "{host}");
    }
}

#[tokio::test]
async fn an_operator_allows_one_block_and_no_other() {
    let port = serve(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"]).await.port();
    let url = format!("http://127.0.0.1:{port}/");
    let policy = Policy { allow: vec!["127.0.0.1/32".parse().unwrap()] };
    assert!(fetch(policy.clone(), small(), &url).await.is_ok());
    let mapped = format!("http://[::ffff:127.0.0.1]:{port}/");
    assert!(fetch(policy, small(), &mapped).await.is_ok());
    let other = Policy { allow: vec!["127.0.0.2/32".parse().unwrap()] };
    assert_eq!(refusal_class(fetch(other, small(), &url).await), AddressClass::Loopback);
}

#[tokio::test]
async fn a_redirect_is_a_response_and_is_not_followed() {
    let target =
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
    let pieces: &'static [&'static str] = Box::leak(Box::new([target]));
    let port = serve(pieces).await.port();
    let answer = fetch(Policy::local(), small(), &format!("http://127.0.0.1:{port}/")).await;
    assert_eq!(answer.map(|(status, _)| status), Ok(StatusCode::FOUND));
}

#[tokio::test]
async fn other_schemes_and_credentials_in_the_address_are_refused() {
    let client = Client::new(Policy::local(), small()).unwrap();
    for url in ["ftp://example.com/", "gopher://127.0.0.1/", "http://user:secret@127.0.0.1/"] {
        let error = client.send(get(url)).await.map(drop).unwrap_err();
        assert!(matches!(error, Error::BadUrl(_)), "{url}: {error:?}");
        assert_eq!(error.code(), "egress_refused");
        assert!(!error.to_string().contains("secret"));
    }
}

#[tokio::test]
async fn a_response_that_is_too_large_is_cut_off() {
    let said = serve(&["HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n"]).await;
    let endless = serve(&[
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "8\r\n01234567\r\n",
        "8\r\n01234567\r\n",
        "8\r\n01234567\r\n",
    ])
    .await;
    for address in [said, endless] {
        let answer = fetch(Policy::local(), small(), &format!("http://{address}/")).await;
        assert!(matches!(answer, Err(Error::TooLarge { limit: 16, .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn a_peer_that_stops_in_the_middle_is_given_up() {
    let silent = serve(&[]).await;
    let stalled = serve(&["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhi"]).await;
    for address in [silent, stalled] {
        let options = Options { idle_timeout: Duration::from_millis(300), ..small() };
        let answer = fetch(Policy::local(), options, &format!("http://{address}/")).await;
        assert!(matches!(answer, Err(Error::TimedOut { .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn the_whole_exchange_has_a_deadline() {
    let stalled = serve(&["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhi"]).await;
    let options = Options { total_timeout: Some(Duration::from_millis(200)), ..small() };
    let answer = fetch(Policy::local(), options, &format!("http://{stalled}/")).await;
    let limit = Duration::from_millis(200);
    assert_eq!(
        answer,
        Err(Error::TimedOut { host: "127.0.0.1".to_owned(), limit, is_unreached: false })
    );
}

#[tokio::test]
async fn a_refused_name_tells_nothing_of_the_servers_network() {
    let strict = Client::new(Policy::default(), small()).unwrap();
    let refused = strict.check("http://localhost:9/x").await.unwrap_err();
    let unknown = strict.check("http://nothing.invalid:9/x").await.unwrap_err();
    let sent = fetch(Policy::default(), small(), "http://localhost:9/x").await.unwrap_err();
    for error in [&refused, &sent] {
        assert_eq!(error.code(), "egress_refused");
        assert_eq!(error.to_string(), "'localhost' stands for no address that may be reached");
        let said = format!("{error} {error:?} {}", error.hint().unwrap());
        for told in ["127.", "::1", "loopback"] {
            assert!(!said.contains(told), "{said}");
        }
    }
    // An internal name and an unknown name give the same error.
    assert_eq!(unknown.to_string().replace("nothing.invalid", "localhost"), refused.to_string());
    assert_eq!((unknown.code(), unknown.hint()), (refused.code(), refused.hint()));
    // The operator learns the problem of a name in a request; a caller does not.
    let missing =
        fetch(Policy::default(), small(), "http://nothing.invalid:9/x").await.unwrap_err();
    assert_eq!(missing.code(), "peer_unavailable");
    assert!(!missing.is_refusal(), "it may be known later");
    assert_eq!(missing.conceal(), unknown);
    assert_eq!(sent.clone().conceal(), sent);
}

#[tokio::test]
async fn an_address_is_checked_without_being_called() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let strict = Client::new(Policy::default(), small()).unwrap();
    let local = Client::new(Policy::local(), small()).unwrap();
    for host in ["127.0.0.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "127.1"] {
        let url = format!("http://{host}:{port}/x");
        let refused = strict.check(&url).await.unwrap_err();
        assert!(matches!(refused, Error::Refused { class: AddressClass::Loopback, .. }), "{url}");
        assert!(refused.hint().unwrap().contains("[egress] allow"), "{refused}");
        local.check(&url).await.unwrap();
    }
    strict.check("https://93.184.215.14/x").await.unwrap();
    for bad in ["ftp://example.com/", "x", "", "http://user:pass@example.com/"] {
        let error = strict.check(bad).await.unwrap_err();
        assert!(matches!(error, Error::BadUrl(_)), "{bad}: {error:?}");
        assert!(!error.to_string().contains("pass"), "{error}");
    }
    local.check(&format!("http://localhost:{port}/x")).await.unwrap();
    // The check has opened no connection: this connection is the first.
    let first = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    assert_eq!(listener.accept().await.unwrap().1, first.local_addr().unwrap());
}
