//! See `forebay_fuzz::profile`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::profile::check(data));
