//! The limits of an agent's processes.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use trilogue_backends::child::GroupLimits;

use super::quantity::Size;

/// The limits of each process of an agent, with everything that it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentLimits {
    /// The memory, such as `"4GiB"`, without swap. If the agent needs more, the system ends it, and the error of the run names the limit.
    #[serde(default)]
    pub memory: Option<Size>,
    /// The number of processes and threads. Further ones fail.
    #[serde(default)]
    pub processes: Option<u64>,
    /// The processor time, as a number of processors, such as `2` or `0.5`. The agent becomes slower.
    #[serde(default)]
    pub cpu: Option<Cores>,
}

/// A number of processors, in hundredths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores(u32);

/// The hundredths of a processor.
const WHOLE: f64 = 100.0;
/// More processors than a machine has.
const MAX_CORES: f64 = 10_000.0;

// === impl AgentLimits ===

impl AgentLimits {
    /// The same for a control group.
    #[must_use]
    pub fn to_group(self) -> GroupLimits {
        GroupLimits {
            memory_bytes: self.memory.map(|size| size.0),
            processes: self.processes,
            cpu_percent: self.cpu.map(|cores| cores.0),
        }
    }
}

// === impl Cores ===

impl Cores {
    /// This number of processors. `None` if it is less than a hundredth, or more than any machine has.
    #[must_use]
    pub fn of(number: f64) -> Option<Self> {
        let hundredths = (number * WHOLE).round();
        let is_valid = (1.0..=MAX_CORES * WHOLE).contains(&hundredths);
        is_valid.then_some(Self(hundredths as u32))
    }
}

impl Serialize for Cores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / WHOLE)
    }
}

impl<'de> Deserialize<'de> for Cores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Cores;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of processors from 0.01, such as 2 or 0.5")
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Cores, E> {
                Cores::of(number)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Cores, E> {
                self.visit_f64(number as f64)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cores, E> {
                self.visit_f64(number as f64)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Cores {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("cores")
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0.01, "maximum": MAX_CORES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_quantities_that_a_group_can_have() {
        let limits: AgentLimits =
            toml::from_str("memory = \"4 GiB\"\nprocesses = 512\ncpu = 2").unwrap();
        let group = limits.to_group();
        assert_eq!(group.memory_bytes, Some(4 << 30));
        assert_eq!((group.processes, group.cpu_percent), (Some(512), Some(200)));
        assert_eq!(Cores::of(0.5), Some(Cores(50)));
        for number in [0.0, 0.004, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert_eq!(Cores::of(number), None, "{number}");
        }
        assert!(toml::from_str::<AgentLimits>("disk = \"1GiB\"").is_err());
    }
}
