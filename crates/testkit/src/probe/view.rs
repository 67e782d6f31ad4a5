//! The view: two wire events for each event of the log.
//!
//! The last wire event of event `n` has the id `n`, and the one before it `n.1`. A reader that resumes at either misses no event and sees none twice.

use trilogue_domain::Event;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WireEvent {
    pub id: String,
    pub data: String,
}

/// Returns the two wire events of a run's event: an announcement, and the event itself.
pub fn render(event: &Event) -> [WireEvent; 2] {
    let number = event.run_number;
    let name = event.body.name();
    [
        WireEvent { id: format!("{number}.1"), data: format!("next {name}") },
        WireEvent { id: number.to_string(), data: format!("{name} {:?}", event.body) },
    ]
}

/// Returns the cursor of a reader that saw `id` last: the log number to read after, and the number of wire events to skip of the next one. `None` if the id is invalid.
pub fn parse_cursor(id: &str) -> Option<(u64, usize)> {
    match id.split_once('.') {
        None => Some((id.parse().ok()?, 0)),
        Some((number, "1")) => Some((number.parse::<u64>().ok()?.checked_sub(1)?, 1)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{Body, Timestamp};

    use super::*;

    #[test]
    fn resuming_at_any_id_continues_where_it_stopped() {
        let events: Vec<Event> = (1..=4)
            .map(|number| Event {
                number,
                run: None,
                run_number: number,
                at: Timestamp::from_micros(0),
                body: Body::Opaque,
                original: None,
            })
            .collect();
        let whole: Vec<WireEvent> = events.iter().flat_map(render).collect();
        for (index, seen) in whole.iter().enumerate() {
            let (after, skip) = parse_cursor(&seen.id).unwrap();
            let rest: Vec<WireEvent> = events
                .iter()
                .filter(|event| event.run_number > after)
                .flat_map(render)
                .skip(skip)
                .collect();
            assert_eq!(rest, whole[index + 1..]);
        }
        for bad in ["", "x", "1.2", "0.1", "1.1.1"] {
            assert_eq!(parse_cursor(bad), None, "{bad}");
        }
    }
}
