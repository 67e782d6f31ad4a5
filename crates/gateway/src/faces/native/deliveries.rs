//! Callback deliveries that were given up.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};
use trilogue_mapping::native::{self as mapping, shown};
use trilogue_wire::native::{Delivery, List};

use super::{AFTER, Call, LIMIT, Route};
use crate::http::reply::Reply;
use crate::route::{Access, Verb, answer, no_content, of};

pub(crate) const ROUTES: &[Route] = &[
    Route {
        verb: Verb::Get,
        path: "/api/v1/deliveries",
        access: Access::Right(Right::Admin),
        operation: "list_deliveries",
        summary: "Callback deliveries that were given up, newest first",
        query: &[LIMIT, AFTER],
        headers: &[],
        request: None,
        answers: &[answer(200, "A page.", of::<List<Delivery>>)],
        errors: &[Code::InvalidCursor],
        handler: |call| Box::pin(list(call)),
    },
    Route {
        verb: Verb::Post,
        path: "/api/v1/deliveries/{delivery_id}/redeliver",
        access: Access::Right(Right::Admin),
        operation: "redeliver",
        summary: "Try a delivery again now",
        query: &[],
        headers: &[],
        request: None,
        answers: &[no_content("It is tried again.")],
        errors: &[Code::NotFound],
        handler: |call| Box::pin(redeliver(call)),
    },
];

async fn list(call: Call) -> Result<Reply> {
    let listing = call.state.read.dead_deliveries(&call.scope(), &call.page()?).await?;
    let items = listing.rows.iter().map(|dead| Delivery {
        id: dead.id.to_string(),
        attempts: dead.attempts,
        error: dead.error.clone(),
        due: dead.item.due.to_string(),
        reference: mapping::json(&dead.item.reference),
    });
    Ok(Reply::ok(&List { items: items.collect(), next: listing.next.map(|next| next.to_string()) }))
}

async fn redeliver(call: Call) -> Result<Reply> {
    let text = call.param("delivery_id");
    let missing =
        || Error::new(Code::NotFound, format!("there is no dead delivery '{}'", shown(text)));
    let id = text.parse().map_err(|_| missing())?;
    let now = call.state.clock.now();
    match call.state.queue.revive(&call.scope(), id, now).await? {
        true => Ok(Reply::no_content()),
        false => Err(missing()),
    }
}
