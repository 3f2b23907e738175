//! Tests of Forebay's own protocol code against AWS's libraries and over the fuzz corpora, see
//! `tests/`.
//!
//! A crate of its own, so that those libraries and what they pull in stay out of a product build.
