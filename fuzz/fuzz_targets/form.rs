//! See `forebay_fuzz::form`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::form::check(data));
