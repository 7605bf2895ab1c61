//! The laws of [`Store`] as checks: whoever writes a store is told here whether it is right.
//!
//! One function for each law. It panics when the store breaks the law, and says which law and how. [Histories](super::history)
//! are random but always the same, so that a failure repeats. Every law uses upstreams of its own: one store may be checked
//! many times. [`check_all`] checks all of them; `examples/own_store.rs` has a [`Subject`] of its own.
//!
//! ```
//! use outgate::testing::conformance::{Subject, check_all, law_1};
//!
//! async fn check(mine: &dyn Subject) {
//!     law_1(mine).await; // one law
//!     check_all(mine).await;
//! }
//! # let _ = check;
//! ```

mod at_once;
mod bounds;
mod desk;
mod law;
mod loss;
mod order;
mod processes;
mod quota;
mod release;
mod reset;
mod seats;
mod settling;
mod silence;
mod slots;
mod telling;
mod time;
mod twice;

use std::time::Duration;

use async_trait::async_trait;

pub use self::at_once::law_22;
pub use self::bounds::{law_7, law_8, law_10};
pub use self::loss::law_20;
pub use self::order::{law_2, law_3};
pub use self::processes::law_19;
pub use self::quota::{law_1, law_12, law_14};
pub use self::release::{law_15, law_16};
pub use self::reset::law_21;
pub use self::seats::law_17;
pub use self::settling::law_18;
pub use self::silence::law_9;
pub use self::slots::{law_4, law_5, law_6};
pub use self::time::law_13;
pub use self::twice::law_11;
use crate::Store;
use crate::store::clock::ManualClock;

/// A store to be checked, and what only its author knows about it.
#[async_trait]
pub trait Subject: Sync {
    /// The store, on [`clock`](Self::clock).
    fn store(&self) -> &dyn Store;

    /// Another handle of [`store`](Self::store), as another process has it: on the same data and the same clock. By default it is the same one.
    fn another(&self) -> &dyn Store {
        self.store()
    }

    /// The clock of [`store`](Self::store). The checks move it, mostly forwards.
    fn clock(&self) -> &ManualClock;

    /// Another store of the same kind, empty, on the clock that it has in production.
    fn running(&self) -> &dyn Store;

    /// Names of everything that [`running`](Self::running) keeps at this moment.
    async fn kept(&self) -> Vec<String>;

    /// Moves the clock of the calling process, tokio's, on by so much, and no store's with it.
    async fn age(&self, by: Duration);
}

/// Checks all laws, one after another.
pub async fn check_all(subject: &dyn Subject) {
    law_1(subject).await;
    law_2(subject).await;
    law_3(subject).await;
    law_4(subject).await;
    law_5(subject).await;
    law_6(subject).await;
    law_7(subject).await;
    law_8(subject).await;
    law_9(subject).await;
    law_10(subject).await;
    law_11(subject).await;
    law_12(subject).await;
    law_13(subject).await;
    law_14(subject).await;
    law_15(subject).await;
    law_16(subject).await;
    law_17(subject).await;
    law_18(subject).await;
    law_19(subject).await;
    law_20(subject).await;
    law_21(subject).await;
    law_22(subject).await;
}
