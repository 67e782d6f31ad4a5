//! The JSON reader of every protocol: it tracks the path, reports violations in one form, and carries JSON unchanged.
//!
//! - [`read`] walks over checked text and copies only the values that it keeps. [`Rules`] decide how much it accepts.
//! - [`decode`] decodes into derived types as a stream, and rewords serde's errors for people who send JSON.

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
pub use tree::{DEFAULT_MAX_TREE_BYTES, MAX_TREE_FACTOR, is_too_complex, tree_bytes};
pub use value::Json;
pub(crate) use value::present;
pub use violation::{Violation, ViolationKind};
