//! One agent, every ACP: the server, the library and the command line.
