//! A reader's place at a fill.

use std::{
    future::poll_fn,
    ops::Range,
    sync::Arc,
    task::{Context, Poll},
};

use forebay_store::{Error, Response};

use super::{Fill, Head, Step};

/// A reader's place at a fill; dropping it leaves the fill.
#[derive(Debug)]
pub(crate) struct Attachment {
    fill: Arc<Fill>,
    slot: usize,
    role: Role,
}

/// Whether a reader began the fill or joined it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It began the fill, with its own request.
    Leader,
    /// It joined.
    Follower,
}

impl Attachment {
    pub(super) fn new(fill: Arc<Fill>, slot: usize, role: Role) -> Self {
        Self { fill, slot, role }
    }

    /// Waits for the origin's answer.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(crate) async fn head(&self) -> Head {
        poll_fn(|cx| {
            let mut state = self.fill.state.lock();
            if let Head::Awaited = state.head {
                state.wait(self.slot, cx);
                return Poll::Pending;
            }
            Poll::Ready(state.head.clone())
        })
        .await
    }

    /// The answer to the leader's request that is for nobody else; nothing for a follower.
    pub(crate) fn take_own_answer(&self) -> Option<Result<Response, Error>> {
        match self.role {
            Role::Leader => self.fill.state.lock().own_answer.take(),
            Role::Follower => None,
        }
    }

    /// Bytes of the object that the fill brings; known once its head is.
    pub(crate) fn covers(&self) -> Range<u64> {
        self.fill.state.lock().covers.clone()
    }

    /// The fill.
    pub(crate) fn fill(&self) -> &Arc<Fill> {
        &self.fill
    }

    /// Whether this is the only reader of its fill.
    pub(crate) fn is_alone(&self) -> bool {
        self.fill.state.lock().reader_count == 1
    }

    /// From `offset` on the reader has other places for its bytes.
    pub(crate) fn leave_at(&self, offset: u64) {
        if let Some(reader) = &mut self.fill.state.lock().readers[self.slot] {
            reader.leaves_at = offset;
        }
    }

    /// Moves to `position` and takes the bytes there, up to `end`.
    pub(crate) fn poll(&self, position: u64, end: u64, cx: &Context<'_>) -> Poll<Step> {
        let mut state = self.fill.state.lock();
        if let Some(reader) = &mut state.readers[self.slot] {
            reader.position = position;
        }
        let filler = state.resume();
        let step = state.step(position, end);
        if step.is_none() {
            state.wait(self.slot, cx);
        }
        drop(state);
        if let Some(filler) = filler {
            filler.wake();
        }
        step.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let filler = {
            let mut state = self.fill.state.lock();
            state.readers[self.slot] = None;
            state.reader_count -= 1;
            if state.reader_count == 0 {
                state.filler.take()
            } else {
                state.resume()
            }
        };
        if let Some(filler) = filler {
            filler.wake();
        }
    }
}
