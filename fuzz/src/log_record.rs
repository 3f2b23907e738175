//! Records and tables of a log: `forebay_log::testing` has the format of the input.

/// See `forebay_log::testing::check_log`.
pub fn check(data: &[u8]) {
    forebay_log::testing::check_log(data);
}
