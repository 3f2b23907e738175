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
    u64::try_from(rustix::fs::fstat(file.mapping.fd()).unwrap().st_blocks).unwrap() * 512
}

#[test]
fn pages_of_every_size_come_back_as_they_were() {
    for arena in [
        file_arena(64 * MIB, Reuse::Punched),
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
    let arena = file_arena(4 * MIB, Reuse::Punched);
    let pieces: Vec<_> = (0..5000_u32)
        .map(|i| filled(i.to_le_bytes()[0], 97))
        .collect();
    let stored = arena.store(&pieces).unwrap();
    assert!(stored == pieces.concat());
}

#[test]
fn a_slice_is_located_at_its_offset_in_the_file() {
    let arena = file_arena(4 * MIB, Reuse::Punched);
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
    let arena = file_arena(MIB, Reuse::Punched);
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
    let arena = file_arena(4 * MIB, Reuse::Punched);
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
    let arena = file_arena(4 * MIB, Reuse::Punched);
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
        (Err(io::ErrorKind::NotFound.into()), true),
        (Err(io::ErrorKind::PermissionDenied.into()), false),
    ] {
        assert_eq!(folios_stay_small(&setting), expected, "{setting:?}");
    }
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
        let slot = located.offset;
        let mut offset = located.offset;
        let sent = sendfile(&sender, located.fd, Some(&mut offset), stored.len()).unwrap();
        drop(stored);
        for other in 1..5 {
            let over = arena
                .store(&[filled(round ^ (other << 5), 256 * 1024)])
                .unwrap();
            assert_eq!(
                locate(&over).unwrap().offset,
                slot,
                "the slot is used again"
            );
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
/// Method: the same rounds with and without punching; without it bytes must change, or the test
/// would prove nothing.
#[test]
fn bytes_in_flight_survive_the_reuse_of_their_slot() {
    assert_eq!(rounds_with_changed_bytes(Reuse::Punched), 0);
    assert_eq!(rounds_with_changed_bytes(Reuse::AsItIs), 20);
}

#[test]
fn threads_may_store_locate_and_drop_at_once() {
    let arena = file_arena(32 * MIB, Reuse::Punched);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let arena = &arena;
            scope.spawn(move || {
                let mut kept = std::collections::VecDeque::new();
                for round in 0..200_u64 {
                    let byte = (thread << 6) | (round % 64).to_le_bytes()[0];
                    let length = 40_000 + round * 1_777 % 300_000;
                    let page = arena.store(&[filled(byte, length)]).unwrap();
                    assert!(locate(&page).is_some());
                    kept.push_back((byte, page));
                    if kept.len() > 8 {
                        let (byte, page) = kept.pop_front().unwrap();
                        assert!(page.iter().all(|b| *b == byte));
                    }
                }
            });
        }
    });
    assert_eq!((arena.used_bytes(), resident_bytes(&arena)), (0, 0));
}
