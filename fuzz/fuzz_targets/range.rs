//! See `forebay_fuzz::range`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::range::check(data));
