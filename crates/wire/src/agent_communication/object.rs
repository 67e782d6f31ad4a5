//! Declares an object once; its type, reading and writing follow from the declaration.

/// Declares objects. The mode of a member decides how an invalid value is handled; undeclared members are dropped.
///
/// With `keep`, undeclared members are kept. So are a peer's invalid values of the members in that block.
/// `flags` are not in the JSON: `finish` sets them to what is known of the JSON beyond the members' values.
macro_rules! object {
    () => {};
    ($(#[$attr:meta])* pub struct $name:ident { $($m:tt)* } keep { $($k:tt)* } flags { $($f:tt)* } finish $finish:path; $($rest:tt)*) => {
        object! { @kept { $(#[$attr])* } $name { $($m)* } { $($k)* } { $($f)* } $finish }
        object! { $($rest)* }
    };
    ($(#[$attr:meta])* pub struct $name:ident { $($m:tt)* } keep { $($k:tt)* } finish $finish:path; $($rest:tt)*) => {
        object! { @kept { $(#[$attr])* } $name { $($m)* } { $($k)* } { } $finish }
        object! { $($rest)* }
    };
    ($(#[$attr:meta])* pub struct $name:ident { $($m:tt)* } keep { $($k:tt)* } $($rest:tt)*) => {
        object! { @kept { $(#[$attr])* } $name { $($m)* } { $($k)* } { } }
        object! { $($rest)* }
    };
    ($(#[$attr:meta])* pub struct $name:ident { $($m:tt)* } check $check:path; $($rest:tt)*) => {
        object! { @plain { $(#[$attr])* } $name { $($m)* } $check }
        object! { $($rest)* }
    };
    ($(#[$attr:meta])* pub struct $name:ident { $($m:tt)* } $($rest:tt)*) => {
        object! { @plain { $(#[$attr])* } $name { $($m)* } }
        object! { $($rest)* }
    };
    (
        @plain { $(#[$attr:meta])* } $name:ident {
            $( $(#[$mattr:meta])* $member:ident $(as $key:literal)?: $type:ty = $mode:ident; )*
        }
        $($check:path)?
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
        @kept { $(#[$attr:meta])* } $name:ident {
            $( $(#[$mattr:meta])* $member:ident $(as $key:literal)?: $type:ty = $mode:ident; )*
        } {
            $( $(#[$kattr:meta])* $kept:ident: $ktype:ty; )*
        } {
            $( $(#[$fattr:meta])* $flag:ident; )*
        }
        $($finish:path)?
    ) => {
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
        $(#[$attr])*
        pub struct $name {
            $( $(#[$mattr])* $(#[serde(rename = $key)])? pub $member: $type, )*
            $( $(#[$kattr])* pub $kept: $ktype, )*
            $( $(#[$fattr])* #[serde(skip)] pub $flag: bool, )*
            /// The members that the protocol does not declare.
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
                    $( $member = object!(@key $member $($key)?), )*
                    $( $kept = stringify!($kept), )*
                } else member => unknown.push((member.key, member.value)));
                let read = Self {
                    $( $member: $mode($member, &at.key(object!(@key $member $($key)?)))?, )*
                    $( $kept: $crate::json::member::optional_or_unknown($kept, at, stringify!($kept), &mut unknown)?, )*
                    $( $flag: false, )*
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
