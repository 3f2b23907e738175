//! See `forebay_fuzz::disk_segment`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::disk_segment::check(data));
