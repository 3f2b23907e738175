//! The tasks of a mirror: writes, which go on when their client hangs up or was answered.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// Owns tasks, and awaits them.
#[derive(Default)]
pub(crate) struct Tasks {
    running: Mutex<JoinSet<()>>,
}

impl Tasks {
    /// Runs a future to its end, whoever waits for it.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(task);
    }

    /// Ends all of them where they are.
    pub(crate) fn abort(&self) {
        self.running.lock().abort_all();
    }

    /// Waits until none is left, or the time is over; whether none is.
    pub(crate) async fn finish(&self, time_max: Duration) -> bool {
        let mut running = std::mem::take(&mut *self.running.lock());
        let all = async { while running.join_next().await.is_some() {} };
        tokio::time::timeout(time_max, all).await.is_ok()
    }
}
