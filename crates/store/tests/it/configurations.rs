//! Configured instances: their owners, their expiry, and that they are kept.

use std::time::Duration;

use serde_json::json;
use trilogue_domain::{Code, ConfigurationId, Json, Scope, Timestamp, limits};
use trilogue_store::open;
use trilogue_store::rows::{ConfigurationFilter, ConfigurationRow, Page};

use crate::harness::{
    World, agent, alice, at, code, contract, options, own_scope, page, principal, tenant_scope,
};
use crate::rows;

contract!(
    an_instance_is_created_changed_and_removed,
    an_id_is_taken_until_its_instance_has_expired,
    an_instance_is_seen_by_its_tenant_and_owner_alone,
    instances_of_an_agent_are_listed_newest_first,
    what_has_expired_is_not_there_and_is_removed,
    an_instance_that_is_too_large_is_refused,
);

fn id(text: &str) -> ConfigurationId {
    rows::configuration_id(text)
}

fn row(scope: &Scope, name: &str) -> ConfigurationRow {
    ConfigurationRow {
        owner: scope.owner.clone().unwrap_or_else(|| principal("alice")),
        agent: agent("mail"),
        name: Some("formal".to_owned()),
        config: Json::from_value(&json!({"style": "formal"})),
        created_at: at(10),
        updated_at: at(10),
        ..rows::configuration_row(scope.tenant.as_str(), name)
    }
}

async fn create(world: &World, row: &ConfigurationRow) {
    world.store.create_configuration(row.clone()).await.unwrap();
}

async fn find_configuration(
    world: &World,
    scope: &Scope,
    name: &str,
    now: i64,
) -> Option<ConfigurationRow> {
    world.store.configuration(scope, &id(name), at(now)).await.unwrap()
}

async fn listed(
    world: &World,
    scope: &Scope,
    metadata: &[(&str, &str)],
    page: Page,
) -> (Vec<String>, Option<i64>) {
    let metadata = metadata.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let filter = ConfigurationFilter { agent: agent("mail"), metadata };
    let listing = world.store.configurations(scope, &filter, &page, at(20)).await.unwrap();
    (listing.rows.into_iter().map(|row| row.id.to_string()).collect(), listing.next)
}

async fn an_instance_is_created_changed_and_removed(world: World) {
    let first = row(&alice(), "one");
    create(&world, &first).await;
    assert_eq!(find_configuration(&world, &alice(), "one", 20).await, Some(first.clone()));
    let changed = ConfigurationRow {
        name: None,
        config: Json::from_value(&json!({"style": "friendly"})),
        updated_at: at(30),
        ..first
    };
    assert!(world.store.update_configuration(&alice(), changed.clone()).await.unwrap());
    assert_eq!(find_configuration(&world, &alice(), "one", 40).await, Some(changed.clone()));
    let missing = ConfigurationRow { id: id("two"), ..changed };
    assert!(!world.store.update_configuration(&alice(), missing).await.unwrap());
    assert!(world.store.remove_configuration(&alice(), &id("one")).await.unwrap());
    assert!(!world.store.remove_configuration(&alice(), &id("one")).await.unwrap());
    assert_eq!(find_configuration(&world, &alice(), "one", 40).await, None);
}

async fn an_id_is_taken_until_its_instance_has_expired(world: World) {
    let first = ConfigurationRow { expires_at: Some(at(50)), ..row(&alice(), "one") };
    create(&world, &first).await;
    let again = ConfigurationRow { created_at: at(49), ..row(&alice(), "one") };
    let refused = world.store.create_configuration(again.clone()).await;
    assert_eq!(code(refused), Code::AlreadyExists);
    assert_eq!(find_configuration(&world, &alice(), "one", 49).await, Some(first));
    // The same id in another tenant is another instance.
    create(&world, &row(&tenant_scope("other"), "one")).await;
    let again = ConfigurationRow { created_at: at(50), ..again };
    create(&world, &again).await;
    assert_eq!(find_configuration(&world, &alice(), "one", 60).await, Some(again));
}

async fn an_instance_is_seen_by_its_tenant_and_owner_alone(world: World) {
    let bob = own_scope("default", "bob");
    let of_bob = row(&bob, "bobs");
    create(&world, &of_bob).await;
    assert_eq!(find_configuration(&world, &alice(), "bobs", 20).await, Some(of_bob.clone()));
    assert_eq!(find_configuration(&world, &bob, "bobs", 20).await, Some(of_bob.clone()));
    for stranger in [own_scope("default", "carol"), tenant_scope("other")] {
        assert_eq!(find_configuration(&world, &stranger, "bobs", 20).await, None);
        let taken = ConfigurationRow { name: Some("mine".to_owned()), ..of_bob.clone() };
        assert!(!world.store.update_configuration(&stranger, taken).await.unwrap());
        assert!(!world.store.remove_configuration(&stranger, &id("bobs")).await.unwrap());
        assert_eq!(listed(&world, &stranger, &[], page(9, None)).await.0, [""; 0]);
    }
    assert_eq!(find_configuration(&world, &bob, "bobs", 20).await, Some(of_bob));
}

