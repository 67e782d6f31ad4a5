//! The protocols as data: wire types and codecs, no IO.
