//! What a tunnel carries must be for the host that it was opened to.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trilogue_broker::{AgentAccess, ConnectionOutcome, Unlisted};

use crate::fixtures::{TestBroker, check_echo, echo_host, listed, read_to_end, rules, serve_host};

const AUTHORITY: &[u8] = include_bytes!("../../../testkit/fixtures/tls/authority.pem");
const SERVER: &[u8] = include_bytes!("../../../testkit/fixtures/tls/server.pem");

fn client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(AUTHORITY).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

async fn tls_echo_host() -> u16 {
    let certificates = CertificateDer::pem_slice_iter(SERVER).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(SERVER).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(certificates, key).unwrap()));
    serve_host(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut piece = [0; 5];
            while stream.read_exact(&mut piece).await.is_ok() {
                stream.write_all(&piece).await.unwrap();
            }
        }
    })
    .await
}

/// Returns the first bytes of a client of TLS.
fn hello(name: &'static str) -> Vec<u8> {
    let name = ServerName::try_from(name).unwrap();
    let mut connection = ClientConnection::new(client_config(), name).unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn tls_passes_with_the_name_of_the_tunnel() {
    let port = tls_echo_host().await;
    let broker = TestBroker::start(listed(&["localhost:*"], Unlisted::Refuse)).await;
    let (stream, _) = broker.open_tunnel(&format!("localhost:{port}"), "").await;
    let connector = TlsConnector::from(client_config());
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
}

#[tokio::test]
async fn a_tunnel_with_the_name_of_another_host_ends() {
    let port = echo_host().await;
    let by_name = || listed(&["localhost:*", "allowed.example:*"], Unlisted::Refuse);
    let by_address = || listed(&["127.0.0.1:*", "allowed.example:*"], Unlisted::Refuse);
    let below_ceiling = || AgentAccess {
        ceiling: Some(rules(&["localhost:*", "127.0.0.1:*"])),
        ..AgentAccess::default()
    };
    let request = |host: &str| format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n").into_bytes();
    let (mut two_hosts, mut long) = (request("localhost"), hello("localhost"));
    two_hosts.splice(16..16, b"Host: a.example\r\n".to_owned());
    // The length of a record, which then does not come to its end in time.
    long.truncate(3);
    long.extend_from_slice(&[0x3f, 0xff, 1, 0, 0x3f, 0xf0]);
    long.resize(16 * 1024, 0);
    for (case, access, target, first, passes) in [
        ("the name", by_name(), "localhost", hello("localhost"), true),
        ("no name", by_name(), "localhost", hello("127.0.0.1"), true),
        ("another listed name", by_name(), "localhost", hello("allowed.example"), false),
        ("a longer name", by_name(), "localhost", hello("localhost.example"), false),
        ("a listed name at an address", by_address(), "127.0.0.1", hello("allowed.example"), true),
        ("a name at an address", by_address(), "127.0.0.1", hello("a.example"), false),
        ("a name beyond the ceiling", below_ceiling(), "127.0.0.1", hello("a.example"), false),
        ("beyond the ceiling", below_ceiling(), "localhost", hello("a.example"), false),
        ("everything is open", AgentAccess::default(), "127.0.0.1", hello("a.example"), true),
        ("its request", by_name(), "localhost", request(&format!("LOCALHOST:{port}")), true),
        ("another request", by_name(), "localhost", request("a.example"), false),
        ("a request with two hosts", by_name(), "localhost", two_hosts, false),
        ("a long handshake", by_name(), "localhost", long, false),
        ("another protocol", by_name(), "localhost", b"\x05\x01\0".to_vec(), true),
    ] {
        // In small pieces, so that no single read has it all.
        for size in [1, first.len()] {
            let mut broker = TestBroker::start(access.clone()).await;
            let (mut stream, _) = broker.open_tunnel(&format!("{target}:{port}"), "").await;
            if passes {
                send_pieces(&mut stream, &first, size).await;
                check_back(&mut stream, &first).await;
                drop(stream);
                assert!(broker.record().await.outcome.is_allowed(), "{case}");
            } else {
                send_pieces(&mut stream, &first, size).await;
                assert_eq!(read_to_end(&mut stream).await, "", "{case}");
                let record = broker.record().await;
                assert_eq!(record.outcome, ConnectionOutcome::Mismatch, "{case}");
                assert_eq!(record.sent_bytes, 0, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn a_host_may_speak_first() {
    let port = serve_host(async |mut stream: TcpStream| {
        stream.write_all(b"220 ready\r\n").await.unwrap();
        let (mut read, mut write) = stream.split();
        drop(tokio::io::copy(&mut read, &mut write).await);
    })
    .await;
    let broker = TestBroker::start(listed(&["127.0.0.1:*"], Unlisted::Refuse)).await;
    let (mut stream, _) = broker.open_tunnel(&format!("127.0.0.1:{port}"), "").await;
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
    check_echo(&mut stream, b"EHLO a.example\r\n").await;
}

async fn send_pieces(stream: &mut TcpStream, bytes: &[u8], size: usize) {
    stream.set_nodelay(true).unwrap();
    for piece in bytes.chunks(size) {
        // The broker may have ended the tunnel.
        if stream.write_all(piece).await.is_err() {
            return;
        }
    }
}

async fn check_back(stream: &mut TcpStream, bytes: &[u8]) {
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(back, bytes);
}
