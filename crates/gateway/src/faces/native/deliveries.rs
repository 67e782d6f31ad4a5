//! Callbacks: the secrets that verify them, and dead letters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};
use trilogue_mapping::native::{self as mapping, escape_for_message};
use trilogue_wire::native::{CallbackKeys, CallbackTarget, Delivery, List};

use super::{AFTER, LIMIT, NativeCall, NativeRoute};
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, no_content, of};

/// The prefix of every secret, as in Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";

pub(crate) const ROUTES: &[NativeRoute] = &[
    NativeRoute::base(|call| Box::pin(async move { keys(&call) }))
        .verb(Verb::Post)
        .path("/api/v1/callback-keys")
        .access(Access::Right(Right::Run))
        .for_people()
        .describe(
            "list_callback_keys",
            "What verifies callbacks to an address in the caller's name: no other principal \
             and no other address has these",
        )
        .request(of::<CallbackTarget>)
        .answers(&[json_response(200, "The secrets for the receiver.", of::<CallbackKeys>)]),
    NativeRoute::base(|call| Box::pin(list(call)))
        .path("/api/v1/deliveries")
        .access(Access::Right(Right::Admin))
        .describe("list_deliveries", "Callback deliveries that were given up, newest first")
        .query(&[LIMIT, AFTER])
        .answers(&[json_response(200, "A page.", of::<List<Delivery>>)])
        .errors(&[Code::InvalidCursor]),
    NativeRoute::base(|call| Box::pin(redeliver(call)))
        .verb(Verb::Post)
        .path("/api/v1/deliveries/{delivery_id}/redeliver")
        .access(Access::Right(Right::Admin))
        .describe("redeliver", "Try a delivery again now")
        .answers(&[no_content("It is tried again.")])
        .errors(&[Code::NotFound]),
];

fn keys(call: &NativeCall) -> Result<Reply> {
    let target: CallbackTarget = call.json()?;
    let keys = call.state.callback_secrets.keys(&call.principal().into(), &target.url);
    if keys.is_empty() {
        let message = format!("'{}' is not a web address", escape_for_message(&target.url));
        return Err(Error::new(Code::InvalidRequest, message).hint(
            "give the address that runs name in 'callback', such as https://example.com/hook",
        ));
    }
    let secrets = keys.iter().map(|key| format!("{SECRET_PREFIX}{}", STANDARD.encode(key)));
    Ok(Reply::ok(&CallbackKeys { secrets: secrets.collect() }))
}

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
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("dead delivery '{}' not found", escape_for_message(text)),
        )
    };
    let id = text.parse().map_err(|_| missing())?;
    let now = call.state.clock.now();
    match call.state.queue.revive(&call.scope(), id, now).await? {
        true => Ok(Reply::no_content()),
        false => Err(missing()),
    }
}
