//! The lists of the screen, one below the other, and the row that is marked in one of them.

use trilogue_wire::native::Part;

use super::super::node_text;
use super::Snapshot;
use crate::terminal::table::{self, TableColumn};
use crate::terminal::{safe, style};

const MARK: &str = "› ";
const NO_MARK: &str = "  ";
/// The rows of a list in addition to its items: its name, its heading, and an empty row.
const FRAME_ROWS: usize = 3;

const QUESTIONS: &[TableColumn] = &[
    TableColumn::id("QUESTION"),
    TableColumn::text("AGENT"),
    TableColumn::time("SINCE"),
    TableColumn::text("ASKS"),
];
const RUNS: &[TableColumn] = &[
    TableColumn::id("RUN"),
    TableColumn::text("AGENT"),
    TableColumn::text("STATUS"),
    TableColumn::time("CREATED"),
    TableColumn::id("THREAD"),
];
/// The node is empty if one server holds the store.
const THREADS: &[TableColumn] = &[
    TableColumn::id("THREAD"),
    TableColumn::time("CHANGED"),
    TableColumn::text("NODE"),
    TableColumn::text("TITLE"),
];
const NODES_PANE: &str = "Nodes";
const NODES: &[TableColumn] = &[
    TableColumn::text("NODE"),
    TableColumn::text("STATE"),
    TableColumn::text("OPEN THREADS"),
    TableColumn::text("DIFFERS IN"),
];
const PROCESSES: &[TableColumn] = &[
    TableColumn::text("PROCESS"),
    TableColumn::text("AGENT"),
    TableColumn::text("MEMORY"),
    TableColumn::text("STATE"),
];

/// An item of a list, and the actions of keys on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PaneRow {
    id: String,
    cells: Vec<String>,
    /// The question that `a` answers.
    pub(super) question: Option<String>,
    /// The run that `c` cancels.
    pub(super) run: Option<String>,
    /// The command that shows it.
    pub(super) open: Option<Vec<String>>,
}

#[derive(Debug)]
struct Pane {
    name: &'static str,
    of: fn(&Snapshot) -> Vec<PaneRow>,
    columns: &'static [TableColumn],
    rows: Vec<PaneRow>,
    /// By its id: a key must not act on what slid under the mark.
    selected: Option<String>,
}

#[derive(Debug)]
pub(super) struct Panes {
    panes: [Pane; 5],
    active: usize,
}

// === impl Panes ===

impl Panes {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let pane = |name, columns, of| Pane { name, columns, of, rows: Vec::new(), selected: None };
        let mut panes = Self {
            panes: [
                pane("Questions", QUESTIONS, questions),
                pane("Runs", RUNS, runs),
                pane("Threads", THREADS, threads),
                pane("Processes", PROCESSES, processes),
                pane(NODES_PANE, NODES, nodes),
            ],
            active: 0,
        };
        panes.update(snapshot);
        if panes.panes.first().is_some_and(|pane| pane.rows.is_empty()) {
            panes.next();
        }
        panes
    }

    pub(super) fn update(&mut self, snapshot: &Snapshot) {
        for pane in &mut self.panes {
            pane.replace((pane.of)(snapshot));
        }
    }

    /// Returns the panes on the screen: a single server needs no list of servers.
    fn visible_panes(&self) -> impl Iterator<Item = (usize, &Pane)> {
        let is_shown = |pane: &Pane| pane.name != NODES_PANE || !pane.rows.is_empty();
        self.panes.iter().enumerate().filter(move |(_, pane)| is_shown(pane))
    }

    pub(super) fn selected_row(&self) -> Option<&PaneRow> {
        let pane = self.panes.get(self.active)?;
        pane.place().and_then(|place| pane.rows.get(place))
    }

    /// Marks another row of the list.
    pub(super) fn step(&mut self, by: isize) {
        if let Some(pane) = self.panes.get_mut(self.active) {
            let last = pane.rows.len().saturating_sub(1);
            let place = pane.place().unwrap_or(0).saturating_add_signed(by).min(last);
            pane.selected = pane.rows.get(place).map(|row| row.id.clone());
        }
    }

    /// Goes to the next list that has rows.
    pub(super) fn next(&mut self) {
        let count = self.panes.len();
        let places = (1..=count).map(|step| (self.active + step) % count);
        let has_rows = |place: &usize| self.panes.get(*place).is_some_and(|it| !it.rows.is_empty());
        self.active = places.into_iter().find(has_rows).unwrap_or(self.active);
    }

    /// Renders all lists in `columns` by `height`: each list gets the rows that it needs, or its
    /// share.
    pub(super) fn rows(&self, columns: usize, height: usize) -> Vec<String> {
        let shown: Vec<_> = self.visible_panes().collect();
        let room = height.saturating_sub(FRAME_ROWS * shown.len());
        let share = room / shown.len().max(1);
        let needed = |pane: &Pane| pane.rows.len();
        let mut given: Vec<usize> = shown.iter().map(|(_, pane)| needed(pane).min(share)).collect();
        let mut left = room.saturating_sub(given.iter().sum());
        for ((_, pane), given) in shown.iter().zip(&mut given) {
            let more = needed(pane).saturating_sub(*given).min(left);
            *given += more;
            left -= more;
        }
        let panes = shown.into_iter().zip(given);
        panes
            .flat_map(|((place, pane), rows)| pane.draw(columns, rows, place == self.active))
            .collect()
    }
}

