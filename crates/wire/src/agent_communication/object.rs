//! How objects are declared: once, and from that follow the type, its reading and its writing.

/// Declares an object. Each member has a mode, which says how much it may be wrong; undeclared members are dropped.
///
/// With `keep`, undeclared members are kept, and so are misfits of the members in its block that a peer sends.
macro_rules! object {
    (
        $(#[$attr:meta])*
        pub struct $name:ident {
            $( $(#[$mattr:meta])* $member:ident $(as $key:literal)?: $type:ty = $mode:ident; )*
        }
        $(check $check:path;)?
    ) => {
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
        $(#[$attr])*
        pub struct $name {
            $( $(#[$mattr])* $(#[serde(rename = $key)])? pub $member: $type, )*
        }

        impl $crate::json::Read for $name {
            fn read(
                json: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                use $crate::agent_communication::object::object;
                $crate::json::object::find_members!(json, at, {
                    $( $member = object!(@key $member $($key)?), )*
                } else _member => {});
                let read = Self {
                    $( $member: $mode($member, &at.key(object!(@key $member $($key)?)))?, )*
                };
                $( $check(&read, at)?; )?
                Ok(read)
            }
        }
    };
    (
        $(#[$attr:meta])*
        pub struct $name:ident {
            $( $(#[$mattr:meta])* $member:ident: $type:ty = $mode:ident; )*
        } keep {
            $( $(#[$kattr:meta])* $kept:ident: $ktype:ty; )*
        }
        $(finish $finish:path;)?
    ) => {
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
        $(#[$attr])*
        pub struct $name {
            $( $(#[$mattr])* pub $member: $type, )*
            $( $(#[$kattr])* pub $kept: $ktype, )*
            /// The undeclared members.
            #[serde(flatten)]
            pub extra: $crate::json::Extra,
        }

        impl $crate::json::Read for $name {
            fn read(
                json: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                let mut unknown = Vec::new();
                $crate::json::object::find_members!(json, at, {
                    $( $member = stringify!($member), )*
                    $( $kept = stringify!($kept), )*
                } else member => unknown.push((member.key, member.value)));
                let read = Self {
                    $( $member: $mode($member, &at.key(stringify!($member)))?, )*
                    $( $kept: $crate::json::member::kept($kept, at, stringify!($kept), &mut unknown)?, )*
                    extra: $crate::json::object::unknown(unknown, at)?,
                };
                $( let read = $finish(read, json, at)?; )?
                Ok(read)
            }
        }
    };
    (@key $member:ident) => { stringify!($member) };
    (@key $member:ident $key:literal) => { $key };
}
pub(super) use object;
