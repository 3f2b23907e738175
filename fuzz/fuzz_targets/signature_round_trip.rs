//! See `forebay_fuzz::signature_round_trip`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::signature_round_trip::check(data));
