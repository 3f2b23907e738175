//! Runs the check of each fuzz target over its committed corpus (see `fuzz/`), without a fuzzer:
//! what fuzzing once reached is reached by every `cargo test`.

use std::{
    collections::BTreeSet,
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use forebay_fuzz::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Names of the files and directories in a directory, without extensions.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("the directory is committed");
    let paths = entries.map(|entry| entry.expect("a directory can be read").path());
    let stem = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    paths
        .map(|path| stem(path).expect("names are plain"))
        .collect()
}

#[test]
fn every_parser_keeps_its_promises_over_its_corpus() {
    let mut broken = Vec::new();
    for target in TARGETS {
        let mut inputs_count = 0;
        for entry in fs::read_dir(fuzz().join("corpus").join(target.name)).unwrap() {
            let path = entry.unwrap().path();
            let input = fs::read(&path).unwrap();
            if catch_unwind(|| (target.check)(&input)).is_err() {
                broken.push(path);
            }
            inputs_count += 1;
        }
        assert!(inputs_count > 0, "{} has no corpus", target.name);
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn each_target_has_a_binary_and_a_corpus_and_nothing_else_has() {
    let targets: BTreeSet<_> = TARGETS
        .iter()
        .map(|target| target.name.to_owned())
        .collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), targets);
    assert_eq!(names(&fuzz().join("corpus")), targets);
}
