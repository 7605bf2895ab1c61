//! A law: its number, its words, and how its breach is told.

use std::fmt::Debug;

use crate::store::StoreError;

/// One of those of [`Store`](crate::Store).
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    pub(super) number: u8,
    words: &'static str,
}

impl Law {
    pub(super) const fn new(number: u8, words: &'static str) -> Self {
        Self { number, words }
    }

    #[track_caller]
    pub(super) fn holds(self, holds: bool, what: &str) {
        assert!(holds, "law {} is broken, \"{}\": {what}", self.number, self.words);
    }

    #[track_caller]
    pub(super) fn equal<T: PartialEq + Debug>(self, found: &T, expected: &T, what: &str) {
        let Self { number, words } = self;
        assert!(
            found == expected,
            "law {number} is broken, \"{words}\": {what}\n   found: {found:?}\nexpected: {expected:?}"
        );
    }

    #[track_caller]
    pub(super) fn some<T>(self, found: Option<T>, what: &str) -> T {
        self.holds(found.is_some(), what);
        found.unwrap_or_else(|| unreachable!("it holds"))
    }

    #[track_caller]
    pub(super) fn answered<T>(self, answer: Result<T, StoreError>) -> T {
        match answer {
            Ok(answer) => answer,
            Err(error) => panic!("law {} could not be checked, the store failed: {error:?}", self.number),
        }
    }
}
