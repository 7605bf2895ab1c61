//! Why an upstream refused a call.

/// Why an upstream refused a call: one variant per different thing to do about it.
///
/// ```
/// use outgate::feedback::Refusal;
///
/// assert!(Refusal::Quota.is_throttling());
/// assert!(!Refusal::Lock.is_throttling()); // calling less often does not cure it
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The quota is spent: wait, and count more strictly.
    Quota,
    /// Others spent a quota that is shared with them: wait, but this caller's own count was right.
    Shared,
    /// A service behind the upstream refused, not a quota that anybody counts: back off.
    Service,
    /// Too many calls are in flight at once: send fewer side by side.
    Seats,
    /// The object or account is locked by somebody else: try again soon; no quota is concerned.
    Lock,
    /// The upstream is overloaded for a while, whoever calls: back off.
    Overload,
    /// Money, credits or a plan are used up: waiting does not cure it.
    Spend,
    /// The caller is shut out for what it did before: stop, and ask a human.
    Ban,
}

impl Refusal {
    /// Whether this is throttling, so that the same call may well succeed later at a lower rate.
    ///
    /// Locks and spending limits are not.
    #[must_use]
    pub const fn is_throttling(self) -> bool {
        !matches!(self, Self::Lock | Self::Spend)
    }
}
