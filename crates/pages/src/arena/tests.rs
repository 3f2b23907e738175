//! Tests of the arena, in particular of what its proof claims.

use std::{
    io::Read,
    net::{TcpListener, TcpStream},
};

use rustix::{fs::sendfile, net::sockopt};

use super::*;
use crate::locate;

const MIB: u64 = 1024 * 1024;

fn file_arena(capacity_bytes: u64, reuse: Reuse) -> Arena {
    Arena::in_file(capacity_bytes, reuse).unwrap()
}

fn filled(byte: u8, length: u64) -> Bytes {
    vec![byte; usize::try_from(length).unwrap()].into()
}

/// Resident memory of the arena's file, as the kernel counts it.
fn resident_bytes(arena: &Arena) -> u64 {
    let file = arena.inner.file.as_ref().unwrap();
    u64::try_from(rustix::fs::fstat(file.mapping().fd()).unwrap().st_blocks).unwrap() * 512
}

#[test]
fn pages_of_every_size_come_back_as_they_were() {
    for arena in [
        file_arena(64 * MIB, Reuse::PunchedIfLocated),
        Arena::on_heap(64 * MIB),
    ] {
        for length in [
            0,
            1,
            1000,
            32_768,
            32_769,
            65_536,
            65_537,
            MIB,
            3 * MIB + 1,
            16 * MIB,
        ] {
            let whole: Bytes = (0..length)
                .map(|at: u64| ((at * 31) >> 3).to_le_bytes()[0])
                .collect::<Vec<_>>()
                .into();
            let third = whole.len() / 3;
            let pieces = [whole.slice(..third), Bytes::new(), whole.slice(third..)];
            let stored = arena.store(&pieces).unwrap();
            assert!(stored == whole, "{length} bytes in {:?}", arena.kind());
            let in_file = arena.kind() == ArenaKind::File && length >= STORED_BYTES_MIN;
            assert_eq!(locate(&stored).is_some(), in_file, "{length} bytes");
        }
        assert_eq!(arena.used_bytes(), 0);
    }
}

#[test]
fn thousands_of_pieces_make_one_page() {
    let arena = file_arena(4 * MIB, Reuse::PunchedIfLocated);
    let pieces: Vec<_> = (0..5000_u32)
        .map(|i| filled(i.to_le_bytes()[0], 97))
        .collect();
    for round in ["into a hole", "over a backed slot"] {
        let stored = arena.store(&pieces).unwrap();
        assert!(stored == pieces.concat(), "{round}");
    }
    assert!(arena.backed_bytes() > 0);
}

#[test]
fn a_slice_is_located_at_its_offset_in_the_file() {
    let arena = file_arena(4 * MIB, Reuse::PunchedIfLocated);
    let stored = arena
        .store(&[filled(1, 100_000), filled(2, 100_000)])
        .unwrap();
    let slice = stored.slice(99_990..100_010);
    let located = locate(&slice).unwrap();
    let mut read = [0; 20];
    rustix::io::pread(located.fd, &mut read, located.offset).unwrap();
    assert_eq!(read[..], slice[..]);
    assert!(locate(&vec![0; 100_000]).is_none());
}

#[test]
fn capacity_is_a_limit_in_memory_that_is_given_back() {
    let arena = file_arena(MIB, Reuse::PunchedIfLocated);
    let first = arena.store(&[filled(1, MIB / 2 + 1)]).unwrap();
    assert_eq!(arena.used_bytes(), MIB / 2 + 4096);
    assert_eq!(resident_bytes(&arena), MIB / 2 + 4096);
    assert!(
        arena.store(&[filled(2, MIB / 2)]).is_none(),
        "4 KiB too many"
    );
    let sent_still = first.slice(5..10);
    drop(first);
    assert_eq!(arena.used_bytes(), MIB / 2 + 4096, "a slice keeps its page");
    drop(sent_still);
    assert_eq!((arena.used_bytes(), resident_bytes(&arena)), (0, 0));
    assert!(arena.store(&[filled(2, MIB)]).is_some());
}

