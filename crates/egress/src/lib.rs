//! The one outbound HTTP client, which connects to the address it checked.
//!
//! # Invariants
//! - Every address that a name resolves to is checked, and the connection goes to one of the checked addresses: nothing is resolved twice.
//! - Redirects are not followed, and no proxy is taken from the environment.
//! - Every response has a time and a size limit.

mod address;
mod cidr;
mod client;
mod error;
mod policy;
mod resolver;

pub use address::AddressClass;
pub use cidr::{BadCidr, Cidr};
pub use client::{Client, Options, ResponseBody};
pub use error::Error;
pub use policy::Policy;
