//! What is counted of calls, queues and the store: each event is one line where it happens, and what it means for which metric stands
//! here alone. Without the feature `metrics` nothing is kept, and nothing is done.

#[cfg(feature = "metrics")]
mod describe;
mod gives_up;
#[cfg(feature = "metrics")]
mod kept;
#[cfg(feature = "metrics")]
mod store;
#[cfg(feature = "metrics")]
mod watch;

pub(crate) use self::gives_up::GivesUp;
#[cfg(feature = "metrics")]
pub(crate) use self::kept::{Counts, Ending};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::nothing::{Counts, Ending};
#[cfg(feature = "metrics")]
pub(crate) use self::store::counted;
#[cfg(feature = "metrics")]
pub(crate) use self::watch::Watch;

#[cfg(not(feature = "metrics"))]
mod nothing {
    use std::time::Duration;

    use crate::client::usage::Usage;
    use crate::config::charges::Charges;
    use crate::config::upstream::Upstream;
    use crate::error::Error;
    use crate::ledger::Cause;

    /// Nothing.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Counts(());

    /// Nothing.
    #[derive(Debug, Default)]
    pub(crate) struct Ending(());

    #[expect(clippy::unused_self, reason = "as where something is counted")]
    impl Counts {
        pub(crate) const fn of(_: &Upstream, _: &Charges) -> Self {
            Self(())
        }

        pub(crate) const fn came(&self) {}

        pub(crate) const fn went(&self, _: bool) {}

        pub(crate) const fn gave_up(&self) {}

        pub(crate) const fn waited(&self, _: Duration, _: Duration) {}

        pub(crate) const fn ended(&self, _: &Ending) {}

        pub(crate) const fn failed(&self, _: &Error) {}

        pub(crate) const fn refusal_reported(&self) {}

        pub(crate) const fn retried(&self) {}

        pub(crate) const fn paused(&self, _: Cause) {}

        pub(crate) const fn estimated(&self, _: &str, _: u64) {}

        pub(crate) const fn settled(&self, _: &str, _: u64) {}

        pub(crate) const fn used(&self, _: &Usage) {}

        pub(crate) const fn replaced_by(&self, _: &Self) {}

        pub(crate) const fn gone(&self) {}
    }

    #[expect(clippy::unused_self, reason = "as where something is counted")]
    impl Ending {
        pub(crate) const fn refused(&self) {}

        pub(crate) const fn handed_back(&self) {}
    }
}