#[test]
fn slots_never_run_out_before_memory_does() {
    let arena = file_arena(4 * MIB, Reuse::PunchedIfLocated);
    let pages: Vec<_> =
        std::iter::from_fn(|| arena.store(&[filled(3, STORED_BYTES_MIN)])).collect();
    assert_eq!(
        pages.len() as u64,
        4 * MIB / Arena::footprint_bytes(STORED_BYTES_MIN)
    );
    assert!(pages.iter().all(|page| locate(page).is_some()));
}

#[test]
fn bytes_outlive_their_arena_and_are_forgotten_after_it() {
    let arena = file_arena(4 * MIB, Reuse::PunchedIfLocated);
    let stored = arena.store(&[filled(7, MIB)]).unwrap();
    drop(arena);
    assert!(locate(&stored).is_some());
    assert!(stored.iter().all(|byte| *byte == 7));
}

#[test]
fn only_small_folios_let_pages_lie_in_a_file() {
    let setting = |text: &str| Ok(text.to_owned());
    for (setting, expected) in [
        (
            setting("always within_size advise [never] deny force\n"),
            true,
        ),
        (
            setting("always within_size [advise] never deny force\n"),
            true,
        ),
        (
            setting("always within_size advise never [deny] force\n"),
            true,
        ),
        (
            setting("[always] within_size advise never deny force\n"),
            false,
        ),
        (
            setting("always [within_size] advise never deny force\n"),
            false,
        ),
        (
            setting("always within_size advise never deny [force]\n"),
            false,
        ),
        (setting("always [inherit] within_size advise never\n"), true),
        (
            setting("[always] inherit within_size advise never\n"),
            false,
        ),
        (Err(io::ErrorKind::NotFound.into()), true),
        (Err(io::ErrorKind::PermissionDenied.into()), false),
    ] {
        assert_eq!(folios_stay_small(&setting), expected, "{setting:?}");
    }
}

#[test]
fn the_settings_of_each_size_of_folios_are_read() {
    let sizes = fs::read_dir("/sys/kernel/mm/transparent_hugepage").map_or(0, |entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("hugepages-"))
            .count()
    });
    let settings = folio_settings();
    assert!(settings.len() > sizes, "{settings:?}");
}

/// Sends a page by `sendfile` to a receiver that does not read yet, frees the page, writes other
/// pages over its slot, and only then reads; returns how many of the rounds gave changed bytes.
fn rounds_with_changed_bytes(reuse: Reuse) -> usize {
    const ROUNDS: u8 = 20;
    let arena = file_arena(8 * MIB, reuse);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sockopt::set_socket_send_buffer_size(&sender, 4 << 20).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    let mut changed = 0;
    for round in 0..ROUNDS {
        let stored = arena.store(&[filled(round, 256 * 1024)]).unwrap();
        let located = locate(&stored).unwrap();
        let slot = stored.as_ptr();
        let mut offset = located.offset;
        let sent = sendfile(&sender, located.fd, Some(&mut offset), stored.len()).unwrap();
        drop(stored);
        for other in 1..5 {
            let over = arena
                .store(&[filled(round ^ (other << 5), 256 * 1024)])
                .unwrap();
            assert_eq!(over.as_ptr(), slot, "the slot is used again");
            // Some are located as well and some are not, so that the next page finds a hole here
            // and a backed slot there.
            assert!(other % 2 == 0 || locate(&over).is_some());
        }
        let mut read = vec![0; sent];
        receiver.read_exact(&mut read).unwrap();
        assert!(
            sent >= 32 * 1024,
            "{sent} bytes in flight are too few to show anything"
        );
        changed += usize::from(read.iter().any(|byte| *byte != round));
    }
    changed
}

/// Goal: what `sendfile` has taken stays as it was, although the slot is written again.
/// Method: the same rounds with the rule and without it; without it bytes must change, or the test
/// would prove nothing.
#[test]
fn bytes_in_flight_survive_the_reuse_of_their_slot() {
    assert_eq!(rounds_with_changed_bytes(Reuse::PunchedIfLocated), 0);
    assert_eq!(rounds_with_changed_bytes(Reuse::AsItIs), 20);
}

