//! The one outbound HTTP client, which connects to the address it checked.
