//! Filters on metadata, with hostile keys and values.

use serde_json::{Value, json};
use trilogue_domain::{Code, limits};
use trilogue_store::rows::{RunFilter, ThreadFilter};
use trilogue_store::{Change, Range};

use crate::harness::{World, alice, code, contract, page, tenant_scope, thread_row};

contract!(
    members_must_be_equal_in_value_and_kind,
    hostile_keys_and_values_are_only_text,
    arrays_and_objects_are_compared_too,
    a_filter_follows_changed_metadata,
    filtered_listings_have_pages,
    a_filter_that_leaves_too_many_candidates_is_refused,
    runs_are_filtered_by_their_own_metadata,
);

fn wanted(members: &[(&str, Value)]) -> Vec<(String, String)> {
    members.iter().map(|(key, value)| ((*key).to_owned(), value.to_string())).collect()
}

async fn thread_with(world: &World, id: &str, metadata: &Value) {
    let mut row = thread_row(world.store.next_thread_key(), &alice(), id);
    row.metadata = crate::harness::json(metadata);
    world.create(row).await.unwrap();
}

async fn matching_threads(world: &World, members: &[(&str, Value)]) -> Vec<String> {
    let filter = ThreadFilter { metadata: wanted(members), ..ThreadFilter::default() };
    let listing = world.store.threads(&alice(), &filter, &page(100, None)).await.unwrap();
    listing.rows.into_iter().map(|row| row.id.to_string()).collect()
}

async fn members_must_be_equal_in_value_and_kind(world: World) {
    thread_with(&world, "one", &json!({"a": 1, "b": "x"})).await;
    thread_with(&world, "text", &json!({"a": "1", "b": "x"})).await;
    thread_with(&world, "null", &json!({"a": null, "c": true})).await;
    thread_with(&world, "none", &json!({})).await;
    let nothing: [&str; 0] = [];
    assert_eq!(matching_threads(&world, &[("a", json!(1))]).await, ["one"]);
    assert_eq!(matching_threads(&world, &[("a", json!("1"))]).await, ["text"]);
    assert_eq!(matching_threads(&world, &[("a", json!(null))]).await, ["null"]);
    assert_eq!(matching_threads(&world, &[("b", json!("x"))]).await, ["text", "one"]);
    assert_eq!(matching_threads(&world, &[("b", json!("x")), ("a", json!(1))]).await, ["one"]);
    assert_eq!(matching_threads(&world, &[("c", json!(true))]).await, ["null"]);
    assert_eq!(matching_threads(&world, &[("c", json!(false))]).await, nothing);
    assert_eq!(matching_threads(&world, &[("missing", json!(null))]).await, nothing);
    assert_eq!(matching_threads(&world, &[]).await.len(), 4);
}

async fn hostile_keys_and_values_are_only_text(world: World) {
    let hostile = [
        "'",
        "\"",
        "' OR '1'='1",
        "a'); DROP TABLE threads; --",
        "$",
        "$.a",
        "$[0]",
        "a.b",
        "%",
        "_",
        "*",
        "",
        "ключ",
        "💥",
        "a\u{0}b",
        "\\",
        "\\u0000",
        "{}",
        "[]",
        "null",
        "?1",
        ":a",
        "@a",
        "\u{202e}x",
    ];
    thread_with(&world, "plain", &json!({"a": "b"})).await;
    for (number, text) in hostile.iter().enumerate() {
        let metadata = json!({ *text: text, "number": number });
        thread_with(&world, &format!("t{number}"), &metadata).await;
    }
    for (number, text) in hostile.iter().enumerate() {
        assert_eq!(
            matching_threads(&world, &[(text, json!(text))]).await,
            [format!("t{number}")],
            "{text:?}"
        );
        let nothing: [&str; 0] = [];
        assert_eq!(matching_threads(&world, &[("a", json!(text))]).await, nothing, "{text:?}");
        assert_eq!(matching_threads(&world, &[(text, json!("b"))]).await, nothing, "{text:?}");
    }
    assert_eq!(matching_threads(&world, &[("a", json!("b"))]).await, ["plain"]);
}

async fn arrays_and_objects_are_compared_too(world: World) {
    thread_with(&world, "list", &json!({"a": [1, 2], "b": 1})).await;
    thread_with(&world, "object", &json!({"a": {"x": 1}, "b": 1})).await;
    thread_with(&world, "text", &json!({"a": "[1,2]", "b": 1})).await;
    assert_eq!(matching_threads(&world, &[("a", json!([1, 2]))]).await, ["list"]);
    assert_eq!(
        matching_threads(&world, &[("a", json!({"x": 1})), ("b", json!(1))]).await,
        ["object"]
    );
    assert_eq!(matching_threads(&world, &[("a", json!("[1,2]"))]).await, ["text"]);
    let nothing: [&str; 0] = [];
    assert_eq!(matching_threads(&world, &[("a", json!([2, 1]))]).await, nothing);
}

