//! See `forebay_fuzz::copy_source`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::copy_source::check(data));
