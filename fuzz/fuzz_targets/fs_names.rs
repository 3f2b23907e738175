//! See `forebay_fuzz::fs_names`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::fs_names::check(data));
