//! See `forebay_fuzz::policy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::policy::check(data));
