//! Callers that give up while they wait.

use super::Counts;

/// A caller that waits. Dropped, it has given up.
pub(crate) struct GivesUp<'a>(Option<&'a Counts>);

impl<'a> GivesUp<'a> {
    /// One that is counted here.
    pub(crate) const fn of(counts: &'a Counts) -> Self {
        Self(Some(counts))
    }

    /// It waits no more.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(Counts::gave_up);
    }
}
