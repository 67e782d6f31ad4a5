use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::json::schema::schema;

macro_rules! bounded {
    ($($(#[$meta:meta])* $name:ident = $least:literal ..= $most:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
        #[serde(transparent)]
        pub struct $name(u32);

        impl $name {
            pub fn new(number: u32) -> Option<Self> {
                ($least..=$most).contains(&i64::from(number)).then_some(Self(number))
            }

            pub fn get(self) -> u32 {
                self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let number = text.parse().ok().and_then(Self::new);
                number.ok_or_else(|| format!("must be a whole number from {} to {}", $least, $most))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let number = i64::deserialize(from)?;
                let number = u32::try_from(number).ok().and_then(Self::new);
                number.ok_or_else(|| {
                    de::Error::custom(format!("must be from {} to {}", $least, $most))
                })
            }
        }

        schema!(inline $name = stringify!($name), |_| {
            json_schema!({ "type": "integer", "minimum": $least, "maximum": $most })
        });
    )*};
}

bounded! {
    /// The maximum number of rows in a response: 1 to 1,000.
    Limit = 1..=1_000;
    /// The number of matches to skip: up to a million.
    Offset = 0..=1_000_000;
    /// The delay before a run starts, in seconds: up to a year.
    AfterSeconds = 0..=31_536_000;
    /// The lifetime, in seconds: up to a year.
    TtlSeconds = 1..=31_536_000;
}
