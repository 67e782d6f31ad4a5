//! Tokens: found by hash, listed by tenant, with the union of their rights.

use trilogue_domain::limits::{MAX_SIGN_IN_LINKS, MAX_SIGN_IN_LINKS_PER_TOKEN};
use trilogue_domain::{Code, Right};
use trilogue_store::rows::{SignInLinkRow, TokenRow};

use crate::harness::{World, at, code, contract, principal, tenant_scope};
use crate::rows;

contract!(
    a_token_is_found_by_its_hash,
    a_token_is_revoked_in_its_tenant_only,
    rights_are_those_of_valid_tokens,
    a_link_for_signing_in_works_once_and_for_a_while,
);

fn token(id: &str, hash: u8, tenant: &str, rights: &[Right]) -> TokenRow {
    let rights = rights.iter().copied().collect();
    TokenRow { hash: [hash; 32], created_at: at(1), ..rows::token_row(tenant, id, rights) }
}

async fn a_token_is_found_by_its_hash(world: World) {
    let row = token("k-1", 1, "default", &[Right::Read]);
    let expired = TokenRow { expires_at: Some(at(2)), ..token("k-2", 2, "default", &[]) };
    world.store.put_token(row.clone()).await.unwrap();
    world.store.put_token(expired.clone()).await.unwrap();
    assert_eq!(world.store.token(&[1; 32]).await.unwrap(), Some(row.clone()));
    assert_eq!(world.store.token(&[2; 32]).await.unwrap(), Some(expired.clone()));
    assert_eq!(world.store.token(&[3; 32]).await.unwrap(), None);
    let tenant = tenant_scope("default").tenant;
    assert_eq!(world.store.tokens(&tenant).await.unwrap(), [expired, row]);
    assert_eq!(world.store.tokens(&tenant_scope("other").tenant).await.unwrap(), []);
    for taken in [token("k-1", 9, "default", &[]), token("k-9", 1, "other", &[])] {
        assert_eq!(code(world.store.put_token(taken).await), Code::AlreadyExists);
    }
}

async fn a_token_is_revoked_in_its_tenant_only(world: World) {
    let row = token("k", 1, "default", &[Right::Read]);
    world.store.put_token(row.clone()).await.unwrap();
    let revoke = async |tenant| {
        world.store.revoke_token(&tenant_scope(tenant).tenant, &row.id).await.unwrap()
    };
    assert_eq!(revoke("other").await, None);
    assert_eq!(revoke("default").await, Some(row.clone()));
    assert_eq!(revoke("default").await, None);
    assert_eq!(world.store.token(&[1; 32]).await.unwrap(), None);
}

async fn rights_are_those_of_valid_tokens(world: World) {
    let short = token("s", 1, "default", &[Right::Run]);
    let short = TokenRow { expires_at: Some(at(10)), own: true, ..short };
    let bob = TokenRow { principal: principal("bob"), ..token("b", 2, "default", &[Right::Admin]) };
    for row in
        [short, bob, token("l", 3, "default", &[Right::Read]), token("o", 4, "other", &Right::ALL)]
    {
        world.store.put_token(row).await.unwrap();
    }
    let rights = async |name, now| {
        let tenant = tenant_scope("default").tenant;
        let rights = world.store.rights_of(&tenant, &principal(name), at(now)).await.unwrap();
        [rights.own, rights.anywhere].map(|rights| rights.iter().collect::<Vec<_>>())
    };
    // A token with `own` counts only for what its principal has created.
    let expected = |own: &[Right], anywhere: &[Right]| [own.to_vec(), anywhere.to_vec()];
    let (read, both) = ([Right::Read], [Right::Read, Right::Run]);
    assert_eq!(rights("alice", 9).await, expected(&both, &read));
    assert_eq!(rights("alice", 10).await, expected(&read, &read));
    assert_eq!(rights("bob", 9).await, expected(&[Right::Admin], &[Right::Admin]));
    assert_eq!(rights("carol", 9).await, expected(&[], &[]));
}

async fn a_link_for_signing_in_works_once_and_for_a_while(world: World) {
    let store = &world.store;
    let link = |code: u8| SignInLinkRow { code: [code; 32], token: [9; 32], expires_at: at(10) };
    for code in [1, 2] {
        store.put_sign_in_link(link(code), at(0)).await.unwrap();
    }
    let get = async |code: u8, now| store.sign_in_link(&[code; 32], at(now)).await.unwrap();
    let take = async |code: u8, now| store.take_sign_in_link(&[code; 32], at(now)).await.unwrap();
    assert_eq!(get(1, 9).await, Some(link(1)), "a look leaves it");
    assert_eq!(get(2, 10).await, None, "it has expired");
    assert_eq!(take(1, 9).await, Some(link(1)));
    assert_eq!(get(1, 9).await, None, "it was used");
    assert_eq!(take(1, 9).await, None, "it was used");
    assert_eq!(take(2, 10).await, None, "it has expired");
    assert_eq!(take(3, 0).await, None);
    store.put_sign_in_link(link(4), at(0)).await.unwrap();
    let (one, other) = tokio::join!(take(4, 1), take(4, 1));
    assert_eq!(usize::from(one.is_some()) + usize::from(other.is_some()), 1);
    for number in 0..MAX_SIGN_IN_LINKS {
        let [mut code, mut token] = [[7; 32]; 2];
        code[..8].copy_from_slice(&number.to_le_bytes());
        token[..8].copy_from_slice(&(number / MAX_SIGN_IN_LINKS_PER_TOKEN).to_le_bytes());
        if number == MAX_SIGN_IN_LINKS_PER_TOKEN {
            let mut more = SignInLinkRow { token, ..link(8) };
            more.token[..8].fill(0);
            let refused = store.put_sign_in_link(more, at(0)).await;
            assert_eq!(self::code(refused), Code::Overloaded, "the links of one token");
        }
        store.put_sign_in_link(SignInLinkRow { code, token, ..link(7) }, at(0)).await.unwrap();
    }
    assert_eq!(code(store.put_sign_in_link(link(8), at(9)).await), Code::Overloaded);
    store.put_sign_in_link(link(8), at(10)).await.unwrap();
}
