//! Traces in the OpenTelemetry Protocol over HTTP, in the binary form of Protocol Buffers: `ExportTraceServiceRequest`, version 1.
//!
//! Contains only the messages that this server sends, and the members of a response that it reads.

use prost::{Message, Oneof};

/// The media type of requests and responses.
pub const CONTENT_TYPE: &str = "application/x-protobuf";
/// The path of traces, after the address of a collector.
pub const TRACES_PATH: &str = "/v1/traces";

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct TraceExport {
    #[prost(message, repeated, tag = "1")]
    pub resources: Vec<ResourceTraces>,
}

/// `ResourceSpans`.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceTraces {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<TraceResource>,
    #[prost(message, repeated, tag = "2")]
    pub scopes: Vec<ScopeTraces>,
}

/// `Resource`: the source of the spans.
#[derive(Clone, PartialEq, Message)]
pub struct TraceResource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<TraceAttribute>,
}

/// `ScopeSpans`.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeTraces {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<TraceScope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<TraceSpan>,
}

/// `InstrumentationScope`: the library that made the spans.
#[derive(Clone, PartialEq, Message)]
pub struct TraceScope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// `Span`.
#[derive(Clone, PartialEq, Message)]
pub struct TraceSpan {
    #[prost(bytes = "vec", tag = "1")]
    pub trace: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span: Vec<u8>,
    /// Empty if the trace begins with this span.
    #[prost(bytes = "vec", tag = "4")]
    pub parent: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "7")]
    pub start: u64,
    /// Nanoseconds since 1970.
    #[prost(fixed64, tag = "8")]
    pub end: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<TraceAttribute>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<SpanStatus>,
    /// The flags of the trace context in bits 0 to 7. Bit 8 is set if bit 9 is valid; bit 9 is set if the parent is in another process.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// `Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SpanStatus {
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(enumeration = "SpanVerdict", tag = "3")]
    pub code: i32,
}

/// `KeyValue`.
#[derive(Clone, PartialEq, Message)]
pub struct TraceAttribute {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// `AnyValue`.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "AttributeValue", tags = "1, 2, 3")]
    pub value: Option<AttributeValue>,
}

/// The value types that this server sends.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum AttributeValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
}

/// `Span.SpanKind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    Unspecified = 0,
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// `Status.StatusCode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum SpanVerdict {
    Unset = 0,
    Ok = 1,
    Error = 2,
}

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct TraceExportReply {
    #[prost(message, optional, tag = "1")]
    pub partial: Option<PartialExport>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PartialExport {
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub message: String,
}

// === impl TraceExport ===

impl TraceExport {
    /// Returns the body of a request.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

// === impl TraceExportReply ===

impl TraceExportReply {
    /// Reads the body of a response; `None` if it is malformed.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok()
    }
}

// === impl TraceAttribute ===

impl TraceAttribute {
    /// Returns a text attribute.
    #[must_use]
    pub fn text(key: &str, value: impl Into<String>) -> Self {
        Self::of(key, AttributeValue::Text(value.into()))
    }

    /// Returns a number attribute. Clamps to the largest number of the protocol.
    #[must_use]
    pub fn number(key: &str, value: u64) -> Self {
        Self::of(key, AttributeValue::Int(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    /// Returns a boolean attribute.
    #[must_use]
    pub fn flag(key: &str, value: bool) -> Self {
        Self::of(key, AttributeValue::Bool(value))
    }

    fn of(key: &str, value: AttributeValue) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}
