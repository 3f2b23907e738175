//! `forebay report` as a program: what it prints where, and how it leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    path::Path,
    process::{Command, Output},
};

/// A run file of the format's first version.
const RUN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../bench/tests/fixtures/forebay-bench-1.json"
);

fn report(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("report")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_report_leaves_with_0_1_or_64_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    // By way of a link, so that a program that renames over it harms no device.
    let full = path("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    for (arguments, code, said) in [
        (vec![RUN], 0, ""),
        (vec!["--schema"], 0, ""),
        (vec![RUN, "-o", &path("report.html")], 0, ""),
        (
            vec![&path("missing.json")[..]],
            1,
            "missing.json: No such file",
        ),
        (vec![RUN, "-o", &full], 1, "full: No space left on device"),
        (
            vec![RUN, "--csv", &full],
            1,
            "full: No space left on device",
        ),
        (vec![RUN, "--charts", RUN], 1, "forebay-bench-1.json: "),
        (vec![], 64, "required"),
        (vec![RUN, "--pie"], 64, "--pie"),
    ] {
        let output = report(&arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
        assert_eq!(errors.is_empty(), code == 0, "{arguments:?}: {errors}");
    }
    let page = std::fs::read_to_string(path("report.html")).unwrap();
    assert!(page.ends_with("</html>\n"));
    assert!(Path::new("/dev/full").exists());
}
