//! See `forebay_fuzz::form_policy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::form_policy::check(data));
