use serde::{Serialize, Serializer};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Code(pub i32);

// === impl Code ===

impl Code {
    pub const PARSE_ERROR: Self = Self(-32700);
    pub const INVALID_REQUEST: Self = Self(-32600);
    pub const METHOD_NOT_FOUND: Self = Self(-32601);
    pub const INVALID_PARAMS: Self = Self(-32602);
    pub const INTERNAL_ERROR: Self = Self(-32603);
    pub const REQUEST_CANCELLED: Self = Self(-32800);
    pub const AUTH_REQUIRED: Self = Self(-32000);
    pub const RESOURCE_NOT_FOUND: Self = Self(-32002);

    /// Returns the meaning of the code, which is the default message of an error.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PARSE_ERROR => "Parse error",
            Self::INVALID_REQUEST => "Invalid request",
            Self::METHOD_NOT_FOUND => "Method not found",
            Self::INVALID_PARAMS => "Invalid params",
            Self::INTERNAL_ERROR => "Internal error",
            Self::REQUEST_CANCELLED => "Request cancelled",
            Self::AUTH_REQUIRED => "Authentication required",
            Self::RESOURCE_NOT_FOUND => "Resource not found",
            Self(_) => "Error",
        }
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i32(self.0)
    }
}
