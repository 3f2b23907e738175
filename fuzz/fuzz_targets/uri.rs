//! See `forebay_fuzz::uri`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::uri::check(data));
