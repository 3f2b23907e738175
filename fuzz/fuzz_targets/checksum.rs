//! See `forebay_fuzz::checksum`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::checksum::check(data));
