//! Abbreviated ids.

use trilogue_domain::{IdKind, Scope, ShortId};
use trilogue_store::Change;

use crate::harness::{World, alice, contract, own_scope, tenant_scope, thread_row};

contract!(
    ids_are_meant_by_their_beginning_and_by_their_last_group,
    a_whole_id_is_the_only_one_that_it_means,
    an_abbreviation_means_nothing_outside_of_its_scope,
);

const FIRST: &str = "0199f3a2-1b2c-7abc-8def-3f9c45a01b2d";
const SECOND: &str = "0199f3a2-1b2c-7abc-8def-3f9d00000000";

async fn resolve(world: &World, scope: &Scope, kind: IdKind, text: &str) -> Vec<String> {
    let short = ShortId::parse(text).unwrap();
    world.store.resolve_short_id(scope, kind, &short, 10).await.unwrap()
}

async fn ids_are_meant_by_their_beginning_and_by_their_last_group(world: World) {
    let mut log = world.thread(FIRST).await;
    world.thread("lunch-2").await;
    let mut hidden = thread_row(world.store.next_thread_key(), &alice(), SECOND);
    hidden.ephemeral = true;
    world.create(hidden).await.unwrap();
    let run = log.start("0199f3a2-1b2c-7abc-8def-aaaa45a01b2d").await;
    let interrupt = log.interrupt("0199f3a2-1b2c-7abc-8def-bbbb45a01b2d", &run);
    log.write([Change::Interrupt(Box::new(interrupt))]).await;
    for (kind, text, ids) in [
        (IdKind::Thread, "3f9c", &[FIRST][..]),
        (IdKind::Thread, "3F9C45", &[FIRST]),
        (IdKind::Thread, "3f9d", &[SECOND]),
        (IdKind::Thread, "0199", &[FIRST, SECOND]),
        (IdKind::Thread, "lunch", &["lunch-2"]),
        (IdKind::Thread, "7abc", &[]),
        (IdKind::Thread, "aaaa", &[]),
        (IdKind::Thread, "%%%%", &[]),
        (IdKind::Run, "aaaa", &["0199f3a2-1b2c-7abc-8def-aaaa45a01b2d"]),
        (IdKind::Run, "3f9c", &[]),
        (IdKind::Interrupt, "bbbb", &["0199f3a2-1b2c-7abc-8def-bbbb45a01b2d"]),
    ] {
        assert_eq!(resolve(&world, &alice(), kind, text).await, ids, "{text}");
    }
    let short = ShortId::parse("0199").unwrap();
    let one = world.store.resolve_short_id(&alice(), IdKind::Thread, &short, 1).await.unwrap();
    assert_eq!(one, [FIRST]);
}

async fn a_whole_id_is_the_only_one_that_it_means(world: World) {
    for id in ["lunch", "lunch-2", "3f9c", FIRST] {
        world.thread(id).await;
    }
    for text in ["lunch", "3f9c", FIRST] {
        assert_eq!(resolve(&world, &alice(), IdKind::Thread, text).await, [text]);
    }
    assert_eq!(resolve(&world, &alice(), IdKind::Thread, "3f9c4").await, [FIRST]);
}

async fn an_abbreviation_means_nothing_outside_of_its_scope(world: World) {
    let mut log = world.thread_of(&own_scope("default", "alice"), FIRST).await;
    log.start(SECOND).await;
    world.thread_of(&own_scope("default", "bob"), "0199f3a2-0000-7abc-8def-3f9c00000000").await;
    let bobs = own_scope("default", "bob");
    assert_eq!(
        resolve(&world, &bobs, IdKind::Thread, "3f9c").await,
        ["0199f3a2-0000-7abc-8def-3f9c00000000"]
    );
    assert_eq!(resolve(&world, &bobs, IdKind::Run, "3f9d").await, [""; 0]);
    assert_eq!(resolve(&world, &tenant_scope("other"), IdKind::Thread, "3f9c").await, [""; 0]);
    assert_eq!(resolve(&world, &tenant_scope("default"), IdKind::Thread, "3f9c").await.len(), 2);
}
