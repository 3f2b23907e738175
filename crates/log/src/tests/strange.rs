//! Whatever the bytes: what the fuzz target promises, on its corpus and on random input.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*};

use crate::testing::check_log;

#[test]
fn the_corpus_of_the_fuzz_target_keeps_its_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/log_record");
    for seed in fs::read_dir(corpus).unwrap() {
        check_log(&fs::read(seed.unwrap().path()).unwrap());
    }
}

proptest! {
    #[test]
    fn random_batches_whole_and_damaged_read_as_they_were_written(data in vec(any::<u8>(), 0..300)) {
        check_log(&data);
    }

    #[test]
    fn small_batches_damaged_anywhere_read_as_they_were_written(
        at in any::<u16>(),
        flip in 0..9_u8,
        batches in vec((0..5_u8, 0..3_u8, 0..40_u8), 1..8),
    ) {
        let mut data = at.to_le_bytes().to_vec();
        data.push(flip);
        for (kind, name, length) in batches {
            data.extend([kind, name, length]);
            data.extend(vec![kind ^ length; usize::from(length)]);
        }
        check_log(&data);
    }
}