async fn instances_of_an_agent_are_listed_newest_first(world: World) {
    for (name, number) in [("a", 1), ("b", 2), ("c", 1), ("d", 2), ("e", 1)] {
        let metadata = Json::from_value(&json!({"n": number, "l": [number]}));
        create(&world, &ConfigurationRow { metadata, ..row(&alice(), name) }).await;
    }
    let other = ConfigurationRow { agent: agent("echo"), ..row(&alice(), "z") };
    create(&world, &other).await;
    // A change does not move it in the list.
    let changed = ConfigurationRow { updated_at: at(15), ..row(&alice(), "a") };
    assert!(world.store.update_configuration(&alice(), changed).await.unwrap());
    let (first, next) = listed(&world, &alice(), &[], page(2, None)).await;
    assert_eq!(first, ["e", "d"]);
    let (rest, next) = listed(&world, &alice(), &[], page(9, next)).await;
    assert_eq!((rest, next), (vec!["c".to_owned(), "b".to_owned(), "a".to_owned()], None));
    let skipping = Page { skip: 1, ..page(1, None) };
    for wanted in [[("n", "1")], [("l", "[1]")]] {
        assert_eq!(listed(&world, &alice(), &wanted, page(9, None)).await.0, ["e", "c"]);
        assert_eq!(listed(&world, &alice(), &wanted, skipping.clone()).await.0, ["c"]);
    }
}

async fn what_has_expired_is_not_there_and_is_removed(world: World) {
    for (name, end) in [("a", Some(15)), ("b", Some(18)), ("c", Some(21)), ("d", None)] {
        let expires_at = end.map(Timestamp::from_micros);
        create(&world, &ConfigurationRow { expires_at, ..row(&alice(), name) }).await;
    }
    assert!(find_configuration(&world, &alice(), "a", 14).await.is_some());
    assert_eq!(find_configuration(&world, &alice(), "a", 15).await, None);
    assert_eq!(listed(&world, &alice(), &[], page(9, None)).await.0, ["d", "c"]);
    let late = ConfigurationRow { updated_at: at(19), ..row(&alice(), "b") };
    assert!(!world.store.update_configuration(&alice(), late).await.unwrap());
    assert_eq!(world.store.expire_configurations(at(20), 1).await.unwrap(), 1);
    assert_eq!(world.store.expire_configurations(at(20), 9).await.unwrap(), 1);
    assert_eq!(world.store.expire_configurations(at(20), 9).await.unwrap(), 0);
    assert_eq!(listed(&world, &alice(), &[], page(9, None)).await.0, ["d", "c"]);
}

async fn an_instance_that_is_too_large_is_refused(world: World) {
    let text = "x".repeat(limits::MAX_CONFIGURATION_BYTES);
    let large = ConfigurationRow { config: Json::from_value(&json!(text)), ..row(&alice(), "one") };
    assert_eq!(code(world.store.create_configuration(large.clone()).await), Code::InvalidRequest);
    create(&world, &row(&alice(), "one")).await;
    assert_eq!(code(world.store.update_configuration(&alice(), large).await), Code::InvalidRequest);
    assert_eq!(find_configuration(&world, &alice(), "one", 20).await, Some(row(&alice(), "one")));
}

#[tokio::test]
async fn instances_survive_a_restart_and_are_in_a_backup() {
    let world = World::sqlite().await;
    let kept = ConfigurationRow { expires_at: Some(at(99)), ..row(&alice(), "one") };
    create(&world, &kept).await;
    create(&world, &row(&alice(), "gone")).await;
    assert!(world.store.remove_configuration(&alice(), &id("gone")).await.unwrap());
    // Removing a thread does not affect them.
    let mut log = world.thread("t").await;
    log.write([trilogue_store::Change::RemoveThread]).await;
    let world = world.reopen().await;
    assert_eq!(find_configuration(&world, &alice(), "one", 20).await, Some(kept.clone()));
    assert_eq!(find_configuration(&world, &alice(), "gone", 20).await, None);
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    world.store.backup(&copy).await.unwrap();
    assert!(trilogue_store::sqlite::verify(&copy).unwrap().is_sound());
    let restored = open(&format!("sqlite:{}", copy.display()), options()).await.unwrap();
    let now = at(20).after(Duration::ZERO);
    assert_eq!(restored.configuration(&alice(), &id("one"), now).await.unwrap(), Some(kept));
}
