//! The support of each concept from one protocol to another: at most as good as on the worse side.

use std::fmt::Write as _;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_wire::native::{FidelityRow, FidelityVerdict};

use super::Support::{Carried, Extension, Lost};
use super::{PROTOCOLS, Row, TABLE};

/// Returns the rows of the directions from one protocol to another; `None` for one of them means all others. Fails as [`super::rows_between`].
pub(super) fn rows(from: Option<&str>, to: Option<&str>) -> Result<Vec<FidelityRow>> {
    let from = from.map(|name| column("from", name)).transpose()?;
    let to = to.map(|name| column("to", name)).transpose()?;
    if from.is_some() && from == to {
        let message = "'from' and 'to' are the same protocol";
        return Err(Error::new(Code::InvalidRequest, message).hint(names()));
    }
    let columns = || 0..PROTOCOLS.len();
    let pairs = columns().flat_map(|one| columns().map(move |other| (one, other)));
    let pairs = pairs.filter(|(one, other)| {
        one != other && from.is_none_or(|from| from == *one) && to.is_none_or(|to| to == *other)
    });
    Ok(pairs
        .flat_map(|(from, to)| TABLE.iter().map(move |row| direction_row(row, from, to)))
        .collect())
}

fn column(parameter: &str, name: &str) -> Result<usize> {
    PROTOCOLS.iter().position(|(known, _)| *known == name).ok_or_else(|| {
        let message = format!("'{parameter}': unknown protocol '{}'", name.escape_debug());
        Error::new(Code::InvalidRequest, message).hint(names())
    })
}

fn names() -> String {
    format!("the protocols are: {}", PROTOCOLS.map(|(name, _)| name).join(", "))
}

fn direction_row(row: &Row, from: usize, to: usize) -> FidelityRow {
    let ends = [from, to].map(|column| (PROTOCOLS[column].0, row.verdicts[column]));
    let verdict = verdict(row, from, to);
    let because: Vec<_> = ends
        .iter()
        .filter_map(|(protocol, support)| Some(format!("{protocol}: {}", support.reason()?)))
        .collect();
    let [(protocol, at_from), (other, at_to)] = ends;
    FidelityRow {
        protocol: protocol.to_owned(),
        to: Some(other.to_owned()),
        concept: row.concept.to_owned(),
        verdict,
        carrier: at_from.carrier().map(str::to_owned),
        to_carrier: at_to.carrier().map(str::to_owned),
        because: (!because.is_empty()).then(|| because.join("; ")),
    }
}

/// Returns the verdict of the worse side.
fn verdict(row: &Row, from: usize, to: usize) -> FidelityVerdict {
    let (from, to) = (row.verdicts[from], row.verdicts[to]);
    match (from, to) {
        (Lost(_), _) | (_, Lost(_)) => FidelityVerdict::Lost,
        (Extension(_), _) | (_, Extension(_)) => FidelityVerdict::Extension,
        (Carried(_), Carried(_)) => FidelityVerdict::Carried,
    }
}

/// Adds the page's section on directions.
pub(super) fn page(page: &mut String) {
    let columns = 0..PROTOCOLS.len();
    let pairs: Vec<_> = columns
        .clone()
        .flat_map(|one| columns.clone().map(move |other| (one, other)))
        .filter(|(one, other)| one < other)
        .collect();
    page.push_str(
        "\n## From one protocol to another\n\n\
         A client of one protocol can use an agent of another. On the way a concept fares no better than at the worse of both ends, in either direction. \
         `trilogue fidelity --from P --to P` and `/api/v1/fidelity?from=P&to=P` say where it travels at each end, or why it is lost.\n\n",
    );
    page.push_str("| concept |");
    for (one, other) in &pairs {
        // Writing to a string cannot fail.
        let _ = write!(page, " {} and {} |", PROTOCOLS[*one].0, PROTOCOLS[*other].0);
    }
    let _ = writeln!(page, "\n|---|{}", "---|".repeat(pairs.len()));
    for row in TABLE {
        let _ = write!(page, "| {} |", row.concept);
        for (one, other) in &pairs {
            let _ = write!(page, " {} |", verdict(row, *one, *other).as_str());
        }
        page.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_row(rows: &[FidelityRow], concept: &str) -> FidelityRow {
        rows.iter().find(|row| row.concept == concept).unwrap().clone()
    }

    #[test]
    fn a_direction_is_no_better_than_the_worse_of_both_ends() {
        let there = rows(Some("connect"), Some("communication")).unwrap();
        let back = rows(Some("communication"), Some("connect")).unwrap();
        assert_eq!(there.len(), TABLE.len());
        for (concept, verdict) in [
            ("text", FidelityVerdict::Carried),
            ("image, audio", FidelityVerdict::Extension),
            ("schedule", FidelityVerdict::Lost),
            ("working directory, MCP servers", FidelityVerdict::Lost),
        ] {
            for way in [&there, &back] {
                assert_eq!(find_row(way, concept).verdict, verdict, "{concept}");
            }
        }
        let schedule = find_row(&there, "schedule");
        assert!(schedule.carrier.unwrap().contains("after_seconds"));
        assert_eq!(schedule.to_carrier, None);
        assert!(schedule.because.unwrap().starts_with("communication: "));
        let directory = find_row(&there, "working directory, MCP servers").because.unwrap();
        assert!(directory.contains("connect: ") && directory.contains("; communication: "));
    }

    #[test]
    fn one_open_end_gives_the_directions_to_all_others() {
        let others = PROTOCOLS.len() - 1;
        for way in [rows(Some("client"), None), rows(None, Some("client"))] {
            assert_eq!(way.unwrap().len(), others * TABLE.len());
        }
        for (from, to) in [(Some("acp"), None), (None, Some("")), (Some("native"), Some("native"))]
        {
            let error = rows(from, to).unwrap_err();
            assert_eq!(error.code(), Code::InvalidRequest);
            assert!(error.hint_text().unwrap().contains("communication"), "{error:?}");
        }
    }
}
