//! Declares an object once; its type, reading and writing follow from the declaration.

/// Declares objects. The mode of a member decides how an invalid value is handled. An `open` object keeps undeclared members; others drop them.
///
/// `flags` are not in the JSON: `finish` sets them to what is known of the JSON beyond the members' values.
macro_rules! object {
    ($(
        $(#[$attr:meta])*
        pub $kind:ident $($name:ident)+ $(: $derive:ident)? { $($m:tt)* } $(flags { $($f:tt)* })? $(finish $finish:path)? $(;)?
    )*) => {
        $( object! { @$kind { $(#[derive($derive)])? $(#[$attr])* } $($name)+ { $($m)* } { $($($f)*)? } $($finish)? } )*
    };
    (@struct { $($attr:tt)* } $name:ident { $($m:tt)* } {}) => {
        object! { @define { $($attr)* } $name { $($m)* } {} unknown {} }
    };
    (@open { $($attr:tt)* } struct $name:ident { $($m:tt)* } { $($f:tt)* } $($finish:path)?) => {
        object! { @define { $($attr)* } $name { $($m)* } { $($f)* } unknown { unknown extra } $($finish)? }
    };
    (
        @define { $($attr:tt)* } $name:ident {
            $( $(#[$mattr:meta])* $member:ident $(as $key:literal)?: $type:ty = $mode:ident; )*
        } {
            $( $(#[$fattr:meta])* $flag:ident; )*
        }
        $unknown:ident { $($list:ident $extra:ident)? } $($finish:path)?
    ) => {
        #[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
        $($attr)*
        pub struct $name {
            $( $(#[$mattr])* $(#[serde(rename = $key)])? pub $member: $type, )*
            $( $(#[$fattr])* #[serde(skip)] pub $flag: bool, )*
            $(
                /// The members that the protocol does not declare.
                #[serde(flatten)]
                pub $extra: $crate::json::Extra,
            )?
        }

        impl $crate::json::Read for $name {
            fn read(
                json: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                $( let mut $list = Vec::new(); )?
                $crate::json::object::find_members!(json, at, {
                    $( $member = object!(@key $member $($key)?), )*
                } else member => { $( $list.push((member.key, member.value)); )? });
                let read = Self {
                    $( $member: $crate::json::object::read_member!(
                        required $mode, $member, at, object!(@key $member $($key)?), $unknown
                    )?, )*
                    $( $flag: false, )*
                    $( $extra: $crate::json::object::unknown($list, at)?, )?
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
