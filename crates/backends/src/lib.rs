//! The kinds of agents: native ones today.
