//! Outside use: what others use of the same quota.

use std::sync::Arc;

use super::{Stamp, Term};

/// The part of a quota within which calls wait: a tenth.
const LITTLE: u32 = 10;
/// The part of a span for which what is left would last then: a twentieth.
const PACE: i64 = 20;

/// What the newest response said of one term that others use as well.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OutsideTerm {
    log: Arc<str>,
    /// The term's, as the program gives it.
    span: i64,
    /// When its call started.
    started: Stamp,
    /// Units that were left then, until the reset.
    left: u32,
    /// Units that others had used by then.
    units: u32,
    /// The most of them that were told since others are known of.
    most: u32,
    /// Since when others are known of.
    since: Stamp,
    /// When the upstream has surely reset.
    lapse: Stamp,
    /// It resets a window after the call: units come back as they age.
    slides: bool,
}

/// What the upstream said of a term.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saying {
    pub(super) started: Stamp,
    pub(super) left: u32,
    pub(super) units: u32,
    pub(super) lapse: Stamp,
    pub(super) slides: bool,
}

/// What others use of the quotas of a scope, by term.
#[derive(Clone, Debug, Default)]
pub(super) struct OutsideUse(Vec<OutsideTerm>);

impl OutsideUse {
    pub(super) const fn none() -> Self {
        Self(Vec::new())
    }

    /// What of it still matters.
    pub(super) fn at(&self, now: Stamp) -> Self {
        Self(self.0.iter().filter(|other| other.forgotten() > now).cloned().collect())
    }

    /// What of it is of other logs than these.
    pub(super) fn but_for(mut self, units: &[Arc<str>]) -> Self {
        self.0.retain(|other| !units.contains(&other.log));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing of it matters any more.
    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.0.iter().all(|other| other.forgotten() <= now)
    }

    /// Units missing from a term's quota now.
    pub(super) fn units(&self, log: &str, term: Term, now: Stamp) -> u32 {
        self.of(log, term).filter(|other| other.lapse > now).map_or(0, |other| other.units)
    }

    /// Since when others are known to use a part of a term's quota.
    pub(super) fn since(&self, log: &str, term: Term, now: Stamp) -> Option<Stamp> {
        self.of(log, term).filter(|other| other.forgotten() > now).map(|other| other.since)
    }

    /// Enters what a response said of a term. What a later call was told stays; where nobody is known to use a part of the
    /// quota, nothing is entered until somebody does.
    pub(super) fn enter(&mut self, now: Stamp, log: &Arc<str>, term: Term, saying: Saying) -> bool {
        let Saying { started, left, mut units, mut lapse, slides } = saying;
        let place = self.0.iter().position(|other| *other.log == **log && other.span == term.span);
        let known = place.map(|place| &self.0[place]).filter(|other| other.forgotten() > now);
        if known.map_or(units == 0, |other| other.started > started) {
            return false;
        }
        let (since, most) = known.map_or((now, units), |other| (other.since, units.max(other.most)));
        let mut left = left.min(term.quota);
        // Of calls that started together the one that was counted last was told least, whichever is answered last.
        if let Some(same) = known.filter(|other| other.started == started) {
            let is_same_window = lapse.as_micros().abs_diff(same.lapse.as_micros()) <= term.span.unsigned_abs() / 2;
            if !is_same_window && lapse < same.lapse {
                return false;
            }
            if is_same_window {
                (left, units, lapse) = (left.min(same.left), units.max(same.units), lapse.max(same.lapse));
            }
        }
        let other =
            OutsideTerm { log: Arc::clone(log), span: term.span, started, left, units, most, since, lapse, slides };
        match place {
            Some(place) => self.0[place] = other,
            None => self.0.push(other),
        }
        true
    }

