//! See `forebay_fuzz::native_entry`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::native_entry::check(data));
