//! See `forebay_fuzz::chunked_body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::chunked_body::check(data));