    /// The earliest start, not before `start`, under a term of which others use a part. `wide` is the term with
    /// what a rate leaves of it.
    ///
    /// Until the reset no more start than were left, and what others use until then is theirs. Where units come back one by
    /// one, and for a span after the reset, what they had used is missing from the quota.
    pub(super) fn beside(
        &self,
        log: &str,
        term: Term,
        wide: Term,
        start: Stamp,
        units: u64,
        nth_newest: impl Fn(usize) -> Option<Stamp>,
    ) -> Stamp {
        let Some(other) = self.of(log, term).filter(|other| start < other.forgotten()) else { return start };
        let cost = i64::try_from(units).unwrap_or(i64::MAX);
        let little = i64::from(term.quota / LITTLE);
        // Where little is left, each unit comes so long after the one before that what is left would last for a twentieth of the span.
        let apart = |start: Stamp, left: i64| {
            let pace = wide.span / PACE / left.max(1);
            let first = nth_newest(1).map_or(start, |newest| start.max(newest.plus(pace)));
            first.plus((cost - 1).saturating_mul(pace))
        };
        let mut start = start;
        if start < other.lapse && !other.slides {
            let left = i64::from(other.left) - newer(other.started, other.left, &nth_newest);
            let beside = left - other.expected(other.lapse);
            let ready = if beside - cost >= little { start } else { apart(start, beside) };
            if ready < other.lapse && left - other.expected(ready) >= cost {
                return ready;
            }
            start = other.lapse;
        }
        let ours = i64::from(term.quota.saturating_sub(other.units));
        // When as many units are left beside the others' and the cost.
        let when_left = |left: i64| {
            let n = usize::try_from(ours - left - cost + 1).unwrap_or(0);
            let ready = nth_newest(n.max(1)).map_or(start, |entry| start.max(entry.plus(wide.span)));
            if n > 0 { ready } else { ready.max(other.lapse) }
        };
        let left = ours - newer(start.plus(-wide.span), term.quota, &nth_newest);
        let ready = apart(when_left(0), left).min(when_left(little));
        ready.min(start.max(other.forgotten()))
    }

    fn of(&self, log: &str, term: Term) -> Option<&OutsideTerm> {
        self.0.iter().find(|other| *other.log == *log && other.span == term.span)
    }
}

impl OutsideTerm {
    /// For a span after the reset nothing is known of it but that others use it.
    const fn forgotten(&self) -> Stamp {
        self.lapse.plus(self.span)
    }

    /// Units that others use from the start of the call until then, at the pace of a whole span.
    fn expected(&self, at: Stamp) -> i64 {
        let each = (self.span / i64::from(self.most.max(1))).max(1);
        (at.as_micros() - self.started.as_micros()).max(0).saturating_add(each - 1) / each
    }
}

/// How many entries are newer than a stamp, of the newest `most`.
fn newer(than: Stamp, most: u32, nth_newest: impl Fn(usize) -> Option<Stamp>) -> i64 {
    let (mut newer, mut rest) = (0, most as usize + 1);
    while newer + 1 < rest {
        let n = usize::midpoint(newer, rest);
        if nth_newest(n).is_some_and(|entry| entry > than) { newer = n } else { rest = n }
    }
    i64::try_from(newer).unwrap_or(i64::MAX)
}

/// When the upstream has surely reset that does so after so long: at most a span away.
pub(super) fn lapse(now: Stamp, reset: i64, span: i64) -> Stamp {
    now.plus(reset.min(span))
}

