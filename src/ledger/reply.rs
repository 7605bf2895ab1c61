//! What a store answers to a message.

use super::{Grant, Learned, LogUsage, Looked, Paused, Processes, Stamp};

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// To an ask.
    Grant(Grant),
    /// To a pause.
    Paused(Paused),
    /// To a release, a rate by hand, or a reset: done, at this log time.
    Done(Stamp),
    /// To a look.
    Looked(Looked),
    /// To a report.
    Learned(Learned),
    /// To a question for usage.
    Usage {
        /// One for each log.
        logs: Vec<LogUsage>,
        /// Seats that are held of each limit.
        seats: Vec<u32>,
    },
    /// To a renewal.
    Renewed {
        /// How many processes there are. Some that ended within the last seconds may be among them.
        processes: u32,
        /// Whether it is known how the sender describes the upstream: else the store has lost that.
        is_described: bool,
    },
    /// To a question for the processes.
    Processes(Processes),
}

impl Reply {
    /// The answer to an ask.
    #[must_use]
    pub fn grant(self) -> Option<Grant> {
        if let Self::Grant(grant) = self { Some(grant) } else { None }
    }

    /// The answer to a pause.
    #[must_use]
    pub fn paused(self) -> Option<Paused> {
        if let Self::Paused(paused) = self { Some(paused) } else { None }
    }

    /// Since when it is done: the answer to a release, to a rate by hand, or to a reset.
    #[must_use]
    pub fn done(self) -> Option<Stamp> {
        if let Self::Done(now) = self { Some(now) } else { None }
    }

    /// The answer to a look.
    #[must_use]
    pub fn looked(self) -> Option<Looked> {
        if let Self::Looked(looked) = self { Some(looked) } else { None }
    }

    /// The answer to a report.
    #[must_use]
    pub fn learned(self) -> Option<Learned> {
        if let Self::Learned(learned) = self { Some(learned) } else { None }
    }

    /// The answer to a question for the usage of logs.
    #[must_use]
    pub fn usage(self) -> Option<Vec<LogUsage>> {
        if let Self::Usage { logs, .. } = self { Some(logs) } else { None }
    }

    /// How many processes there are: the answer to a renewal.
    #[must_use]
    pub fn renewed(self) -> Option<u32> {
        if let Self::Renewed { processes, .. } = self { Some(processes) } else { None }
    }

    /// The answer to a question for the processes.
    #[must_use]
    pub fn processes(self) -> Option<Processes> {
        if let Self::Processes(processes) = self { Some(processes) } else { None }
    }
}

impl Reply {
    /// The same answer to a message that comes again, later.
    pub(crate) fn again(self, now: Stamp) -> Self {
        match self {
            Self::Grant(grant) => Self::Grant(grant.again(now)),
            Self::Paused(paused) => Self::Paused(Paused { now, ..paused }),
            Self::Done(_) => Self::Done(now),
            other => other,
        }
    }
}
