//! Interrupts and answers to them.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, IdKind, InterruptId, Right};
use trilogue_mapping::native::{self as mapping, escape_for_message, read_object};
use trilogue_runtime::AnswerTo;
use trilogue_store::rows::{InterruptFilter, InterruptRow};
use trilogue_wire::native::{AnswerCreate, Interrupt, List};

use super::short_ids::{self, SHORT_ID};
use super::{AFTER, LIMIT, NativeCall, NativeRoute, rows, run};
use crate::core::not_found::no_interrupt;
use crate::faces::common::look_up;
use crate::http::reply::Reply;
use crate::route::{Access, Parameter, json_response, of};

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(get(call)))
    .path("/api/v1/interrupts/{interrupt_id}")
    .errors(&[Code::InterruptNotFound]);

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE.at("/api/v1/interrupts", |call| Box::pin(list(call)))
        .describe("list_interrupts", "Interrupts, newest first")
        .query(&[
            LIMIT,
            AFTER,
            Parameter { name: "thread_id", about: "Only of this thread." },
            Parameter { name: "run_id", about: "Only of this run." },
            Parameter { name: "pending", about: "With `true` only those that wait for an answer." },
            SHORT_ID,
        ])
        .answers(&[json_response(200, "A page.", of::<List<Interrupt>>)])
        .errors(&[Code::InvalidCursor, Code::ThreadNotFound, Code::RunNotFound]),
    BASE.describe("get_interrupt", "One interrupt").answers(&[json_response(
        200,
        "The interrupt.",
        of::<Interrupt>,
    )]),
    BASE.post("/api/v1/interrupts/{interrupt_id}/answer", |call| Box::pin(answer_interrupt(call)))
        .access(Access::Right(Right::Answer))
        .describe("answer_interrupt", "Answer an interrupt; of two answers the second is refused")
        .request(of::<AnswerCreate>)
        .answers(&[json_response(200, "The interrupt, answered.", of::<Interrupt>)])
        .errors(&[Code::InterruptNotFound, Code::InterruptResolved, Code::AnswerInvalid]),
    BASE.post("/api/v1/runs/{run_id}/answer", |call| Box::pin(answer_run(call)))
        .access(Access::Right(Right::Answer))
        .describe(
            "answer_run",
            "Answer the interrupt of a run that `interrupt_id` names, or the one that the \
             caller was last shown",
        )
        .request(of::<AnswerCreate>)
        .answers(&[json_response(200, "The interrupt, answered.", of::<Interrupt>)])
        .errors(&[
            Code::RunNotFound,
            Code::InterruptNotFound,
            Code::InterruptMismatch,
            Code::InterruptResolved,
            Code::RunEnded,
            Code::AnswerInvalid,
        ]),
];

async fn list(call: NativeCall) -> Result<Reply> {
    let read = call.state.read.as_ref();
    if let Some(ids) = short_ids::matching_ids(&call, IdKind::Interrupt).await? {
        let (mut items, scope) = (Vec::with_capacity(ids.len()), call.scope());
        for id in ids {
            let Ok(id) = InterruptId::parse(&id) else { continue };
            items.extend(read.interrupt(&scope, &id).await?.as_ref().map(rows::interrupt));
        }
        return Ok(Reply::ok(&List { items, next: None }));
    }
    let thread = match call.query("thread_id") {
        None => None,
        Some(text) => Some(look_up::thread(read, &call, text).await?.id),
    };
    let run = match call.query("run_id") {
        None => None,
        Some(text) => Some(look_up::run(read, &call, text).await?.id),
    };
    let pending = match call.query("pending") {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let message = format!("'pending' is '{}'", escape_for_message(other));
            return Err(Error::new(Code::InvalidRequest, message).hint("it is 'true' or 'false'"));
        }
    };
    let filter = InterruptFilter { thread, run, pending };
    let listing = call.state.read.interrupts(&call.scope(), &filter, &call.page()?).await?;
    // Record the newest last, so that it counts as the one last shown.
    listing.rows.iter().rev().for_each(|row| note_shown(&call, row));
    Ok(Reply::ok(&List {
        items: listing.rows.iter().map(rows::interrupt).collect(),
        next: listing.next.map(|next| next.to_string()),
    }))
}

async fn get(call: NativeCall) -> Result<Reply> {
    let row =
        look_up::interrupt(call.state.read.as_ref(), &call, call.param("interrupt_id")).await?;
    note_shown(&call, &row);
    Ok(Reply::ok(&rows::interrupt(&row)))
}

async fn answer_interrupt(call: NativeCall) -> Result<Reply> {
    let text = call.param("interrupt_id");
    let id = InterruptId::parse(text).map_err(|_| no_interrupt(text))?;
    let body: AnswerCreate = call.json()?;
    if let Some(named) = body.interrupt_id.as_deref()
        && named != id.as_str()
    {
        return Err(Error::new(
            Code::InvalidRequest,
            "the body names another interrupt than the path",
        ));
    }
    if let Some(row) = call.state.read.interrupt(&call.scope(), &id).await? {
        call.reach(&row.agent)?;
    }
    let to = AnswerTo::Interrupt(id);
    submit_answer(&call, to, body).await
}

async fn answer_run(call: NativeCall) -> Result<Reply> {
    let row = run(&call).await?;
    call.reach(&row.agent)?;
    let body: AnswerCreate = call.json()?;
    let to = match body.interrupt_id.as_deref() {
        None => AnswerTo::Run(row.id),
        Some(text) => {
            let found = look_up::interrupt(call.state.read.as_ref(), &call, text).await?;
            if found.run != row.key {
                return Err(no_interrupt(text));
            }
            AnswerTo::Interrupt(found.interrupt.id)
        }
    };
    submit_answer(&call, to, body).await
}

async fn submit_answer(call: &NativeCall, to: AnswerTo, mut body: AnswerCreate) -> Result<Reply> {
    let extra = read_object(body.extra.take(), "extra")?;
    let answer = mapping::answer::answer(body)?;
    let row = call.state.runtime.answer_with(call.principal(), to, answer, extra).await?;
    call.audit_answer(&row);
    Ok(Reply::ok(&rows::interrupt(&row)))
}

fn note_shown(call: &NativeCall, row: &InterruptRow) {
    if row.resolution.is_none() {
        let id = &row.interrupt.id;
        call.state.runtime.record_shown_question(&call.principal().id, &row.run_id, id);
    }
}