/// The part of a span within which the moment of a report is as good as another.
pub(super) const fn grid(span: i64) -> i64 {
    span / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a call started, units left, units of others, and until when.
    type Response = (i64, u32, u32, i64);

    /// When the call started that counts, units left, and units of others.
    type Known = Option<(i64, u32, u32)>;

    const SPAN: i64 = 1_000;
    /// A hundred units in any 1,000 µs.
    const TERM: Term = Term::new(100, SPAN);

    const fn at(micros: i64) -> Stamp {
        Stamp::from_micros(micros)
    }

    /// What responses said, each as soon as its call started.
    fn after(responses: &[Response], slides: bool) -> (OutsideUse, Arc<str>) {
        let (mut outside, log) = (OutsideUse::default(), Arc::from("calls"));
        for &(started, left, units, lapse) in responses {
            let saying = Saying { started: at(started), left, units, lapse: at(lapse), slides };
            outside.enter(at(started), &log, TERM, saying);
        }
        (outside, log)
    }

    /// Entries, by how many start when.
    fn nth_newest(entries: &[(usize, i64)]) -> impl Fn(usize) -> Option<Stamp> {
        let entries: Vec<i64> = entries.iter().flat_map(|&(count, start)| std::iter::repeat_n(start, count)).collect();
        move |n| entries.len().checked_sub(n).and_then(|index| entries.get(index)).map(|start| at(*start))
    }

    #[test]
    fn the_response_to_the_later_call_counts() {
        let cases: [(&[Response], Known); 9] = [
            (&[(5, 90, 0, 900)], None),
            (&[(5, 90, 4, 900)], Some((5, 90, 4))),
            (&[(5, 90, 4, 900), (6, 95, 2, 900)], Some((6, 95, 2))),
            (&[(5, 90, 4, 900), (6, 99, 0, 900)], Some((6, 99, 0))),
            (&[(5, 90, 4, 900), (4, 20, 70, 900)], Some((5, 90, 4))),
            (&[(5, 90, 4, 900), (1_900, 50, 0, 2_500)], None),
            // Of calls that started together that which was counted last was told least, but for what came back by a reset between.
            (&[(5, 20, 30, 900), (5, 50, 0, 900)], Some((5, 20, 30))),
            (&[(5, 20, 30, 300), (5, 99, 0, 900)], Some((5, 99, 0))),
            (&[(5, 99, 4, 900), (5, 20, 30, 300)], Some((5, 99, 4))),
        ];
        for (responses, expected) in cases {
            let (outside, log) = after(responses, false);
            let now = at(responses.last().unwrap().0);
            let known = outside.of(&log, TERM).filter(|other| other.forgotten() > now);
            assert_eq!(
                known.map(|other| (other.started.as_micros(), other.left, other.units)),
                expected,
                "{responses:?}"
            );
            assert_eq!(outside.since(&log, TERM, now), expected.map(|_| at(5)), "{responses:?}");
        }
    }

    #[test]
    fn until_the_reset_no_more_start_than_were_left_and_calls_wait_where_that_is_little() {
        // Ten a span are others'.
        let (outside, log) = after(&[(100, 50, 10, 900)], false);
        let earliest = |entries: &[(usize, i64)], start, units| {
            outside.beside(&log, TERM, TERM, at(start), units, nth_newest(entries)).as_micros()
        };
        assert_eq!(
            earliest(&[(40, -150)], 100, 32),
            100,
            "fifty are left, of which others use eight, and ten are little"
        );
        assert_eq!(earliest(&[(40, -150), (30, 110)], 110, 2), 110, "so are ten of twenty");
        assert_eq!(earliest(&[(40, -150), (30, 110)], 110, 3), 122, "three times 50 / 12");
        assert_eq!(earliest(&[(40, -150), (39, 110)], 110, 1), 126, "50 / 3 after the newest");
        assert_eq!(earliest(&[(40, -150), (48, 110)], 110, 1), 160, "two are left: one of the others', one of ours");
        assert_eq!(earliest(&[(40, -150), (49, 110)], 110, 1), 900, "the last is the others'");
        assert_eq!(earliest(&[(40, -150), (50, 110)], 110, 1), 900, "nothing is left");
        assert_eq!(earliest(&[(40, -150), (50, 110)], 899, 1), 900, "until the reset");
        let other = Term::new(100, 7);
        assert_eq!(outside.beside(&log, other, other, at(100), 100, |_| None), at(100), "another term");
        assert_eq!(outside.beside("points", TERM, TERM, at(100), 100, |_| None), at(100), "another log");
    }

    #[test]
    fn where_units_come_back_one_by_one_and_after_a_reset_what_others_used_is_missing_from_the_quota() {
        let responses = [(100, 50, 10, 900)];
        for (slides, start) in [(true, 300), (true, 1_000), (false, 1_000)] {
            let (outside, log) = after(&responses, slides);
            let earliest = |entries: &[(usize, i64)], units| {
                outside.beside(&log, TERM, TERM, at(start), units, nth_newest(entries)).as_micros()
            };
            assert_eq!(earliest(&[(40, 50)], 40), start, "fifty are left");
            assert_eq!(earliest(&[(85, 270)], 1), start.max(280), "50 / 5 after the newest");
            assert_eq!(earliest(&[(85, 299)], 1), start.max(309));
            assert_eq!(earliest(&[(5, 250), (85, 270)], 1), 1_250, "as the first of ours comes back");
        }
        let (outside, log) = after(&responses, false);
        let full = nth_newest(&[(100, 1_800)]);
        assert_eq!(outside.beside(&log, TERM, TERM, at(1_850), 1, &full), at(1_900), "after a span nothing is known");
        assert_eq!(outside.beside(&log, TERM, TERM, at(1_900), 1, &full), at(1_900));
    }

    #[test]
    fn who_says_that_nothing_is_left_for_anybody_is_believed_until_the_reset() {
        for slides in [false, true] {
            let (outside, log) = after(&[(100, 0, 100, 900)], slides);
            let earliest = |start, units| outside.beside(&log, TERM, TERM, at(start), units, |_| None).as_micros();
            assert_eq!(
                [earliest(100, 1), earliest(899, 100), earliest(900, 1), earliest(1_500, 100)],
                [900, 900, 900, 1_500]
            );
        }
    }

    #[test]
    fn a_reset_is_a_span_away_at_most() {
        let cases = [(0, 25, 25), (7, 25, 32), (50, 9_999, 1_050), (0, i64::MAX, 1_000)];
        for (now, reset, expected) in cases {
            assert_eq!(lapse(at(now), reset, SPAN).as_micros(), expected, "{now} {reset}");
        }
    }
}
