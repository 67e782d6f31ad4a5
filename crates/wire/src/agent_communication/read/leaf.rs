//! The shapes of JSON, each of which says in words what else it met.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::Time;
use super::violation::quoted;

/// Refuses every shape that a visitor does not list itself.
macro_rules! refuse {
    ($want:literal: $($shape:ident)*) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str($want)
        }

        $(refuse!(@$shape $want);)*
    };
    (@null $want:literal) => {
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Err(E::custom(concat!("must be ", $want, ", not null")))
        }
    };
    (@boolean $want:literal) => {
        fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
            Err(E::custom(concat!("must be ", $want, ", not a boolean")))
        }
    };
    (@number $want:literal) => {
        fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
            Err(E::custom(concat!("must be ", $want, ", not a number")))
        }

        fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
            Err(E::custom(concat!("must be ", $want, ", not a number")))
        }

        fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
            Err(E::custom(concat!("must be ", $want, ", not a number")))
        }
    };
    (@string $want:literal) => {
        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
            Err(E::custom(concat!("must be ", $want, ", not a string")))
        }
    };
    (@array $want:literal) => {
        fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
            Err(A::Error::custom(concat!("must be ", $want, ", not an array")))
        }
    };
    (@object $want:literal) => {
        fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
            Err(A::Error::custom(concat!("must be ", $want, ", not an object")))
        }
    };
}
pub(super) use refuse;

/// A string.
#[derive(Debug)]
pub(super) struct Text(pub(super) String);

/// A whole number: as a number, or as a string of digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(pub(super) i64);

/// A moment: as text or as a unix time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(pub(super) Time);

/// An array.
#[derive(Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

/// An object. Without this, an array of the members in order would do as well.
#[derive(Debug)]
pub struct Object<T>(pub(super) T);

// === impl Text ===

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    refuse!("a string": null boolean number array object);

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Text, E> {
        Ok(Text(text))
    }
}

// === impl Whole ===

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(WholeVisitor)
    }
}

struct WholeVisitor;

impl<'de> Visitor<'de> for WholeVisitor {
    type Value = Whole;

    refuse!("a whole number": null boolean array object);

    fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
        Ok(Whole(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        i64::try_from(number).map(Whole).map_err(|_| {
            E::custom(format!("must be a whole number up to {}, not {number}", i64::MAX))
        })
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
        // Beyond this a float no longer counts in ones.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() == 0.0 && number.abs() <= EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
            return Ok(Whole(number as i64));
        }
        Err(E::custom(format!("must be a whole number, not {number:e}")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
        let digits = text.trim();
        let whole = digits
            .split_once('.')
            .filter(|(_, rest)| rest.bytes().all(|byte| byte == b'0'))
            .map_or(digits, |(whole, _)| whole);
        whole.parse().map(Whole).map_err(|_| {
            E::custom(format!(
                "must be a whole number, or a string of its digits, not {}",
                quoted(text)
            ))
        })
    }
}

// === impl Moment ===

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MomentVisitor)
    }
}

struct MomentVisitor;

const MOMENT: &str =
    "must be a time like 2026-01-31T12:00:00Z, or a unix time, in the years 1 to 9999";

impl<'de> Visitor<'de> for MomentVisitor {
    type Value = Moment;

    refuse!("a time like 2026-01-31T12:00:00Z, or a unix time": null boolean array object);

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Moment, E> {
        Time::from_unix_whole(seconds)
            .map(Moment)
            .ok_or_else(|| E::custom(format!("{MOMENT}, not {seconds}")))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Moment, E> {
        let time = i64::try_from(seconds).ok().and_then(Time::from_unix_whole);
        time.map(Moment).ok_or_else(|| E::custom(format!("{MOMENT}, not {seconds}")))
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Moment, E> {
        Time::from_unix(seconds)
            .map(Moment)
            .ok_or_else(|| E::custom(format!("{MOMENT}, not {seconds:e}")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Moment, E> {
        Time::parse(text)
            .map(Moment)
            .ok_or_else(|| E::custom(format!("{MOMENT}, not {}", quoted(text))))
    }
}

// === impl List ===

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    refuse!("an array": null boolean number string object);

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<List<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(List)
    }
}

// === impl Object ===

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    refuse!("an object": null boolean number string array);

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}
