//! See `forebay_fuzz::xml`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::xml::check(data));