async fn a_filter_follows_changed_metadata(world: World) {
    let mut log = world.thread("t").await;
    for (metadata, is_found) in [
        (json!({"a": 1}), true),
        (json!({"a": 2}), false),
        (json!({"a": 1, "b": 2}), true),
        (json!({}), false),
    ] {
        log.row.metadata = crate::harness::json(&metadata);
        let row = log.row.clone();
        log.write([Change::Thread(row)]).await;
        assert_eq!(
            !matching_threads(&world, &[("a", json!(1))]).await.is_empty(),
            is_found,
            "{metadata}"
        );
    }
    log.row.metadata = crate::harness::json(&json!({"a": 1}));
    let row = log.row.clone();
    log.write([Change::Thread(row)]).await;
    log.write([Change::RemoveThread]).await;
    let nothing: [&str; 0] = [];
    assert_eq!(matching_threads(&world, &[("a", json!(1))]).await, nothing);
}

async fn filtered_listings_have_pages(world: World) {
    for number in 0..9 {
        let metadata = json!({"odd": number % 2 == 1, "list": [number % 3]});
        thread_with(&world, &format!("t{number}"), &metadata).await;
    }
    for (members, expected) in [
        (wanted(&[("odd", json!(true))]), &["t7", "t5", "t3", "t1"][..]),
        (wanted(&[("list", json!([0]))]), &["t6", "t3", "t0"]),
    ] {
        let filter = ThreadFilter { metadata: members, ..ThreadFilter::default() };
        let (mut seen, mut after) = (Vec::new(), None);
        for _ in 0..expected.len() {
            let listing = world.store.threads(&alice(), &filter, &page(1, after)).await.unwrap();
            assert_eq!(listing.rows.len(), 1);
            seen.push(listing.rows[0].id.to_string());
            after = listing.next;
        }
        assert_eq!(seen, expected);
        assert_eq!(after, None);
    }
}

async fn a_filter_that_leaves_too_many_candidates_is_refused(world: World) {
    // Runs in batches: only the number of rows matters.
    let mut log = world.thread_of(&tenant_scope("crowd"), "t").await;
    for chunk in 0..limits::MAX_SEARCH_CANDIDATES / 500 + 1 {
        let rows: Vec<_> = (0..500)
            .map(|number| {
                let mut row = log.run_row(&format!("r-{chunk}-{number}"));
                row.metadata = crate::harness::json(&json!({"chunk": chunk, "list": [1]}));
                row
            })
            .collect();
        let mut step = log.step();
        for row in &rows {
            step = step.run(row);
        }
        step.commit().await.unwrap();
    }
    let runs = async |members: &[(&str, Value)]| {
        let filter = RunFilter { metadata: wanted(members), ..RunFilter::default() };
        let listing = world.store.runs(&tenant_scope("crowd"), &filter, &page(1_000, None)).await?;
        trilogue_domain::error::Result::Ok(listing.rows.len())
    };
    assert_eq!(code(runs(&[("list", json!([2]))]).await), Code::FilterTooBroad);
    assert_eq!(runs(&[("list", json!([1])), ("chunk", json!(3))]).await.unwrap(), 500);
    assert_eq!(runs(&[("list", json!([2])), ("chunk", json!(3))]).await.unwrap(), 0);
    assert_eq!(runs(&[("chunk", json!(3))]).await.unwrap(), 500);
    // Only the filter is refused.
    let range = Range { run: None, after: 0, max_bytes: 1 };
    assert!(world.store.frames(log.row.key, range).await.unwrap().is_empty());
}

async fn runs_are_filtered_by_their_own_metadata(world: World) {
    let mut log = world.thread("t").await;
    log.row.metadata = crate::harness::json(&json!({"a": 1}));
    let row = log.row.clone();
    let (mut one, two) = (log.run_row("one"), log.run_row("two"));
    one.metadata = crate::harness::json(&json!({"a": 1}));
    log.step().change(Change::Thread(row)).run(&one).run(&two).commit().await.unwrap();
    let filter = RunFilter { metadata: wanted(&[("a", json!(1))]), ..RunFilter::default() };
    let listing = world.store.runs(&alice(), &filter, &page(9, None)).await.unwrap();
    assert_eq!(listing.rows, [one.clone()]);
    log.write([Change::RemoveRun(one.key)]).await;
    let listing = world.store.runs(&alice(), &filter, &page(9, None)).await.unwrap();
    assert_eq!(listing.rows, []);
    assert_eq!(matching_threads(&world, &[("a", json!(1))]).await, ["t"]);
}
