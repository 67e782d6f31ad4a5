//! Which object an id on the command line means: the whole id, or an abbreviation that means only one.

use std::future::Future;

use trilogue_domain::short_id::{ShortId, last_group};
use trilogue_domain::{InterruptId, RunId, limits};
use trilogue_sdk::client::{Client, ClientError, Filter, Page};
use trilogue_wire::native::{Interrupt, List, Part, Run, Thread, Token};

use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe, table};

/// The most matches that an ambiguous abbreviation names.
const MAX_NAMED: usize = 10;
/// The most pages of messages in which a message is looked for.
const MAX_MESSAGE_PAGES: usize = 100;
const FORBIDDEN: u16 = 403;
/// The widest that a match is described, in terminal columns.
const MAX_ABOUT_WIDTH: usize = 50;

/// The run or the thread that an id names.
#[derive(Debug)]
pub(crate) enum RunOrThread {
    Run(String),
    Thread(String),
}

/// An object that an abbreviation means.
struct MatchingId {
    id: String,
    /// A description by which a person recognises it.
    about: String,
}

/// Returns the thread's whole id. If nothing matches, returns the text itself: the server then reports the missing thread.
pub(crate) async fn thread(client: &Client, text: &str) -> Result<String> {
    if is_uuid(text) {
        return Ok(text.to_owned());
    }
    let threads = threads(client, text).await?;
    one_of(threads, text, "threads").map(|found| found.unwrap_or_else(|| text.to_owned()))
}

/// Like [`thread`], if a thread is named.
pub(crate) async fn optional_thread(client: &Client, text: Option<&str>) -> Result<Option<String>> {
    match text {
        Some(text) => thread(client, text).await.map(Some),
        None => Ok(None),
    }
}

/// The run's whole id; as [`thread`].
pub(crate) async fn run(client: &Client, text: &str) -> Result<String> {
    if is_uuid(text) {
        return Ok(text.to_owned());
    }
    let runs = runs(client, text).await?;
    one_of(runs, text, "runs").map(|found| found.unwrap_or_else(|| text.to_owned()))
}

/// The interrupt's whole id; as [`thread`]. Of several, the only pending one is meant.
pub(crate) async fn interrupt(client: &Client, text: &str) -> Result<String> {
    if is_uuid(text) {
        return Ok(text.to_owned());
    }
    let mut items =
        list_if_permitted(client.interrupts(&short_id_filter(text), &limited())).await?;
    if items.iter().filter(|it| it.resolution.is_none()).count() == 1 {
        items.retain(|it| it.resolution.is_none());
    }
    let matches = items.into_iter().map(MatchingId::of_interrupt);
    let only = one_of(matches.collect(), text, "questions")?;
    Ok(only.unwrap_or_else(|| text.to_owned()))
}

/// The pending questions, at most one more than can be named, each once.
pub(crate) async fn open_questions(client: &Client) -> Result<Vec<Interrupt>> {
    Ok(each_once(client.interrupts(&Filter::default(), &limited()).await?.items))
}

/// The questions, each once: of one that a parent asks for its child, only the parent's.
pub(crate) fn each_once(mut questions: Vec<Interrupt>) -> Vec<Interrupt> {
    let ids = questions.iter().filter_map(|it| {
        Some((InterruptId::parse(&it.id).ok()?, RunId::parse(it.run_id.as_deref()?).ok()?))
    });
    let ids: Vec<_> = ids.collect();
    questions.retain(|question| {
        let Ok(own) = InterruptId::parse(&question.id) else { return true };
        ids.iter().all(|(id, run)| own.passed_up(run) != *id)
    });
    questions
}

/// The open question of a sub-agent that this one passed on, in a run of the parent that does not ask it any more. `None` without one, or if the server gives no answer.
pub(crate) async fn question_behind(client: &Client, asked: &Interrupt) -> Option<Interrupt> {
    let run = RunId::parse(asked.run_id.as_deref()?).ok()?;
    let newest = Page { after: None, limit: u32::try_from(limits::MAX_PAGE_ROWS).ok() };
    let open = client.interrupts(&Filter::default(), &newest).await.ok()?.items;
    let is_same = |question: &Interrupt| {
        InterruptId::parse(&question.id).is_ok_and(|id| id.passed_up(&run).as_str() == asked.id)
    };
    open.into_iter().find(is_same)
}

/// The only one of the pending questions.
///
/// # Errors
/// With none, or with several, which it names.
pub(crate) fn only_question(mut questions: Vec<Interrupt>) -> Result<Interrupt> {
    match (questions.pop(), questions.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(CliError::new(ExitStatus::NotFound, "no question is open")
            .hint("see the runs with `trilogue runs`")),
        (Some(last), false) => {
            questions.push(last);
            let matches: Vec<_> = questions.into_iter().map(MatchingId::of_interrupt).collect();
            Err(ambiguous(&matches, "several questions are open:".to_owned())
                .hint("name one of them: trilogue approve INTERRUPT"))
        }
    }
}

/// The whole id of a message of a thread; as [`thread`]. It looks through the newest messages of the history.
pub(crate) async fn message(client: &Client, thread: &str, text: &str) -> Result<String> {
    let Some(short) = ShortId::parse(text).filter(|_| !is_uuid(text)) else {
        return Ok(text.to_owned());
    };
    let mut matches: Vec<MatchingId> = Vec::new();
    let mut page = Page { after: None, limit: u32::try_from(limits::MAX_PAGE_ROWS).ok() };
    for _ in 0..MAX_MESSAGE_PAGES {
        let List { items, next } = client.messages_page(thread, &page).await?;
        if items.iter().any(|message| message.id == text) {
            return Ok(text.to_owned());
        }
        matches.extend(items.into_iter().filter(|message| short.matches(&message.id)).map(|it| {
            let words: String = it.parts.iter().filter_map(Part::as_text).collect();
            MatchingId { id: it.id, about: format!("{} {words}", it.role) }
        }));
        page.after = next;
        if page.after.is_none() {
            break;
        }
    }
    let only = one_of(matches, text, "messages")?;
    Ok(only.unwrap_or_else(|| text.to_owned()))
}

