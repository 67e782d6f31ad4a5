//! What tokens cost, by list prices with a date.

use std::sync::Arc;

use crate::usage::TokenCounts;

/// The table that comes with the program.
const TABLE: &str = include_str!("prices.tsv");
/// The most models of a table.
const MAX_MODELS: usize = 10_000;
/// Tokens of a price.
const TOKENS_OF_PRICE: u128 = 1_000_000;
/// The parts of a dollar of a cost.
const MICROS: f64 = 1_000_000.0;
/// More dollars than a million tokens cost.
const MAX_PRICE: f64 = 1_000_000.0;

/// The most digits of a part of a version. Dates have more.
const MAX_VERSION_DIGITS: usize = 2;

/// Prices by the beginning of the model's name; the longest one that fits counts. A successor, such as `a-1-5` beside `a-1`, needs a row of its own. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PriceTable {
    date: Arc<str>,
    rows: Arc<Vec<PriceRow>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct PriceRow {
    model: String,
    /// In millionths of a dollar for a million tokens.
    input: u64,
    output: u64,
    cached_read: u64,
    cache_write: u64,
}

/// An invalid table of prices.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPrices(String);

// === impl PriceTable ===

impl PriceTable {
    /// Reads a table: a line `date`, a tab and the date, then a line for each model with its beginning, and the dollars of a million tokens of input, output, cached input and written cache, between tabs. Lines that begin with `#` are comments.
    ///
    /// # Errors
    /// [`InvalidPrices`] with the line.
    pub fn parse(text: &str) -> Result<Self, InvalidPrices> {
        let mut date = None;
        let mut rows = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let invalid = |why: &str| InvalidPrices(format!("line {number}: {why}"));
            if rows.len() == MAX_MODELS {
                return Err(invalid(&format!("there are more than {MAX_MODELS} models")));
            }
            let values: Vec<_> = line.split('\t').map(str::trim).collect();
            match values[..] {
                ["date", written] => date = Some(written.to_owned()),
                [model, input, output, cached_read, cache_write] if !model.is_empty() => {
                    let price = |text: &str| {
                        price(text).ok_or_else(|| {
                            invalid(&format!("'{}' is no price", text.escape_debug()))
                        })
                    };
                    rows.push(PriceRow {
                        model: model.to_owned(),
                        input: price(input)?,
                        output: price(output)?,
                        cached_read: price(cached_read)?,
                        cache_write: price(cache_write)?,
                    });
                }
                _ => return Err(invalid("expected a model and four prices, between tabs")),
            }
        }
        let date = date.ok_or_else(|| InvalidPrices("it has no line with its date".to_owned()))?;
        Ok(Self { date: date.into(), rows: Arc::new(rows) })
    }

    /// Returns this table, with the rows and the date of another before its own.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let known = |row: &&PriceRow| other.rows.iter().all(|it| it.model != row.model);
        let rows = other.rows.iter().chain(self.rows.iter().filter(known)).cloned().collect();
        Self { date: Arc::clone(&other.date), rows: Arc::new(rows) }
    }

    /// Returns the date of the prices.
    #[must_use]
    pub fn date(&self) -> &str {
        &self.date
    }

    /// Returns what tokens of a model cost, in millionths of a dollar. `None` for an unknown model.
    #[must_use]
    pub fn cost(&self, model: &str, tokens: &TokenCounts) -> Option<u64> {
        // Some servers name the maker before the model.
        let name = model.rsplit('/').next().unwrap_or(model);
        let fits =
            |row: &&PriceRow| [name, model].into_iter().any(|name| is_version_of(name, &row.model));
        let row = self.rows.iter().filter(fits).max_by_key(|row| row.model.len())?;
        let parts = [
            (tokens.input, row.input),
            (tokens.output, row.output),
            (tokens.cached_read, row.cached_read),
            (tokens.cache_write, row.cache_write),
        ];
        let sum: u128 =
            parts.iter().map(|(count, price)| u128::from(*count) * u128::from(*price)).sum();
        u64::try_from(sum.div_ceil(TOKENS_OF_PRICE)).ok()
    }
}

impl Default for PriceTable {
    fn default() -> Self {
        // A test reads it.
        Self::parse(TABLE).unwrap_or_else(|_| Self { date: "".into(), rows: Arc::default() })
    }
}

/// Whether a name is that of a model, perhaps with a date or a variant, and not that of its successor: `a-1-5` and `a-1.5` are not `a-1`.
fn is_version_of(name: &str, model: &str) -> bool {
    let Some(rest) = name.strip_prefix(model) else { return false };
    let Some(first) = rest.chars().next() else { return true };
    let next = rest.get(1..).and_then(|rest| rest.split(['-', '.', '@', ':']).next());
    let is_number = |part: &str| {
        (1..=MAX_VERSION_DIGITS).contains(&part.len()) && part.bytes().all(|it| it.is_ascii_digit())
    };
    matches!(first, '-' | '@' | ':') && !next.is_some_and(is_number)
}

/// Reads dollars.
fn price(text: &str) -> Option<u64> {
    let dollars: f64 = text.parse().ok()?;
    (0.0..=MAX_PRICE).contains(&dollars).then_some((dollars * MICROS).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_of_a_name_has_the_price() {
        let prices = PriceTable::parse(
            "date\t2026-01-01\na-1\t1\t10\t0.1\t1.25\na-1-mini\t0.1\t1\t0.01\t0\n",
        )
        .unwrap();
        let tokens =
            TokenCounts { input: 1_000_000, output: 500_000, cached_read: 100_000, cache_write: 8 };
        assert_eq!(prices.cost("a-1-2026", &tokens), Some(6_010_010));
        assert_eq!(prices.cost("maker/a-1-mini", &tokens), Some(601_000));
        for unknown in ["b", "a-1.5", "a-1-5", "a-12", "a"] {
            assert_eq!(prices.cost(unknown, &tokens), None, "{unknown}");
        }
        let own = PriceTable::parse("date\t2026-02-02\na-1\t2\t0\t0\t0\n").unwrap();
        let both = prices.with(&own);
        assert_eq!((both.cost("a-1", &tokens), both.date()), (Some(2_000_000), "2026-02-02"));
        assert_eq!(both.cost("a-1-mini", &tokens), Some(601_000));
    }

    #[test]
    fn the_table_of_the_program_is_valid() {
        let table = PriceTable::parse(TABLE).unwrap();
        assert!(table.rows.len() > 10 && table.date().len() == 10);
        for text in ["", "a\t1\t1\t1\t1", "date\tx\na\t1\t1\t1", "date\tx\na\t-1\t1\t1\t1"] {
            assert!(PriceTable::parse(text).is_err(), "{text}");
        }
    }
}
