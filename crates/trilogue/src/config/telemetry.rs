//! What the server reports to other systems.

use std::borrow::Cow;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{RedactedText, Span};

/// Parts of the whole in a [`Ratio`].
const WHOLE: u32 = 1_000_000;

/// What the server reports to other systems. `GET /metrics` needs no setting.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Telemetry {
    /// Traces of runs, which the server sends to a collector by the OpenTelemetry Protocol over HTTP. They hold names, ids, times and sizes, and never what is said.
    pub otlp: Otlp,
}

/// Where traces go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Otlp {
    /// The address of the collector, such as `http://127.0.0.1:4318`; the server adds `/v1/traces`. Not set: the variables `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else no traces.
    pub endpoint: Option<String>,
    /// Headers of each request. The server never shows their values. Not set, like the next two: the variable `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: IndexMap<String, RedactedText>,
    /// Headers whose values are in environment variables of the server: the header, and the variable's name.
    pub header_env: IndexMap<String, String>,
    /// Headers whose values are in files: the header, and the file.
    pub header_files: IndexMap<String, String>,
    /// The attribute `service.name` of the spans. Not set: the variable `OTEL_SERVICE_NAME`, else `trilogue`.
    pub service_name: Option<String>,
    /// How many of the traces that begin at this server are sampled, from 0 to 1. A run that came with a `traceparent` is sampled when that says so. Not set: the variables `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`, else 1.
    pub sample_ratio: Option<Ratio>,
    /// How long one request to the collector may take. The server tries a request four times.
    pub timeout: Span,
    /// The maximum number of ended runs that wait for the collector. Above it, the server leaves runs out of the traces and counts them in `trilogue_otlp_dropped_total`.
    pub queue: usize,
}

/// A part of a whole, from 0 to 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio(u32);

// === impl Otlp ===

impl Default for Otlp {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: IndexMap::new(),
            header_env: IndexMap::new(),
            header_files: IndexMap::new(),
            service_name: None,
            sample_ratio: None,
            timeout: Span(Duration::from_secs(10)),
            queue: 2_048,
        }
    }
}

// === impl Ratio ===

impl Ratio {
    /// The ratio of a number from 0 to 1.
    #[must_use]
    pub fn of(number: f64) -> Option<Self> {
        let parts = (0.0..=1.0).contains(&number).then(|| (number * f64::from(WHOLE)).round());
        parts.map(|parts| Self(parts as u32))
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.to_f64())
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Ratio;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number from 0 to 1, such as 0.1")
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Ratio, E> {
                Ratio::of(number)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), &self))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ratio, E> {
                self.visit_f64(number as f64)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Ratio, E> {
                self.visit_f64(number as f64)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Ratio {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("ratio")
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}