/// The token's whole id; as [`thread`].
pub(crate) async fn token(client: &Client, text: &str) -> Result<String> {
    if is_uuid(text) {
        return Ok(text.to_owned());
    }
    let items = list_if_permitted(client.find_tokens(&short_id_filter(text))).await?;
    let matches = items.into_iter().map(|it: Token| MatchingId { id: it.id, about: it.label });
    let only = one_of(matches.collect(), text, "tokens")?;
    Ok(only.unwrap_or_else(|| text.to_owned()))
}

/// Returns the run or the thread of this id; `None` if neither exists.
pub(crate) async fn run_or_thread(client: &Client, text: &str) -> Result<Option<RunOrThread>> {
    let is_whole = |matches: &[MatchingId]| matches.iter().any(|found| found.id == text);
    let runs = runs(client, text).await?;
    if is_whole(&runs) {
        return Ok(one_of(runs, text, "runs")?.map(RunOrThread::Run));
    }
    let threads = threads(client, text).await?;
    if is_whole(&threads) {
        return Ok(one_of(threads, text, "threads")?.map(RunOrThread::Thread));
    }
    if !runs.is_empty() && !threads.is_empty() {
        let both = runs.into_iter().chain(threads).collect();
        return one_of(both, text, "runs and threads").map(|_| None);
    }
    if let Some(run) = one_of(runs, text, "runs")? {
        return Ok(Some(RunOrThread::Run(run)));
    }
    Ok(one_of(threads, text, "threads")?.map(RunOrThread::Thread))
}

/// The thread that a short id from a list means, for commands that create a thread of any other name.
pub(crate) async fn listed_thread(client: &Client, text: &str) -> Result<Option<String>> {
    if !is_listed_form(text) {
        return Ok(None);
    }
    let mut matches = threads(client, text).await?;
    let is_whole = matches.iter().any(|found| found.id == text);
    matches.retain(|found| last_group(&found.id).is_some());
    if is_whole { Ok(None) } else { one_of(matches, text, "threads") }
}

/// Whether lists can show an id like this: the first characters of a UUID's last group.
pub(crate) fn is_listed_form(text: &str) -> bool {
    (table::SHORT_ID_CHARS..=12).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

async fn threads(client: &Client, text: &str) -> Result<Vec<MatchingId>> {
    let items = list_if_permitted(client.find_threads(&short_id_filter(text), &limited())).await?;
    let matches = items
        .into_iter()
        .map(|it: Thread| MatchingId { id: it.id, about: it.title.unwrap_or_default() });
    Ok(matches.collect())
}

async fn runs(client: &Client, text: &str) -> Result<Vec<MatchingId>> {
    let items = list_if_permitted(client.runs(&short_id_filter(text), &limited())).await?;
    let matches = items.into_iter().map(|it: Run| MatchingId {
        about: format!("{} {}", it.agent, it.status.as_str()),
        id: it.id,
    });
    Ok(matches.collect())
}

fn short_id_filter(text: &str) -> Filter {
    Filter { short_id: Some(text.to_owned()), resolved: true, ..Filter::default() }
}

fn limited() -> Page {
    Page { after: None, limit: u32::try_from(MAX_NAMED + 1).ok() }
}

/// Whether the text is a whole native id, which needs no look-up.
fn is_uuid(text: &str) -> bool {
    last_group(text).is_some()
}

/// Returns the matches of an abbreviation; empty for a caller without the right to list.
async fn list_if_permitted<T>(
    list: impl Future<Output = Result<List<T>, ClientError>>,
) -> Result<Vec<T>> {
    match list.await {
        Ok(list) => Ok(list.items),
        Err(ClientError::Problem(problem)) if problem.status == FORBIDDEN => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The only match.
///
/// # Errors
/// With several, names them.
fn one_of(mut matches: Vec<MatchingId>, text: &str, kind: &str) -> Result<Option<String>> {
    if matches.len() < 2 {
        return Ok(matches.pop().map(|only| only.id));
    }
    let message = format!("several {kind} match '{}':", safe::visible(text));
    Err(ambiguous(&matches, message).hint("type more of the id, or one of these"))
}

/// Makes an error that lists the matches.
fn ambiguous(matches: &[MatchingId], mut message: String) -> CliError {
    let named = matches.iter().take(MAX_NAMED);
    let ids: Vec<String> = named.clone().map(|it| safe::line(&it.id)).collect();
    let ids = if print::is_terminal() { table::short_ids(&ids) } else { ids };
    for (id, it) in ids.iter().zip(named) {
        let line = format!("\n  {id}  {}", table::cut(&safe::line(&it.about), MAX_ABOUT_WIDTH));
        message.push_str(line.trim_end());
    }
    if matches.len() > MAX_NAMED {
        message.push_str("\n  … and more");
    }
    CliError::usage(message)
}

// === impl MatchingId ===

impl MatchingId {
    fn of_interrupt(interrupt: Interrupt) -> Self {
        let agent = interrupt.agent.unwrap_or_default();
        Self { id: interrupt.id, about: format!("{agent} {}", interrupt.kind) }
    }
}
