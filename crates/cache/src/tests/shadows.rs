//! What the layer tells its shadow caches.

use super::origin::{KIB, Setup};

#[tokio::test]
async fn shadows_see_each_read_of_the_objects_they_follow_once() {
    let fixture = Setup::default().build().await;
    let mut followed = 0;
    // Names are chosen by a hash with a random seed: 3000 without one that is followed are never
    // met.
    for name in 0..3000 {
        let key = format!("{name}");
        fixture.put(&key, 10 * KIB).await;
        let before = fixture.cache.operator().shadows()[1];
        for _ in 0..3 {
            fixture.get(&key).await;
            fixture.settle().await;
        }
        let after = fixture.cache.operator().shadows()[1];
        assert_eq!(after.reads_count - before.reads_count, 3);
        if followed == 2 {
            break;
        }
        match after.lookups_count - before.lookups_count {
            0 => {}
            3 => {
                followed += 1;
                assert_eq!(
                    after.hits_count - before.hits_count,
                    2,
                    "the first is a miss"
                );
                assert_eq!(after.lookup_bytes - before.lookup_bytes, 30 * KIB);
                assert_eq!(after.hit_bytes - before.hit_bytes, 20 * KIB);
            }
            other => panic!("{other} lookups of 3 reads"),
        }
    }
    assert!(followed > 0);
}
