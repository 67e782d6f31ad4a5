use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::{Extra, Json};
use super::given::Given;
use super::leaf::refuse;
use super::locate::locate;
use super::raw::Raw;
use super::{At, Read, Violation, quoted, read_at};

/// The members of a small object, to be taken one by one.
/// What costs a second look at the text pays where names decide what the other members are, or unknown ones are kept.
#[derive(Debug, Default)]
pub struct Members(Vec<(String, Raw)>);

// === impl Members ===

impl Members {
    /// Takes a member and reads it.
    pub(super) fn take<T: for<'de> Deserialize<'de>>(
        &mut self,
        name: &str,
        at: &At<'_>,
    ) -> Result<Given<T>, Violation> {
        let Some(value) = self.remove(name) else { return Ok(Given::Absent) };
        serde_json::from_slice(value.bytes())
            .map_err(|error| locate::<T>(value.bytes(), &error, &at.key(name)))
    }

    /// Takes a member that a server may have got wrong: what a peer sends and cannot be understood stays where it is, among the unknown ones.
    pub(super) fn take_or_leave<T: Read>(
        &mut self,
        name: &str,
        at: &At<'_>,
    ) -> Result<Option<T>, Violation> {
        let Some(place) = self.place(name) else { return Ok(None) };
        let Some((_, value)) = self.0.get(place) else { return Ok(None) };
        if value.0.as_str() == "null" {
            self.0.remove(place);
            return Ok(None);
        }
        match read_at(value.bytes(), &at.key(name)) {
            Ok(read) => {
                self.0.remove(place);
                Ok(Some(read))
            }
            Err(_) if at.is_peer() => Ok(None),
            Err(violation) => Err(violation),
        }
    }

    /// Takes a member as it is.
    pub(super) fn remove(&mut self, name: &str) -> Option<Raw> {
        self.place(name).map(|place| self.0.remove(place).1)
    }

    /// What has not been taken.
    pub(super) fn rest(self) -> Extra {
        Extra(self.0.into_iter().map(|(key, value)| (key, value.0)).collect())
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(key, _)| key == name)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    refuse!("an object": null boolean number string array);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(entry) = map.next_entry()? {
            members.push(entry);
        }
        refuse_twins(&members, |(name, _)| name)?;
        Ok(Members(members))
    }
}

/// Refuses two members of one name.
pub(super) fn refuse_twins<T, E: Error>(
    members: &[T],
    name: impl Fn(&T) -> &String,
) -> Result<(), E> {
    let mut names: Vec<&String> = members.iter().map(name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        Some([twin, ..]) => Err(E::custom(format!("has the member {} twice", quoted(twin)))),
        _ => Ok(()),
    }
}

/// The JSON of an object, or a violation.
pub(super) fn object(raw: Raw, at: &At<'_>) -> Result<Json, Violation> {
    if raw.is_object() { Ok(raw.0) } else { Err(at.violation("must be a JSON object")) }
}
