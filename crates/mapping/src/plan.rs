//! Plans by id as one list of tasks, for readers that know a single plan.

use trilogue_domain::event::PlanEntry;

/// The most plans of a session that are merged; beyond that the oldest is left out.
const MAX_PLANS: usize = 64;
/// The most entries of a plan that are merged.
const MAX_ENTRIES: usize = 256;
/// The most text of an entry that is made of Markdown, in bytes.
const MAX_ENTRY_BYTES: usize = 64 * 1024;

/// The current plans of a session, in the order in which they began.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergedPlans<E> {
    /// Each plan's id, if it has one, and its entries.
    plans: Vec<(Option<String>, Vec<E>)>,
}

/// Returns the tasks of a plan that is a Markdown document: its list items, or the whole text as one task if it has no list.
///
/// A checked box means `completed`, and a box with `-`, `~` or `/` means `in_progress`.
pub fn entries_of_markdown(text: &str) -> Vec<PlanEntry> {
    let mut is_code = false;
    let items = text.lines().filter_map(|line| {
        let line = line.trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            is_code = !is_code;
        }
        if is_code { None } else { list_item(line) }
    });
    let entries: Vec<_> = items.take(MAX_ENTRIES).collect();
    match text.trim() {
        whole if entries.is_empty() && !whole.is_empty() => vec![entry(whole, "pending")],
        _ => entries,
    }
}

/// Reads a trimmed line as an item of a list.
fn list_item(line: &str) -> Option<PlanEntry> {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let text = match line.split_at(digits) {
        ("", _) => line.strip_prefix(['-', '*', '+'])?,
        (_, rest) => rest.strip_prefix(['.', ')'])?,
    };
    let text = text.strip_prefix([' ', '\t'])?.trim_start();
    let (status, text) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((" " | "", rest)) => ("pending", rest),
        Some(("x" | "X", rest)) => ("completed", rest),
        Some(("-" | "~" | "/", rest)) => ("in_progress", rest),
        _ => ("pending", text),
    };
    let text = text.trim();
    (!text.is_empty()).then(|| entry(text, status))
}

fn entry(text: &str, status: &str) -> PlanEntry {
    let content = text.get(..text.floor_char_boundary(MAX_ENTRY_BYTES)).unwrap_or_default();
    PlanEntry { content: content.to_owned(), status: status.to_owned() }
}

// === impl MergedPlans ===

impl<E> MergedPlans<E> {
    /// Sets the plan with this id, or the plan without an id.
    pub fn set(&mut self, id: Option<&str>, mut entries: Vec<E>) {
        entries.truncate(MAX_ENTRIES);
        if let Some((_, known)) = self.plans.iter_mut().find(|(known, _)| known.as_deref() == id) {
            *known = entries;
            return;
        }
        if self.plans.len() >= MAX_PLANS {
            self.plans.remove(0);
        }
        self.plans.push((id.map(str::to_owned), entries));
    }

    pub fn remove(&mut self, id: &str) {
        self.plans.retain(|(known, _)| known.as_deref() != Some(id));
    }

    /// Whether any plan has an id.
    pub fn has_ids(&self) -> bool {
        self.plans.iter().any(|(id, _)| id.is_some())
    }

    pub fn entries(&self) -> impl Iterator<Item = &E> {
        self.plans.iter().flat_map(|(_, entries)| entries)
    }
}

impl<E> Default for MergedPlans<E> {
    fn default() -> Self {
        Self { plans: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_becomes_a_list_of_tasks() {
        let text = "# Plan\n\n- [x] Read\n  * [~] Change\n+ [ ] Test\n2. Write\n3) [/] Ship\n-not\n```\n- code\n```\n1984 was\n- \n";
        let shown: Vec<_> =
            entries_of_markdown(text).into_iter().map(|it| (it.content, it.status)).collect();
        let expected = [
            ("Read", "completed"),
            ("Change", "in_progress"),
            ("Test", "pending"),
            ("Write", "pending"),
            ("Ship", "in_progress"),
        ];
        assert_eq!(shown, expected.map(|(text, status)| (text.to_owned(), status.to_owned())));
        assert_eq!(entries_of_markdown(" Just do it.\n"), [entry("Just do it.", "pending")]);
        assert_eq!(entries_of_markdown(" \n"), []);
        assert_eq!(entries_of_markdown(&"- a\n".repeat(MAX_ENTRIES + 1)).len(), MAX_ENTRIES);
        let long = entries_of_markdown(&"ä".repeat(MAX_ENTRY_BYTES));
        assert_eq!(long[0].content.len(), MAX_ENTRY_BYTES);
    }

    #[test]
    fn plans_are_merged_in_the_order_in_which_they_began() {
        let mut plans = MergedPlans::default();
        plans.set(None, vec!["whole"]);
        assert!(!plans.has_ids());
        plans.set(Some("a"), vec!["a1", "a2"]);
        plans.set(Some("b"), vec!["b1"]);
        plans.set(Some("a"), vec!["a3"]);
        plans.remove("unknown");
        assert!(plans.has_ids());
        assert!(plans.entries().eq(&["whole", "a3", "b1"]));
        plans.remove("a");
        plans.set(None, Vec::new());
        assert!(plans.entries().eq(&["b1"]));
        for number in 0..2 * MAX_PLANS {
            plans.set(Some(&number.to_string()), vec!["x"; 2 * MAX_ENTRIES]);
        }
        assert_eq!(plans.entries().count(), MAX_PLANS * MAX_ENTRIES);
    }
}
