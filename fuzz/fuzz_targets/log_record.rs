//! See `forebay_fuzz::log_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::log_record::check(data));