#[test]
fn a_page_that_was_located_anywhere_leaves_no_memory_behind() {
    let arena = file_arena(64 * MIB, Reuse::PunchedIfLocated);
    for length in [40_000, 65_536, 100_000, MIB, 5 * MIB, 16 * MIB] {
        for from in [0, length / 2, length - 1] {
            let stored = arena.store(&[filled(1, length)]).unwrap();
            assert!(locate(&stored[usize::try_from(from).unwrap()..]).is_some());
            drop(stored);
            let left = (arena.backed_bytes(), resident_bytes(&arena));
            assert_eq!(left, (0, 0), "{length} bytes, located from {from}");
        }
    }
}

#[test]
fn a_page_that_was_never_located_leaves_its_memory_to_the_next_of_its_class() {
    let arena = file_arena(64 * MIB, Reuse::PunchedIfLocated);
    for length in [40_000, 100_000, MIB, 5 * MIB, 16 * MIB] {
        let stored = arena.store(&[filled(1, length)]).unwrap();
        let slot = stored.as_ptr();
        drop(stored);
        let kept_bytes = Arena::footprint_bytes(length);
        assert_eq!((arena.used_bytes(), arena.backed_bytes()), (0, kept_bytes));
        assert_eq!(resident_bytes(&arena), kept_bytes, "it is still there");
        let next = arena.store(&[filled(2, length)]).unwrap();
        assert_eq!((next.as_ptr(), arena.backed_bytes()), (slot, 0));
        assert!(
            next == filled(2, length),
            "and has only the next one's bytes"
        );
        assert!(locate(&next).is_some());
        drop(next);
        assert_eq!((arena.backed_bytes(), resident_bytes(&arena)), (0, 0));
        drop(arena.store(&[filled(3, length)]).unwrap());
        assert_eq!(
            arena.backed_bytes(),
            kept_bytes,
            "the mark went with the hole"
        );
        let last = arena.store(&[filled(4, length)]).unwrap();
        assert_eq!((last.as_ptr(), locate(&last).is_some()), (slot, true));
    }
}

#[test]
fn a_shorter_page_gives_back_what_it_does_not_need_of_a_backed_slot_and_a_longer_one_takes_more() {
    let arena = file_arena(64 * MIB, Reuse::PunchedIfLocated);
    let lengths = [MIB, 600_000, 600_001, 524_289, 1_000_000, MIB];
    let first = arena.store(&[filled(1, lengths[0])]).unwrap();
    let slot = first.as_ptr();
    drop(first);
    for length in lengths {
        let page = arena.store(&[filled(2, length)]).unwrap();
        assert_eq!(page.as_ptr(), slot);
        assert!(page == filled(2, length));
        let footprint_bytes = Arena::footprint_bytes(length);
        let counts = (arena.used_bytes(), resident_bytes(&arena));
        assert_eq!(counts, (footprint_bytes, footprint_bytes), "{length} bytes");
    }
}

#[test]
fn backed_slots_are_limited_and_give_way_to_pages() {
    let arena = file_arena(8 * MIB, Reuse::PunchedIfLocated);
    let small: Vec<_> = (0..128)
        .map(|_| arena.store(&[filled(1, 64 * 1024)]).unwrap())
        .collect();
    assert!(arena.store(&[filled(2, 64 * 1024)]).is_none());
    drop(small);
    assert_eq!((arena.used_bytes(), arena.backed_bytes()), (0, 2 * MIB));
    assert_eq!(resident_bytes(&arena), 2 * MIB, "a quarter of the arena");
    let large = arena.store(&[filled(2, 8 * MIB)]).unwrap();
    assert_eq!((arena.used_bytes(), arena.backed_bytes()), (8 * MIB, 0));
    assert_eq!(resident_bytes(&arena), 8 * MIB);
    assert!(arena.store(&[filled(3, 64 * 1024)]).is_none());
    assert!(large.iter().all(|byte| *byte == 2));
}

