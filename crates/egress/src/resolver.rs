//! Resolves names to checked addresses.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::Error;
use crate::policy::Policy;

/// Finds the addresses of a name. Tests have their own, whose answers change.
pub(crate) type LookUp = fn(String) -> FoundAddresses;
pub(crate) type FoundAddresses = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// As the system resolves names.
pub(crate) fn system_look_up(host: String) -> FoundAddresses {
    Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.collect()) })
}

/// Resolves a name and returns its addresses only if the policy allows all of them.
/// The connection uses these addresses, so an attacker cannot replace them in between.
#[derive(Debug)]
pub(crate) struct CheckedResolver {
    pub(crate) policy: Policy,
    pub(crate) look_up: LookUp,
}

// === impl CheckedResolver ===

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, look_up) = (self.policy.clone(), self.look_up);
        Box::pin(async move {
            let host = name.as_str();
            let unknown = |reason: String| Error::UnknownName { host: host.to_owned(), reason };
            let found = look_up(host.to_owned()).await;
            let found = found.map_err(|error| unknown(error.to_string()))?;
            if found.is_empty() {
                return Err(unknown("its name has no address".to_owned()).into());
            }
            policy.check_name(host, &found)?;
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::client::{Client, Options};

    /// A peer on 127.0.0.1 that answers one request, and the URL of its port under a name.
    async fn peer() -> (TcpListener, http::Request<Bytes>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let request = http::Request::get(format!("http://name.example:{port}/"));
        (listener, request.body(Bytes::new()).unwrap())
    }

    fn client(look_up: LookUp) -> Client {
        Client::with_look_up(Policy::local(), Options::default(), look_up).unwrap()
    }

    #[tokio::test]
    async fn the_connection_goes_to_the_address_that_was_checked() {
        static LOOKED_UP: AtomicU8 = AtomicU8::new(0);
        // Each look-up gives another address: a name that is resolved twice leads elsewhere.
        fn rebinding(_: String) -> FoundAddresses {
            let last = LOOKED_UP.fetch_add(1, Ordering::Relaxed) + 1;
            Box::pin(async move { Ok(vec![SocketAddr::from(([127, 0, 0, last], 0))]) })
        }
        let (listener, request) = peer().await;
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _read = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        });
        let (status, ..) = client(rebinding).send(request).await.unwrap();
        answering.await.unwrap();
        assert_eq!((status.as_u16(), LOOKED_UP.load(Ordering::Relaxed)), (200, 1));
    }

    #[tokio::test]
    async fn a_name_with_one_refused_address_gets_no_connection_at_all() {
        fn mixed(_: String) -> FoundAddresses {
            let addresses = [[127, 0, 0, 1], [169, 254, 169, 254]];
            Box::pin(async move { Ok(addresses.map(|it| SocketAddr::from((it, 0))).to_vec()) })
        }
        let (listener, request) = peer().await;
        let url = request.uri().to_string();
        let client = client(mixed);
        let refused = client.send(request).await.map(|(status, ..)| status).unwrap_err();
        assert!(matches!(refused, Error::RefusedName { .. }), "{refused:?}");
        assert!(matches!(client.check(&url).await, Err(Error::RefusedName { .. })));
        let listener = listener.into_std().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
