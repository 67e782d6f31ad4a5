//! A revocation that overtakes a lookup of the same token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;
use trilogue_domain::{PrincipalId, Result, Rights, TenantId, Timestamp, TokenId};
use trilogue_gateway::{Mount, Options, Server};
use trilogue_store::Tokens;
use trilogue_store::memory::MemoryStore;
use trilogue_store::rows::{PrincipalRights, SignInLinkRow, TokenRow};
use trilogue_testkit::Client;

use crate::rig::{LIMIT, ports};

/// The store's tokens. The first lookup of the slow token reads its row, and returns it only once the test allows it.
#[derive(Debug)]
struct SlowLookUp {
    store: Arc<MemoryStore>,
    slow: [u8; 32],
    is_first: AtomicBool,
    has_read: Notify,
    may_return: Notify,
}

// === impl SlowLookUp ===

#[async_trait]
impl Tokens for SlowLookUp {
    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        let row = self.store.token(hash).await?;
        if *hash == self.slow && self.is_first.swap(false, Ordering::SeqCst) {
            self.has_read.notify_one();
            self.may_return.notified().await;
        }
        Ok(row)
    }

    async fn put_token(&self, token: TokenRow) -> Result<()> {
        self.store.put_token(token).await
    }

    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>> {
        self.store.tokens(tenant).await
    }

    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>> {
        self.store.revoke_token(tenant, id).await
    }

    async fn put_sign_in_link(&self, link: SignInLinkRow, now: Timestamp) -> Result<()> {
        self.store.put_sign_in_link(link, now).await
    }

    async fn sign_in_link(&self, code: &[u8; 32], now: Timestamp) -> Result<Option<SignInLinkRow>> {
        self.store.sign_in_link(code, now).await
    }

    async fn take_sign_in_link(
        &self,
        code: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<SignInLinkRow>> {
        self.store.take_sign_in_link(code, now).await
    }

    async fn rights_of(
        &self,
        tenant: &TenantId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<PrincipalRights> {
        self.store.rights_of(tenant, principal, now).await
    }
}

fn row(secret: &str) -> TokenRow {
    TokenRow {
        id: TokenId::generate(),
        label: secret.to_owned(),
        hash: Sha256::digest(secret).into(),
        tenant: TenantId::parse("alpha").unwrap(),
        principal: PrincipalId::parse("alice").unwrap(),
        rights: Rights::all(),
        own: false,
        created_at: Timestamp::from_micros(0),
        expires_at: None,
        session_of: None,
    }
}

#[tokio::test]
async fn a_look_up_that_a_revocation_overtakes_lets_nobody_in() {
    let store = Arc::new(MemoryStore::default());
    let (admin, lost) = (row("admin"), row("lost"));
    store.put_token(admin).await.unwrap();
    store.put_token(lost.clone()).await.unwrap();
    let tokens = Arc::new(SlowLookUp {
        store: Arc::clone(&store),
        slow: lost.hash,
        is_first: AtomicBool::new(true),
        has_read: Notify::new(),
        may_return: Notify::new(),
    });
    let mut ports = ports(store).await;
    ports.tokens = Arc::<SlowLookUp>::clone(&tokens);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let _server =
        Server::start(Options::default(), &Mount::defaults(), ports, vec![listener]).unwrap();
    let client = |secret: &str| Client::new(address).with_token(secret.to_owned());

    let early = tokio::spawn({
        let thief = client("lost");
        async move { thief.get("/api/v1/agents").await.unwrap().status }
    });
    timeout(LIMIT, tokens.has_read.notified()).await.unwrap();
    let path = format!("/api/v1/tokens/{}", lost.id.as_str());
    let gone =
        client("admin").send(http::Method::DELETE, &path, &[], bytes::Bytes::new()).await.unwrap();
    assert_eq!(gone.status, 204, "{}", gone.json());
    tokens.may_return.notify_one();
    assert_eq!(timeout(LIMIT, early).await.unwrap().unwrap(), 401);
    assert_eq!(client("lost").get("/api/v1/agents").await.unwrap().status, 401);
}
