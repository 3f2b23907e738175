//! Threads that read, so that nobody else waits for the disk.
//!
//! A read that was given up while it waited for a thread is not made; one that hangs in the disk
//! keeps its thread and its place among `reads_max` until the disk lets go of it.

use std::{collections::VecDeque, io, sync::Arc};

use parking_lot::{Condvar, Mutex};
use tokio::sync::{mpsc, oneshot};

use crate::{
    device::Device,
    shelf::{OnDisk, Shelf},
};

/// Reads under way.
#[derive(Debug)]
pub(crate) struct Reads {
    state: Mutex<State>,
    work: Condvar,
    count_max: usize,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Those that wait and those that are made.
    count: usize,
    is_closed: bool,
}

#[derive(Debug)]
struct Job {
    entry: OnDisk,
    reply: oneshot::Sender<io::Result<Vec<u8>>>,
}

impl Reads {
    pub(crate) fn new(count_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            count_max,
        }
    }

    /// Begins to read an entry; `None` when as many are under way as may be.
    pub(crate) fn begin(&self, entry: OnDisk) -> Option<oneshot::Receiver<io::Result<Vec<u8>>>> {
        let mut state = self.state.lock();
        if state.is_closed || state.count >= self.count_max {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        state.count += 1;
        state.jobs.push_back(Job { entry, reply });
        drop(state);
        self.work.notify_one();
        Some(answer)
    }

    /// Lets the threads end after the reads that they are making.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.jobs.clear();
        drop(state);
        self.work.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            self.work.wait(&mut state);
        }
    }
}

/// What one thread does until the store is closed.
pub(crate) fn run(
    reads: &Arc<Reads>,
    shelf: &Arc<Shelf>,
    device: Arc<dyn Device>,
    ended: mpsc::Sender<()>,
) {
    while let Some(Job { entry, reply }) = reads.next() {
        if !reply.is_closed() {
            let OnDisk { place, segment, .. } = entry;
            let read = device.read(segment, place.offset(), place.entry_bytes());
            // One that was given up has been counted as a timeout. An entry that was evicted
            // while it was read says nothing of the disk.
            if !reply.is_closed() {
                match &read {
                    Ok(_) => shelf.read_succeeded(),
                    Err(_) if shelf.is_there(entry) => shelf.read_failed(),
                    Err(_) => {}
                }
            }
            // Whoever asked may leave at any moment.
            let _ = reply.send(read);
        }
        reads.state.lock().count -= 1;
    }
    // The device holds the folder's lock, which must be free once the store is closed.
    drop(device);
    drop(ended);
}
