//! See `forebay_fuzz::chunked_round_trip`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::chunked_round_trip::check(data));
