use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;

use super::scan::{Members, members};
use super::{Extra, Json, Path, Read, Violation, refusal};

/// Assigns the values of an object's members to variables. The `else` arm gets each member without a variable.
macro_rules! find_members {
    ($json:expr, $at:expr, { $($var:ident = $key:pat,)* } else $member:ident => $other:expr) => {
        $( let mut $var: Option<&str> = None; )*
        for $member in $crate::json::object::members_of($json, $at)? {
            match &*$member.key {
                $( $key => $at.note(&mut $var, &$member)?, )*
                _ => $other,
            }
        }
    };
}
pub(crate) use find_members;

/// Reads a member by its mode, or by the default mode before it. A mode is a function like those in [`super::member`].
/// `kept` keeps a peer's invalid value among the unknown members.
macro_rules! read_member {
    ($default:ident kept, $member:ident, $at:ident, $key:expr, $unknown:ident) => {
        $crate::json::member::optional_or_unknown($member, $at, $key, &mut $unknown)
    };
    ($default:ident $mode:ident, $member:ident, $at:ident, $key:expr, $unknown:ident) => {
        $mode($member, &$at.key($key))
    };
    ($default:ident, $member:ident, $at:ident, $key:expr, $unknown:ident) => {
        $default($member, &$at.key($key))
    };
}
pub(crate) use read_member;

pub(crate) fn members_of<'j>(json: &'j str, at: &Path<'_>) -> Result<Members<'j>, Violation> {
    if json.starts_with('{') { Ok(members(json)) } else { Err(refusal("an object", json, at)) }
}

/// Keeps the members that the protocol does not declare.
pub(crate) fn unknown(
    members: Vec<(Cow<'_, str>, &str)>,
    at: &Path<'_>,
) -> Result<Extra, Violation> {
    if at.is_exact() {
        let mut names: Vec<&str> = members.iter().map(|(key, _)| &**key).collect();
        names.sort_unstable();
        if let Some([name, ..]) = names.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(at.repeated(name));
        }
    }
    let members = last_of_each(members);
    let mut extra = Vec::with_capacity(members.len());
    for (key, value) in members {
        let value = <Json as Read>::read(value, &at.key(&key))?;
        extra.push((key.into_owned(), value));
    }
    Ok(Extra(extra))
}

/// Keeps the last of several members with the same name.
pub(crate) fn last_of_each<K: Eq + Hash, V>(members: Vec<(K, V)>) -> Vec<(K, V)> {
    if members.len() < 2 {
        return members;
    }
    let last: HashMap<&K, usize> =
        members.iter().enumerate().map(|(place, (key, _))| (key, place)).collect();
    if last.len() == members.len() {
        return members;
    }
    let keep: Vec<bool> =
        members.iter().enumerate().map(|(place, (key, _))| last.get(key) == Some(&place)).collect();
    members.into_iter().zip(keep).filter_map(|(member, keep)| keep.then_some(member)).collect()
}
