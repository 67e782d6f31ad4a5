//! Times as a person reads them: how long ago.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// A time that is further away is shown as a date.
const MAX_DAYS: i64 = 30;
/// A time that is nearer counts as now, because the clocks of two machines differ.
const NOW_SECONDS: i64 = 5;

/// Formats how long ago a time of the server was, or how far ahead it is. Returns the text itself if
/// it is not a time.
pub(crate) fn age(text: &str, now: Timestamp) -> String {
    let Ok(at) = text.parse::<Timestamp>() else { return text.to_owned() };
    let seconds = now.as_second() - at.as_second();
    let distance = seconds.abs();
    let whole = |unit: i64| distance / unit;
    let words = if distance <= NOW_SECONDS {
        return "just now".to_owned();
    } else if distance < MINUTE {
        format!("{distance} s")
    } else if distance < HOUR {
        format!("{} min", whole(MINUTE))
    } else if distance < DAY {
        format!("{} h", whole(HOUR))
    } else if distance < 2 * DAY {
        "1 day".to_owned()
    } else if distance <= MAX_DAYS * DAY {
        format!("{} days", whole(DAY))
    } else {
        return at.strftime("%Y-%m-%d").to_string();
    };
    if seconds > 0 { format!("{words} ago") } else { format!("in {words}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_by_its_distance() {
        let now = "2026-11-23T12:00:00Z".parse().unwrap();
        for (text, told) in [
            ("2026-11-23T11:59:58.123456Z", "just now"),
            ("2026-11-23T12:00:03Z", "just now"),
            ("2026-11-23T11:59:18Z", "42 s ago"),
            ("2026-11-23T11:58:00Z", "2 min ago"),
            ("2026-11-23T09:00:00Z", "3 h ago"),
            ("2026-11-22T09:00:00Z", "1 day ago"),
            ("2026-11-03T09:00:00Z", "20 days ago"),
            ("2026-08-01T09:00:00Z", "2026-08-01"),
            ("2026-11-23T12:10:00Z", "in 10 min"),
            ("2027-11-23T12:10:00Z", "2027-11-23"),
            ("never", "never"),
            ("", ""),
        ] {
            assert_eq!(age(text, now), told, "{text}");
        }
    }
}
