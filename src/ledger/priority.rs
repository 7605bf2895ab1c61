//! Which calls go first.

/// Which calls go first, of those that wait for the same limits.
///
/// In a process callers of a higher priority come before all others. Between processes limits are shared among those whose callers
/// wait and have the same priority, or a higher one: others have what these leave.
///
/// ```
/// use outgate::{Call, Priority};
///
/// let payment = Call::new().priority(Priority::High);
/// let export = Call::new().priority(Priority::Low);
/// # let _ = (payment, export);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Before all others.
    High,
    /// As most calls do.
    #[default]
    Normal,
    /// When nobody else waits.
    Low,
}

impl Priority {
    /// The highest first.
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Its place among all, the highest first.
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }

    /// How far it is below normal.
    pub(crate) const fn below_normal(self) -> i64 {
        match self {
            Self::High => -1,
            Self::Normal => 0,
            Self::Low => 1,
        }
    }
}
