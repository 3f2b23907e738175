//! Tests of the engine over an index.
