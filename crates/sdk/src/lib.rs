//! What agent authors and callers use: the Agent trait with its context, and clients of the protocols.
