//! The view: two wire events for each event of the log.
//!
//! The last of an event's wire events has the number `n`, the one before it `n.1`: a reader that resumes at either misses nothing and sees nothing twice.

use trilogue_domain::Event;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WireEvent {
    pub id: String,
    pub data: String,
}

/// What an event of a run is on probe's wire: an announcement, and the thing itself.
pub fn render(event: &Event) -> [WireEvent; 2] {
    let number = event.run_number;
    let name = event.body.name();
    [
        WireEvent { id: format!("{number}.1"), data: format!("next {name}") },
        WireEvent { id: number.to_string(), data: format!("{name} {:?}", event.body) },
    ]
}

/// Where a reader that saw `id` last goes on: the log number to read after, and how many wire events of the next one to leave out.
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
