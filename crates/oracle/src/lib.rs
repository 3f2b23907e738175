//! Tests of Forebay against AWS's libraries, of the contract of stores over HTTP, and over the
//! fuzz corpora, see `tests/`.
//!
//! A crate of its own, so that those libraries and what they pull in stay out of a product build.
