//! The law of what is at hand: a slot without a message is no other slot.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Subject;
use super::desk::{Desk, at, granted};
use super::history::{random_logs, random_run};
use super::law::Law;
use crate::ledger::Stamp;
use crate::ledger::{Hold, Home, Lesson, Log, Report, Run, Slots};
use crate::testing::oracle::worst_window_of_units;

const HISTORIES: u64 = 20;
const STEPS: usize = 120;

/// What is at hand is what a message would be granted at once.
///
/// Random histories of two homes. Where the first has a slot at hand, the second grants the same slot to a message; all else
/// is said to both: not an answer differs, and neither ever holds more than its quotas. A store that never has anything at
/// hand obeys.
pub async fn law_12(subject: &dyn Subject) {
    let law = Law::new(12, "what is at hand is what a message would be granted at once");
    for seed in 0..HISTORIES {
        subject.clock().set(at(0));
        let mut rng = Rng::with_seed(seed);
        let logs: Arc<[Log]> = random_logs(&mut rng).into();
        // An upstream of its own for each, to be held as a whole.
        let name = format!("conformance-law-12-{:016x}", fastrand::u64(..));
        let home = |which: u8| Home::new(&format!("{name}-{which}"), Some("scope"));
        let desks = [home(1), home(2)].map(|home| Desk::at(law, subject.store(), home, Arc::clone(&logs)));
        let mut twins = Twins { law, subject, seed, rng, logs, desks, booked: Vec::new() };
        for _ in 0..STEPS {
            twins.step().await;
            let [first, second] = [twins.desks[0].usage().await, twins.desks[1].usage().await];
            law.equal(&first, &second, &format!("seed {seed}"));
        }
        twins.judge();
    }
}

/// Two homes, and the slots that both have booked and not handed back.
struct Twins<'a> {
    law: Law,
    subject: &'a dyn Subject,
    seed: u64,
    rng: Rng,
    logs: Arc<[Log]>,
    desks: [Desk<'a>; 2],
    booked: Vec<Slots>,
}

impl Twins<'_> {
    async fn step(&mut self) {
        match self.rng.u8(0..20) {
            0..9 => self.caller().await,
            9..12 => {
                let run = random_run(&mut self.rng, &self.logs);
                self.ask(run).await;
            }
            12..14 => self.hand_back().await,
            14 => self.hold().await,
            15 => self.learn().await,
            _ => {
                let leap = if self.rng.u8(0..4) == 0 { 1_500_000 } else { 60_000 };
                let now = self.now().as_micros() + self.rng.i64(0..leap);
                self.subject.clock().set(Stamp::from_micros(now));
            }
        }
    }

    /// A caller who wants a slot that starts now.
    async fn caller(&mut self) {
        let run = Run { callers: 1, max_wait: None, ..random_run(&mut self.rng, &self.logs) };
        let [first, second] = &mut self.desks;
        let Some(start) = self.subject.store().at_hand(&first.home, &self.logs, &run.costs) else {
            return self.ask(run).await;
        };
        let what = format!("seed {}, {:?}", self.seed, run.costs);
        self.law.equal(&start, &self.subject.clock().now(), &what);
        let grant = second.book(9, run.clone()).await;
        self.law.equal(&grant.answers, &vec![granted(1, start)], &what);
        self.law.equal(&grant.held, &None, &what);
        self.booked.push(Slots::new(1, start, run.costs));
    }

    async fn ask(&mut self, run: Run) {
        let sender = self.rng.u64(1..4);
        let [first, second] = &mut self.desks;
        first.horizon = Duration::from_micros(self.rng.u64(0..500_000));
        second.horizon = first.horizon;
        let (one, other) = (first.book(sender, run.clone()).await, second.book(sender, run.clone()).await);
        self.law.equal(&one, &other, &format!("seed {}, {run:?}", self.seed));
        for answer in one.answers.iter().filter(|answer| answer.granted) {
            let slots = (0..answer.callers).map(|_| Slots::new(1, answer.start, Arc::clone(&run.costs)));
            self.booked.extend(slots);
        }
    }

    async fn hand_back(&mut self) {
        if self.booked.is_empty() {
            return;
        }
        let slots = self.booked.swap_remove(self.rng.usize(..self.booked.len()));
        for desk in &mut self.desks {
            desk.hand_back(8, slots.clone()).await;
        }
    }

    /// The scope, or the whole upstream.
    async fn hold(&mut self) {
        let mut hold = Hold::new(Duration::from_micros(self.rng.u64(0..400_000)));
        hold.recovery = Duration::from_micros(self.rng.u64(0..200_000));
        hold.memory = Duration::from_micros(self.rng.u64(0..900_000));
        let all = self.rng.bool();
        for desk in &mut self.desks {
            let (id, whom) = (desk.id(7), if all { desk.home.of_upstream() } else { None });
            self.law.answered(self.subject.store().hold(whom.as_ref().unwrap_or(&desk.home), id, &hold).await);
        }
    }

    /// A report of what is left, true or not, or a refusal that nothing explains.
    async fn learn(&mut self) {
        let log = &self.logs[self.rng.usize(..self.logs.len())];
        let mut lesson =
            Lesson { refused: self.rng.u8(0..4) == 0, memory: Duration::from_millis(200), ..Lesson::default() };
        for term in log.terms.iter() {
            let window = Duration::from_micros(term.span.unsigned_abs());
            let reset = Duration::from_micros(self.rng.u64(0..400_000));
            lesson.reports.push(Report::new(*term, window, self.rng.u32(0..25), reset));
        }
        for desk in &mut self.desks {
            let id = desk.id(7);
            self.law.answered(self.subject.store().learn(&desk.home, id, log, &lesson).await);
        }
    }

    /// Slots that were handed back are gone from here: what is left was sent.
    fn judge(&self) {
        for (index, log) in self.logs.iter().enumerate() {
            let units = |slots: &Slots| (slots.start.as_micros(), u64::from(slots.costs[index]));
            let entries: Vec<_> = self.booked.iter().map(units).collect();
            for term in log.terms.iter() {
                let worst = worst_window_of_units(&entries, term.span);
                let what = format!("{worst:?} of {term:?} in {}, seed {}", log.name, self.seed);
                self.law.holds(worst.count <= u64::from(term.quota), &what);
            }
        }
    }

    fn now(&self) -> Stamp {
        self.subject.clock().now()
    }
}
