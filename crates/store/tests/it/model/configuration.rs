//! Configured instances, in all engines.

use std::fmt::Write as _;

use trilogue_domain::{ConfigurationId, Scope};
use trilogue_store::Store;
use trilogue_store::rows::{ConfigurationFilter, ConfigurationRow, Page};

use super::{Op, codes};
use crate::harness::{agent, alice, at, json, own_scope, page, tenant_scope};
use crate::rows;

/// A store's answer to a change of configured instances.
pub(super) async fn configure(store: &dyn Store, op: &Op) -> String {
    let row = |id: usize, scope: &Scope, now: i64| ConfigurationRow {
        config: json(&serde_json::json!({"now": now})),
        created_at: at(now),
        updated_at: at(now),
        ..rows::configuration_row(scope.tenant.as_str(), configuration_id(id).as_str())
    };
    match op {
        Op::Configure { id, is_foreign, now, end } => {
            let scope = if *is_foreign { tenant_scope("other") } else { alice() };
            let row = ConfigurationRow { expires_at: end.map(at), ..row(*id, &scope, *now) };
            format!("{:?}", codes(&store.create_configuration(row).await))
        }
        Op::Reconfigure { id, is_own, now } => {
            let scope = if *is_own { own_scope("default", "bob") } else { alice() };
            let changed = store.update_configuration(&scope, row(*id, &scope, *now)).await;
            format!("{changed:?}")
        }
        Op::Forget { id, limit, now } => {
            let removed = store.remove_configuration(&alice(), &configuration_id(*id)).await;
            let expired = store.expire_configurations(at(*now), *limit).await;
            format!("{removed:?} {expired:?}")
        }
        _ => String::new(),
    }
}

/// A store's answers to look-ups of configured instances, as text.
pub(super) async fn configurations(store: &dyn Store, scope: &Scope) -> String {
    let filter = ConfigurationFilter { agent: agent("echo"), metadata: Vec::new() };
    let mut text = String::new();
    for now in [5, 20] {
        // The end of a page is an integer of the engine, so it is not compared.
        let page = Page { skip: 1, ..page(99, None) };
        let listing = store.configurations(scope, &filter, &page, at(now)).await.unwrap();
        writeln!(text, "{:?}", listing.rows).unwrap();
        for number in 0..4 {
            let found = store.configuration(scope, &configuration_id(number), at(now)).await;
            writeln!(text, "{:?}", found.unwrap()).unwrap();
        }
    }
    text
}

fn configuration_id(number: usize) -> ConfigurationId {
    rows::configuration_id(&format!("k{number}"))
}
