//! Test-only peers and starters of real services.
