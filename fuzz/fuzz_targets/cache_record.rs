//! See `forebay_fuzz::cache_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::cache_record::check(data));