#[test]
fn what_is_refused_for_lack_of_room_leaves_its_backed_slot_as_it_was() {
    let arena = file_arena(MIB, Reuse::PunchedIfLocated);
    drop(arena.store(&[filled(1, 140_000)]).unwrap());
    let _most = arena.store(&[filled(2, 800_000)]).unwrap();
    let backed_bytes = arena.backed_bytes();
    assert_eq!(backed_bytes, Arena::footprint_bytes(140_000));
    assert!(arena.store(&[filled(3, 260_000)]).is_none());
    assert_eq!(arena.backed_bytes(), backed_bytes);
    assert!(arena.store(&[filled(3, 150_000)]).is_some());
}

/// Goal: what the arena says it takes is what its file takes, within the capacity, always.
/// Method: random pages come, are located, and go; the kernel is asked after each step.
#[test]
fn the_accounts_are_those_of_the_kernel_whatever_comes_and_goes() {
    const SEED: u64 = 0x5eed_0a7e_0a00_0001;
    println!("seed {SEED:#x}");
    let capacity_bytes = 12 * MIB;
    let arena = file_arena(capacity_bytes, Reuse::PunchedIfLocated);
    let mut random = SEED;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut pages, mut refused_count) = (Vec::<Bytes>::new(), 0);
    for step in 0..1000_u64 {
        let byte = step.to_le_bytes()[0];
        match next(8) {
            0..4 => {
                let class_bytes = SLOT_BYTES_MIN << next(7);
                let length = (class_bytes / 2 + 1 + next(class_bytes / 2)).min(3 * MIB);
                let page = arena.store(&[filled(byte, length)]);
                refused_count += usize::from(page.is_none());
                pages.extend(page);
            }
            4 if !pages.is_empty() => {
                let index = usize::try_from(next(pages.len() as u64)).unwrap();
                assert!(locate(&pages[index]).is_some());
            }
            _ if !pages.is_empty() => {
                let index = usize::try_from(next(pages.len() as u64)).unwrap();
                let page = pages.swap_remove(index);
                assert!(page == filled(page[0], page.len() as u64), "step {step}");
            }
            _ => {}
        }
        let used: u64 = (pages.iter())
            .map(|page| Arena::footprint_bytes(page.len() as u64))
            .sum();
        assert_eq!(arena.used_bytes(), used, "step {step}");
        let taken_bytes = used + arena.backed_bytes();
        assert_eq!(resident_bytes(&arena), taken_bytes, "step {step}");
        assert!(taken_bytes <= capacity_bytes && arena.backed_bytes() <= capacity_bytes / 4);
    }
    assert!(refused_count > 10, "the capacity was met");
}

#[test]
fn threads_may_store_locate_and_drop_at_once() {
    let arena = file_arena(32 * MIB, Reuse::PunchedIfLocated);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let arena = &arena;
            scope.spawn(move || {
                let mut kept = std::collections::VecDeque::new();
                for round in 0..400_u64 {
                    let byte = (thread << 6) | (round % 64).to_le_bytes()[0];
                    let length = 40_000 + round * 1_777 % 300_000;
                    let page = arena.store(&[filled(byte, length)]).unwrap();
                    assert!(round % 3 != 0 || locate(&page).is_some());
                    kept.push_back((byte, page));
                    if kept.len() > 8 {
                        let (byte, page) = kept.pop_front().unwrap();
                        assert!(page == filled(byte, page.len() as u64));
                    }
                }
            });
        }
    });
    assert_eq!(arena.used_bytes(), 0);
    assert_eq!(resident_bytes(&arena), arena.backed_bytes());
    assert!(arena.backed_bytes() > 0);
}

/// Goal: a page may be dropped by another thread than the one that located it, and is punched.
/// Method: one thread locates and lets go of its share, the other drops the last one; whether the
/// slot was punched is asked of the kernel. (On `x86` the processor would forgive a missing order.)
#[test]
fn a_page_located_by_one_thread_is_punched_by_another() {
    let arena = file_arena(16 * MIB, Reuse::PunchedIfLocated);
    for _ in 0..200 {
        let page = arena.store(&[filled(1, 64 * 1024)]).unwrap();
        let share = page.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || assert!(locate(&share).is_some()));
            scope.spawn(move || drop(page));
        });
        assert_eq!((arena.backed_bytes(), resident_bytes(&arena)), (0, 0));
    }
}
