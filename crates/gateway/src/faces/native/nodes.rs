//! The nodes that share the store, and the owner of each thread.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::NodeRow;
use trilogue_wire::native::{List, Node, ThreadHandOver};

use super::meta::node;
use super::{NativeCall, NativeRoute};
use crate::core::audit::AuditEvent;
use crate::http::reply::Reply;
use crate::route::{Access, json_response, no_content, of};

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(list(call)))
    .path("/api/v1/nodes")
    .access(Access::Right(Right::Server));

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE.describe("list_nodes", "The servers that share the store, by name; none where one holds it")
        .answers(&[json_response(200, "All of them, on one page.", of::<List<Node>>)]),
    BASE.post("/api/v1/nodes/{name}/drain", |call| Box::pin(drain(call, true)))
        .new_sign_in()
        .describe(
            "drain_node",
            "Have a server hand its threads over, each when it has nothing to do, and take no others",
        )
        .answers(&[json_response(200, "The server.", of::<Node>)])
        .errors(&[Code::NotFound, Code::PeerUnavailable]),
    BASE.delete("/api/v1/nodes/{name}/drain", |call| Box::pin(drain(call, false)))
        .new_sign_in()
        .describe("undrain_node", "Have a server take threads again")
        .answers(&[json_response(200, "The server.", of::<Node>)])
        .errors(&[Code::NotFound, Code::PeerUnavailable]),
    BASE.post("/api/v1/threads/{thread_id}/hand-over", |call| Box::pin(hand_over(call)))
        .access(Access::Right(Right::Run))
        .for_people()
        .describe(
            "hand_over_thread",
            "Give a thread to another server. Waits up to ten seconds for its run to end",
        )
        .request(of::<ThreadHandOver>)
        .answers(&[no_content("The other server has it.")])
        .errors(&[Code::ThreadNotFound, Code::ThreadBusy, Code::NotFound]),
];

async fn list(call: NativeCall) -> Result<Reply> {
    let nodes = call.state.admin.nodes().await?;
    Ok(Reply::ok(&List { items: nodes.into_iter().map(node).collect(), next: None }))
}

async fn drain(call: NativeCall, is_wanted: bool) -> Result<Reply> {
    let name = call.param("name");
    let nodes = call.state.admin.nodes().await?;
    if !nodes.is_empty() {
        let found = find_node(nodes, name)?;
        if !found.is_this {
            return Err(elsewhere(&found));
        }
    }
    // Fails if a single server holds the store.
    call.state.runtime.set_draining(is_wanted).await?;
    let event = if is_wanted { AuditEvent::DrainBegun } else { AuditEvent::DrainEnded };
    call.audit(event, name, "");
    Ok(Reply::ok(&node(find_node(call.state.admin.nodes().await?, name)?)))
}

fn find_node(nodes: Vec<NodeRow>, name: &str) -> Result<NodeRow> {
    nodes.into_iter().find(|node| node.name == name).ok_or_else(|| {
        Error::new(Code::NotFound, format!("no server has the name '{}'", escape_for_message(name)))
            .hint("`trilogue nodes` lists them")
    })
}

/// Returns the error for a request that belongs to another node; the server forwards it if that node is alive.
fn elsewhere(node: &NodeRow) -> Error {
    let name = escape_for_message(&node.name);
    if node.is_alive {
        let message = format!("the server '{name}' is another one than this");
        return Error::new(Code::PeerUnavailable, message)
            .node(node.name.clone(), node.address.clone());
    }
    let seconds = node.silent_for.as_secs();
    let message = format!("the server '{name}' has given no sign of life for {seconds} s");
    Error::new(Code::PeerUnavailable, message)
        .hint("the others take its threads over by themselves")
}

async fn hand_over(call: NativeCall) -> Result<Reply> {
    let body: ThreadHandOver = call.json()?;
    let thread = call.thread_id()?;
    if call.caller.is_page && super::thread(&call).await?.owner != call.principal().id {
        call.require_new_sign_in().await?;
    }
    call.state.runtime.hand_over(&call.scope(), &thread, &body.node).await?;
    call.audit(AuditEvent::ThreadHandedOver, thread.as_str(), &format!("to {}", body.node));
    Ok(Reply::no_content())
}
