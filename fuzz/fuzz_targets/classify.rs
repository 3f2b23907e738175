//! See `forebay_fuzz::classify`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::classify::check(data));
