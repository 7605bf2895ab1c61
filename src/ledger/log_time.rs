//! Log time: a store's clock, corrected so that it never runs backwards.

use super::{Message, Stamp};

/// By how much the log time of an upstream differs from the store's clock: mostly by nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogTime {
    correction: i64,
}

impl LogTime {
    /// The log time when the clock shows `clock`.
    pub(super) const fn at(self, clock: Stamp) -> Stamp {
        clock.plus(self.correction)
    }

    /// By how much it is ahead of the store's clock.
    pub(super) const fn correction(self) -> i64 {
        self.correction
    }

    /// The same for a message, whose sender may know that it is later, or not as late. What is known counts more.
    pub(super) fn corrected(&mut self, clock: Stamp, message: &Message) -> Stamp {
        let time = self.at(clock);
        let now = message.latest.map_or(time, |latest| time.min(latest));
        let now = message.known.map_or(now, |known| now.max(known));
        if now != time {
            self.correction = now.as_micros().saturating_sub(clock.as_micros());
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ask, MessageId};

    #[test]
    fn log_time_follows_what_messages_say() {
        let at = Stamp::from_micros;
        let mut time = LogTime::default();
        let mut say = |clock, known: Option<i64>, latest: Option<i64>| {
            let message = Message::new("up", MessageId::nobodys(), Ask::new([], Vec::new()));
            let (known, latest) = (known.map(at), latest.map(at));
            time.corrected(at(clock), &Message { known, latest, ..message }).as_micros()
        };
        assert_eq!(say(100, None, None), 100);
        assert_eq!(say(50, Some(100), None), 100, "the clock was set back");
        assert_eq!(say(60, None, None), 110);
        assert_eq!(say(1_060, Some(110), Some(120)), 120, "and ahead");
        assert_eq!(say(1_070, Some(200), Some(150)), 200, "what is known counts more");
    }
}
