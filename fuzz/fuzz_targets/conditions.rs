//! See `forebay_fuzz::conditions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::conditions::check(data));
