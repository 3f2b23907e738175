//! See `forebay_fuzz::dates`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::dates::check(data));
