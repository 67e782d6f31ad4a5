//! The fields of records and rows: one trait, and the plain values.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, Code, ConfigurationId, InterruptId, Json, MessageId,
    PrincipalId, Rights, RunId, RunKey, RunStatus, TenantId, ThreadId, ThreadKey, Timestamp,
    TokenId,
};

use super::codec::{Damage, DecodeResult, FieldReader, put_bytes, put_signed, put_varint};

/// The most elements for which a list reserves memory before it has read them.
const RESERVED_ELEMENTS: usize = 64;

/// A value with one persisted form.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self>;
}

/// Implements [`Field`] for a struct: its fields in the order given.
///
/// A field after `;` is an optional last field of a row. It is written only if it has a value, so that rows without one are the same as before the field existed.
macro_rules! fields {
    ($name:ident { $($field:ident),+ $(,)? $(; $($last:ident),+)? }) => {
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field,)+ $($($last,)+)? } = self;
                $($field.put(out);)+
                $(
                    let mut end = out.len();
                    $(
                        $last.put(out);
                        if $last.is_some() {
                            end = out.len();
                        }
                    )+
                    out.truncate(end);
                )?
            }

            fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
                Ok(Self {
                    $($field: Field::take(input)?,)+
                    $($($last: if input.is_at_end() { None } else { Field::take(input)? },)+)?
                })
            }
        }
    };
}
pub(super) use fields;

/// Implements [`Field`] for an enum: a tag of one byte, then the variant's fields in the order given.
/// A tag never gets a second meaning. A field after `;` is an optional last field of a record, as in [`fields`].
macro_rules! variants {
    ($name:ident: $($tag:literal = $variant:ident $(($value:ident))? $({ $($field:ident),+ $(; $last:ident)? })?),+ $(,)?) => {
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($value))? $({ $($field),+ $(, $last)? })? => {
                        out.push($tag);
                        $($value.put(out);)?
                        $($($field.put(out);)+ $(if $last.is_some() { $last.put(out); })?)?
                    })+
                }
            }

            fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
                match input.byte()? {
                    $($tag => {
                        $(let $value = Field::take(input)?;)?
                        $(
                            $(let $field = Field::take(input)?;)+
                            $(let $last = if input.is_at_end() { None } else { Field::take(input)? };)?
                        )?
                        Ok(Self::$variant $(($value))? $({ $($field),+ $(, $last)? })?)
                    })+
                    _ => Err(Damage(concat!("it holds an unknown ", stringify!($name)))),
                }
            }
        }
    };
}
pub(super) use variants;

macro_rules! string_ids {
    ($($name:ident),+) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                put_bytes(out, self.as_str().as_bytes());
            }

            fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
                Self::parse(text(input)?).map_err(|_| Damage(concat!("it holds a malformed ", stringify!($name))))
            }
        }
    )+};
}
string_ids!(
    AgentName,
    CheckpointId,
    ConfigurationId,
    InterruptId,
    MessageId,
    PrincipalId,
    RunId,
    TenantId,
    ThreadId,
    TokenId
);

macro_rules! integer_keys {
    ($($name:ident),+) => {$(
        impl Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                put_signed(out, self.0);
            }

            fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
                input.signed().map(Self)
            }
        }
    )+};
}
integer_keys!(CheckpointKey, RunKey, ThreadKey);

variants!(RunStatus:
    0 = Queued, 1 = Running, 2 = Interrupted, 3 = Cancelling,
    4 = Completed, 5 = Failed, 6 = Cancelled, 7 = TimedOut,
);

pub(super) fn text<'a>(input: &mut FieldReader<'a>) -> DecodeResult<&'a str> {
    let length = input.length()?;
    std::str::from_utf8(input.slice(length)?).map_err(|_| Damage("it holds text that is not UTF-8"))
}

// === impl Field ===

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damage("it holds a truth value that is neither")),
        }
    }
}

impl Field for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(*self));
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        Self::try_from(input.varint()?).map_err(|_| Damage("it holds an integer out of range"))
    }
}

impl Field for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        input.varint()
    }
}

impl Field for i64 {
    /// A negative number takes ten bytes; indexes of citations are rarely negative.
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.cast_unsigned());
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        input.varint().map(u64::cast_signed)
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        text(input).map(str::to_owned)
    }
}

impl Field for Arc<str> {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        text(input).map(Self::from)
    }
}

impl Field for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        let length = input.length()?;
        input.shared(length)
    }
}

impl Field for [u8; 32] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        input.array()
    }
}

impl Field for Json {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_bytes().put(out);
    }

    /// Not parsed again: the checksum proves that it is the JSON that was written.
    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        Self::from_stored(Field::take(input)?).ok_or(Damage("it holds JSON that is not UTF-8"))
    }
}

impl Field for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        put_signed(out, self.as_micros());
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        input.signed().map(Self::from_micros)
    }
}

impl Field for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        let (seconds, nanos) = (Field::take(input)?, u32::take(input)?);
        if nanos >= 1_000_000_000 {
            return Err(Damage("it holds a duration with more than a second of nanoseconds"));
        }
        Ok(Self::new(seconds, nanos))
    }
}

impl Field for Code {
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_str().as_bytes());
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        Self::from_text(text(input)?).ok_or(Damage("it holds an unknown error code"))
    }
}

impl Field for Rights {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.bits());
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        input.byte().map(Self::from_bits)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        bool::take(input)?.then(|| T::take(input)).transpose()
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for value in self {
            value.put(out);
        }
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        // Every element takes at least one byte, so a wrong count cannot cost more than the remaining bytes.
        let count = input.length()?;
        let mut values = Self::with_capacity(count.min(RESERVED_ELEMENTS));
        for _ in 0..count {
            values.push(T::take(input)?);
        }
        Ok(values)
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        T::take(input).map(Self::new)
    }
}
