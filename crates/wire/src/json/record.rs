/// Declares structures with public members. A member with `?` may be absent or `null`, and is not written if it is `None`.
macro_rules! record {
    ($(
        $(#[$attr:meta])*
        pub struct $name:ident {
            $( $(#[$mattr:meta])* $member:ident $(? : $optional:ty)? $(: $type:ty)?, )*
        }
    )*) => {$(
        $(#[$attr])*
        pub struct $name {
            $(
                $(#[$mattr])*
                $(
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub $member: Option<$optional>,
                )?
                $( pub $member: $type, )?
            )*
        }
    )*};
}
pub(crate) use record;