// === impl Pane ===

impl Pane {
    /// The place of the marked row.
    fn place(&self) -> Option<usize> {
        self.rows.iter().position(|row| Some(&row.id) == self.selected.as_ref())
    }

    /// Takes new rows; if the marked one is gone, marks the row that now has its position.
    fn replace(&mut self, rows: Vec<PaneRow>) {
        let before = self.place().unwrap_or(0);
        self.rows = rows;
        if self.place().is_none() {
            let place = before.min(self.rows.len().saturating_sub(1));
            self.selected = self.rows.get(place).map(|row| row.id.clone());
        }
    }

    fn draw(&self, columns: usize, rows: usize, is_active: bool) -> Vec<String> {
        let title = format!("{} ({})", self.name, self.rows.len());
        let mut drawn = vec![if is_active { style::bold(&title) } else { title }];
        if !self.rows.is_empty() {
            let cells: Vec<_> = self.rows.iter().map(|row| row.cells.clone()).collect();
            let width = columns.saturating_sub(MARK.chars().count());
            let text = table::fitting(self.columns, &cells, Some(width));
            let mut lines = text.lines();
            drawn.extend(lines.next().map(|heading| style::dim(&format!("{NO_MARK}{heading}"))));
            let place = self.place().unwrap_or(0);
            // The marked row stays in sight.
            let first = (place + 1).saturating_sub(rows);
            for (number, line) in lines.enumerate().skip(first).take(rows) {
                drawn.push(match is_active && number == place {
                    true => style::bold(&format!("{MARK}{line}")),
                    false => format!("{NO_MARK}{line}"),
                });
            }
        }
        drawn.push(String::new());
        drawn
    }
}

fn row(id: &str, cells: &[&str]) -> PaneRow {
    let cells = cells.iter().map(|cell| safe::line(cell)).collect();
    PaneRow { id: id.to_owned(), cells, question: None, run: None, open: None }
}

fn command(words: [&str; 3]) -> Option<Vec<String>> {
    Some(words.map(str::to_owned).to_vec())
}

fn questions(snapshot: &Snapshot) -> Vec<PaneRow> {
    let row = |it: &trilogue_wire::native::Interrupt| {
        let words: String = it.prompt.iter().filter_map(Part::as_text).collect();
        let words = if words.is_empty() { it.kind.clone() } else { safe::visible(&words) };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        PaneRow {
            question: Some(it.id.clone()),
            run: it.run_id.clone(),
            ..row(&it.id, &[&it.id, &text(&it.agent), &text(&it.raised_at), &words])
        }
    };
    snapshot.questions.iter().map(row).collect()
}

fn runs(snapshot: &Snapshot) -> Vec<PaneRow> {
    let row = |it: &trilogue_wire::native::Run| {
        let asks =
            |question: &&trilogue_wire::native::Interrupt| question.run_id.as_ref() == Some(&it.id);
        PaneRow {
            question: snapshot.questions.iter().find(asks).map(|question| question.id.clone()),
            run: (!it.status.is_terminal()).then(|| it.id.clone()),
            open: command(["runs", "show", &it.id]),
            ..row(&it.id, &[&it.id, &it.agent, it.status.as_str(), &it.created_at, &it.thread_id])
        }
    };
    snapshot.runs.iter().map(row).collect()
}

fn threads(snapshot: &Snapshot) -> Vec<PaneRow> {
    let row = |it: &trilogue_wire::native::Thread| {
        let [title, node] = [&it.title, &it.node].map(|it| it.as_deref().unwrap_or_default());
        PaneRow {
            open: command(["threads", "show", &it.id]),
            ..row(&it.id, &[&it.id, &it.updated_at, node, title])
        }
    };
    snapshot.threads.iter().map(row).collect()
}

fn processes(snapshot: &Snapshot) -> Vec<PaneRow> {
    let list = snapshot.status.iter().flat_map(|status| &status.agents.list);
    let row = |it: &trilogue_wire::native::AgentProcess| {
        let (pid, state) = (it.pid.to_string(), if it.idle { "idle" } else { "in use" });
        row(&pid, &[&pid, &it.agent, &memory(it.memory_bytes), state])
    };
    list.map(row).collect()
}

/// Returns the servers that share the store, if there are several.
fn nodes(snapshot: &Snapshot) -> Vec<PaneRow> {
    let Some(status) = snapshot.status.as_ref().filter(|it| it.nodes.len() > 1) else {
        return Vec::new();
    };
    let row = |it: &trilogue_wire::native::Node| {
        let differs = |found: &&trilogue_wire::native::AgentDifference| {
            found.variants.len() > 1 || found.missing_on.contains(&it.name)
        };
        let differing = status.agent_differences.iter().filter(differs);
        let agents: Vec<_> = differing.map(|found| found.agent.as_str()).collect();
        let (state, open) = (node_text::state(it), it.open_threads.to_string());
        row(&it.name, &[&it.name, &state, &open, &agents.join(", ")])
    };
    status.nodes.iter().map(row).collect()
}

/// Memory in the unit that people use for it.
pub(super) fn memory(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1024 * 1024))
}
