//! One call, from the wish to the start.

use std::time::Duration;

/// A call that somebody wanted to make. Times are those since the fleet began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) process: usize,
    pub(crate) scope: usize,
    pub(crate) wanted: Duration,
    pub(crate) end: End,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It waits still.
    Waiting,
    /// It went out then.
    Started(Duration),
    /// It was told that its slot is too far away.
    Refused,
    /// It was told that the store does not answer, or something else that it cannot help.
    Failed,
}

impl Call {
    /// When it went out, if it did.
    pub(crate) const fn started(&self) -> Option<Duration> {
        match self.end {
            End::Started(at) => Some(at),
            End::Waiting | End::Refused | End::Failed => None,
        }
    }
}
