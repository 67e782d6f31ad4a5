//! The server of this program: which agents it runs, where it listens, where its logs and traces go, and how it stops.
//!
//! | file | what it does |
//! |---|---|
//! | `app` | builds the server from options and listeners, and runs it until a shutdown signal |
//! | `serve` | the command line and the output of a program around the library |
//! | `agents`, `descriptor` | the agents of the configuration and of the program, and their descriptors |
//! | `listen` | binds the addresses |
//! | `logging`, `log_queue`, `otlp` | logs and traces |
//! | `notify` | notifies an address or a command of each question |
//! | `callback_secret`, `first_token` | secrets that the server makes at its first start |

pub(crate) mod agents;
pub(crate) mod app;
pub mod callback_secret;
pub(crate) mod descriptor;
pub(crate) mod first_token;
pub(crate) mod listen;
mod log_queue;
pub mod logging;
pub mod notify;
pub(crate) mod otlp;
pub(crate) mod serve;
