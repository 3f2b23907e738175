//! See `forebay_fuzz::signature_forged`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::signature_forged::check(data));
