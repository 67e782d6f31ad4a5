//! The JSON reader of every protocol: it tracks the path, reports violations in one form, and carries JSON unchanged.
//!
//! - [`read`] walks over checked text and copies only the values that it keeps. [`Rules`] decide how much it accepts.
//! - [`decode`] decodes into derived types as a stream, and rewords serde's errors for people who send JSON.
//!
//! Each protocol declares its objects with one macro. Its doc comment has the modes of members.
//!
//! | macro | read by | default mode of a member | unknown members | written |
//! |---|---|---|---|---|
//! | `object!` of `agent_client` | [`read`] | `required`; `lenient` after `may` | kept, and `_meta` is a member of its own | declared members that are present, then the unknown ones |
//! | `object!` of `agent_communication` | [`read`] | none | dropped; kept in an `open struct` | all declared members, then the unknown ones |
//! | `record!` of `agent_connect` and `native` | [`decode`] | required | ignored; refused in a `strict struct` | all but absent `?` members and those that `unless` leaves out |

mod decode;
mod depth;
mod extra;
mod leaf;
pub(crate) mod member;
pub(crate) mod object;
mod path;
mod read;
pub(crate) mod record;
pub(crate) mod scan;
pub(crate) mod schema;
pub(crate) mod text;
mod tree;
mod value;
mod violation;
mod wording;
pub(crate) mod words;

pub use decode::{decode, decode_list, decode_or_empty};
pub(crate) use decode::{object_only, or_default};
pub(crate) use depth::is_deeper;
pub use extra::Extra;
pub(crate) use leaf::{refusal, text_of};
pub use path::Path;
pub use path::{MAX_QUOTED_BYTES, joined};
pub(crate) use path::{Style, quoted};
pub(crate) use read::read_styled;
pub use read::{MAX_DEPTH, Read, Rules, read, read_checked, read_json, read_params, read_result};
pub use scan::OwnedItems;
pub use tree::{DEFAULT_MAX_TREE_BYTES, MAX_TREE_FACTOR, is_too_complex, tree_bytes};
pub use value::Json;
pub(crate) use value::present;
pub use violation::{Violation, ViolationKind};
