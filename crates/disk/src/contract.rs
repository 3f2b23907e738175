//! The contract of [`PageStore`], checked on a store that has room for a few MiB and whose disk
//! works: there nothing needs to be forgotten, and so nothing may be.

use bytes::Bytes;

use crate::page_store::{PageId, PageStore, Put, Refusal};

/// An id of this suite.
fn id(index: u64) -> PageId {
    PageId {
        content: *b"contract  suite.",
        index,
    }
}

/// Bytes that tell pages apart.
fn page(seed: u64, length: usize) -> Bytes {
    let mut state = seed;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Checks a store that was just opened, `page_bytes_max` being its largest page, and closes it.
///
/// # Panics
/// When the store breaks the contract.
pub async fn check(store: &dyn PageStore, page_bytes_max: usize) {
    pages_come_back(store, page_bytes_max).await;
    the_last_put_counts(store).await;
    what_is_removed_is_gone(store).await;
    a_dropped_future_changes_nothing(store).await;
    a_closed_store_is_empty(store).await;
}

async fn pages_come_back(store: &dyn PageStore, page_bytes_max: usize) {
    let lengths = [1, 15, 16, 17, 1024, 4096, 65_537, page_bytes_max];
    for (index, length) in (0..).zip(lengths) {
        assert_eq!(store.get(id(index)).await, None, "nothing was put");
        assert!(!store.contains(id(index)));
        assert_eq!(store.put(id(index), page(index, length)), Put::Taken);
        assert!(store.contains(id(index)), "from the moment it is taken");
        let read = store.get(id(index)).await;
        assert_eq!(read, Some(page(index, length)), "{length} bytes");
    }
    store.flush().await.expect("the disk works");
    for (index, length) in (0..).zip(lengths) {
        let read = store.get(id(index)).await;
        assert!(
            read == Some(page(index, length)),
            "{length} bytes once written"
        );
    }
    assert_eq!(store.stats().entries, lengths.len() as u64);
}

async fn the_last_put_counts(store: &dyn PageStore) {
    for seed in 100..110 {
        assert_eq!(store.put(id(100), page(seed, 700)), Put::Taken);
        assert_eq!(store.get(id(100)).await, Some(page(seed, 700)));
        if seed % 3 == 0 {
            store.flush().await.expect("the disk works");
        }
    }
    assert_eq!(store.get(id(100)).await, Some(page(109, 700)));
}

async fn what_is_removed_is_gone(store: &dyn PageStore) {
    store.remove(id(200));
    for flush in [false, true] {
        store.put(id(200), page(200, 300));
        if flush {
            store.flush().await.expect("the disk works");
        }
        store.remove(id(200));
        assert!(!store.contains(id(200)));
        assert_eq!(store.get(id(200)).await, None);
        store.flush().await.expect("the disk works");
        assert_eq!(
            store.get(id(200)).await,
            None,
            "not brought back by a flush"
        );
    }
    store.put(id(200), page(201, 300));
    assert_eq!(store.get(id(200)).await, Some(page(201, 300)));
}

async fn a_dropped_future_changes_nothing(store: &dyn PageStore) {
    store.put(id(300), page(300, 5000));
    drop(store.get(id(300)));
    drop(store.flush());
    assert_eq!(store.get(id(300)).await, Some(page(300, 5000)));
}

async fn a_closed_store_is_empty(store: &dyn PageStore) {
    store.close().await.expect("the disk works");
    assert_eq!(store.get(id(300)).await, None);
    let put = store.put(id(300), page(300, 5000));
    assert_eq!(put, Put::Refused(Refusal::Closed));
    store.close().await.expect_err("it is closed already");
}
