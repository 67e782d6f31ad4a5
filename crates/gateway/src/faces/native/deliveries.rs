//! Callback deliveries that were given up.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};
use trilogue_mapping::native::{self as mapping, shown};
use trilogue_wire::native::{Delivery, List};

use super::{AFTER, LIMIT, NativeCall, NativeRoute};
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, no_content, of};

pub(crate) const ROUTES: &[NativeRoute] = &[
    NativeRoute {
        path: "/api/v1/deliveries",
        access: Access::Right(Right::Admin),
        operation: "list_deliveries",
        summary: "Callback deliveries that were given up, newest first",
        query: &[LIMIT, AFTER],
        answers: &[json_response(200, "A page.", of::<List<Delivery>>)],
        errors: &[Code::InvalidCursor],
        ..NativeRoute::base(|call| Box::pin(list(call)))
    },
    NativeRoute {
        verb: Verb::Post,
        path: "/api/v1/deliveries/{delivery_id}/redeliver",
        access: Access::Right(Right::Admin),
        operation: "redeliver",
        summary: "Try a delivery again now",
        answers: &[no_content("It is tried again.")],
        errors: &[Code::NotFound],
        ..NativeRoute::base(|call| Box::pin(redeliver(call)))
    },
];

async fn list(call: NativeCall) -> Result<Reply> {
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

async fn redeliver(call: NativeCall) -> Result<Reply> {
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
