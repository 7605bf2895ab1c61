//! Random histories of one upstream: the messages of its processes, one after another, the same for the same seed.
//!
//! A [`History`] invents a message, hears what a store answers, and invents the next. It keeps the [record](Record) of what
//! was granted and not handed back, and holds it against the laws.

mod plain;
mod queue;
mod record;
mod reset;
mod time;
mod world;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

pub use self::plain::plain;
use self::queue::Queue;
pub use self::record::{Breach, Record};
use self::time::Times;
use self::world::World;
use crate::ledger::{self, Ask, Body, Log, Message, MessageId, Remembered, Reply, Run, Shape, Slots, Stamp};
use crate::store::StoreErrorKind;

/// Messages of a history, but for those where spans are widened: these end while the logs are short.
const LENGTH: usize = 150;
/// Messages of before that may come again.
const COPIES: usize = 8;
/// So many units are granted in a log whose span is widened: fewer than any log has when it is trimmed.
const SHORT: u64 = 40;

/// What a store answered, or why it did not.
pub type Heard = Result<Reply, StoreErrorKind>;

/// Several processes that call one upstream, by chance.
///
/// ```
/// use outgate::ledger::Ledger;
/// use outgate::testing::history::{Breach, History, Record, plain};
///
/// let (mut ledger, mut twin) = (Ledger::new(), Ledger::new());
/// let mut history = History::new("gateway", 17).ahead_by(1_000_000); // .calm() and .steady() leave out what clocks do
/// let epoch = history.epoch();
/// while let Some((clock, message)) = history.next_message() {
///     let answers = [ledger.apply(clock, &message), twin.apply(clock, &message)];
///     let [ours, theirs] = answers.clone().map(|answer| answer.map(|reply| plain(&message, reply, epoch)));
///     assert_eq!(ours, theirs, "at {:?}", history.now());
///     let [answer, _] = answers;
///     history.hear(answer.map_err(|refused| outgate::store::StoreError::from(refused).kind()));
/// }
/// let record: &Record = history.record();
/// let breaches: &[Breach] = record.breaches();
/// assert!(breaches.is_empty(), "{breaches:?}");
/// # let _ = History::calm;
/// # let _ = History::long("gateway", 17);
/// # let _ = History::steady;
/// ```
#[derive(Debug)]
pub struct History {
    rng: Rng,
    upstream: Arc<str>,
    world: World,
    queues: Vec<Queue>,
    times: Times,
    record: Record,
    /// Log time never runs backwards.
    steady: bool,
    /// A store may forget what counts no more.
    forgets: bool,
    /// Neither is any span widened.
    calm: bool,
    left: usize,
    number: u64,
    /// The earliest start that a caller was promised last.
    promised: Stamp,
    /// The message that is not answered yet.
    sent: Option<Sent>,
    /// The last messages and their answers.
    answered: VecDeque<(Sent, Heard)>,
}

/// A message, and whose it is.
#[derive(Clone, Debug)]
struct Sent {
    message: Message,
    queue: Option<usize>,
    /// It has come before, and was answered so.
    before: Option<Heard>,
}

impl History {
    /// A history in which everything may happen that happens to processes and clocks.
    #[must_use]
    pub fn new(upstream: impl Into<Arc<str>>, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let lowers = seed.is_multiple_of(3);
        let world = World::random(&mut rng, lowers, seed % 5 == 1, seed % 4 == 3);
        Self::of(upstream.into(), world, rng)
    }

    fn of(upstream: Arc<str>, world: World, mut rng: Rng) -> Self {
        let queues = (0..rng.usize(3..8)).map(|_| Queue::random(&mut rng, &world)).collect();
        let record = Record::new(&world.logs);
        Self {
            upstream,
            queues,
            times: Times::new(),
            record,
            steady: false,
            forgets: false,
            calm: false,
            left: LENGTH,
            number: 0,
            promised: Times::EPOCH,
            sent: None,
            answered: VecDeque::new(),
            world,
            rng,
        }
    }

    /// One in which all logs count for longer than what was lost is waited for: who was granted starts says them again, true or not.
    #[must_use]
    pub fn long(upstream: impl Into<Arc<str>>, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut world = World::random(&mut rng, seed.is_multiple_of(3), seed % 5 == 1, seed % 4 == 3);
        world.lengthen(&mut rng);
        Self::of(upstream.into(), world, rng)
    }

    /// The same, but that log time never runs backwards and no span is widened: what the logs hold can be told from the answers.
    #[must_use]
    pub fn calm(mut self) -> Self {
        (self.steady, self.calm, self.world.lowers, self.world.is_calm) = (true, true, false, true);
        self.forgets = true;
        self
    }

    /// The same, but that log time never runs backwards, unless so little is granted that no log is trimmed: what is trimmed, and
    /// counts again when time is taken back, is no concern of the laws. And nobody remembers an entry that is not there, or a
    /// place among those who wait that it has no more, nor says again what fills a bucket.
    #[must_use]
    pub fn steady(mut self) -> Self {
        (self.steady, self.forgets) = (!self.world.lowers, true);
        self
    }

    /// The same on a clock that is so many microseconds ahead.
    #[must_use]
    pub fn ahead_by(mut self, micros: i64) -> Self {
        self.times.shift(micros);
        self.world.shift(micros);
        self.queues.iter_mut().for_each(|queue| queue.logs = World::shifted(&queue.logs, micros).into());
        self.record = Record::new(&self.world.logs);
        self.promised = self.times.now();
        self
    }

    /// What the store's clock shows at the beginning.
    #[must_use]
    pub fn epoch(&self) -> Stamp {
        self.times.epoch()
    }

    /// The log time at which the last message was decided.
    #[must_use]
    pub fn now(&self) -> Stamp {
        self.times.now()
    }

    /// The next message, and what the store's clock shows when it comes; `None` when the history is over.
    pub fn next_message(&mut self) -> Option<(Stamp, Message)> {
        if self.left == 0 || (self.world.lowers && self.record.longest() > SHORT) {
            if self.calm {
                self.record.judge();
            }
            return None;
        }
        self.left -= 1;
        self.times.pass(&mut self.rng, self.steady, &self.record);
        let mut sent = self.invent();
        self.times.tell(&mut self.rng, self.steady, sent.before.is_some(), &mut sent.message);
        let (clock, message) = (self.times.clock(), sent.message.clone());
        self.times.hear(&message);
        self.sent = Some(sent);
        Some((clock, message))
    }

    /// What the store answered to the last message.
    pub fn hear(&mut self, heard: Heard) {
        let Some(sent) = self.sent.take() else { return };
        let now = self.times.now();
        self.record.hear_time(now, &sent.message, &heard);
        let is_news = sent.before.as_ref().is_none_or(|before| !queue::is_replay(before, &heard));
        match (&sent.message.body, &heard) {
            (Body::Ask(ask), Ok(Reply::Grant(grant))) if is_news => {
                self.record.granted(now, ask, grant);
                if self.calm {
                    self.record.judge_grant(ask, grant);
                    self.record.judge_calendars(self.times.correction(), ask, grant);
                }
                self.promised = grant.next;
            }
            // It did not act: what it hands back is still there.
            (Body::Ask(ask), Err(_)) if sent.before.is_none() => self.record.keep(ask),
            (Body::Reset { scope, units }, Ok(_)) => {
                if self.calm {
                    self.record.judge();
                }
                self.record.forget(*scope, units);
            }
            (Body::Usage { logs, .. }, Ok(Reply::Usage { logs: usage, .. })) if self.calm => {
                self.record.compare(now, logs, usage);
            }
            _ => {}
        }
        if let Some(at) = sent.queue {
            let is_lost = heard.is_ok() && self.rng.u8(0..16) == 0;
            self.queues[at].hear(&sent.message, &heard, is_lost, &mut self.rng);
        }
        // Of a reset nobody could tell whether its copy has acted.
        let is_told_once = sent.message.id == MessageId::nobodys() || matches!(sent.message.body, Body::Reset { .. });
        if heard.is_err() || !is_news || is_told_once {
            return;
        }
        // A copy of what was not remembered may act, and is then.
        self.answered.retain(|(of, _)| of.message.id != sent.message.id);
        self.answered.truncate(COPIES - 1);
        self.answered.push_front((sent, heard));
    }

    /// What was granted and not handed back, and the laws that were broken.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    fn invent(&mut self) -> Sent {
        let chance = self.rng.u8(0..32);
        let new = |message: Message, queue: Option<usize>| Sent { message, queue, before: None };
        match chance {
            0..16 => self.ask(),
            16..20 => self.hand_back().unwrap_or_else(|| self.ask()),
            20..22 => self.copy().unwrap_or_else(|| self.ask()),
            22..24 => new(self.told(World::pause), None),
            24..26 => new(self.told(World::report), None),
            26 => new(self.now_or_never(), None),
            // Told by the seed, so that all other histories stay as they are.
            27 if self.world.resets && self.rng.bool() => new(self.told(World::reset), None),
            27 => {
                let what = [World::release, World::slow_down, World::look][self.rng.usize(0..3)];
                new(self.told(what), None)
            }
            28 => {
                let what = [World::renew, World::renew, World::processes][self.rng.usize(0..3)];
                new(self.told(what), None)
            }
            _ => {
                let usage = self.world.usage();
                new(Message::new(Arc::clone(&self.upstream), MessageId::nobodys(), usage), None)
            }
        }
    }

    /// A queue asks for callers, or says again what it got no answer to.
    fn ask(&mut self) -> Sent {
        let at = self.rng.usize(..self.queues.len());
        if let Some(message) = self.queues[at].unheard.take() {
            let before = self.answered.iter().find(|(of, _)| of.message.id == message.id);
            if let Some((_, heard)) = before {
                return Sent { message, queue: Some(at), before: Some(heard.clone()) };
            }
        }
        let queue = &mut self.queues[at];
        let (mut ask, rng) = (Ask::new(Arc::clone(&queue.logs), Vec::new()), &mut self.rng);
        ask.runs = queue.runs(rng, &self.world);
        (ask.horizon, ask.insist) = (Duration::from_micros(rng.u64(0..500_000)), queue.insists(rng));
        if rng.u8(0..4) == 0 {
            ask.ahead = Duration::from_micros(rng.u64(0..300_000));
        }
        if !self.calm && rng.u8(0..6) == 0 {
            ask.cold = Some(World::cold(rng, &ask.logs, self.times.now()));
        }
        if self.rng.u8(0..6) == 0 {
            self.look_exactly(&mut ask);
        }
        if self.rng.u8(0..6) == 0 {
            ask.debts = self.world.debts(&mut self.rng, &ask.logs);
        }
        if self.rng.u8(0..4) == 0 {
            ask.back = self
                .record
                .take(&mut self.rng, |logs| Arc::ptr_eq(logs, &ask.logs))
                .map_or(Vec::new(), |(_, back)| back);
            let looks = self.rng.u8(0..3) == 0;
            ask.back.iter_mut().for_each(|slots| slots.looks = looks);
        }
        if !self.calm && ask.logs.iter().any(Log::has_calendar) && self.rng.u8(0..3) == 0 {
            ask.logs = World::moved(&mut self.rng, &ask.logs);
        }
        self.sent_by(at, ask)
    }

    /// Looks exactly as far as the start that somebody was promised, or one microsecond beside it.
    fn look_exactly(&mut self, ask: &mut Ask) {
        let far = self.promised.plus(self.rng.i64(-1..2)).since(self.times.now());
        match ask.runs.first_mut() {
            Some(run) if self.rng.bool() => run.max_wait = Some(far),
            _ => ask.horizon = far.min(Duration::from_secs(2)),
        }
    }

    fn sent_by(&mut self, at: usize, mut ask: Ask) -> Sent {
        let number = self.number();
        let queue = &mut self.queues[at];
        ask.counted.clone_from(queue.echo(&mut self.rng));
        ask.seats = queue.seats(&mut self.rng);
        (ask.weight, ask.observes) = (queue.weight, queue.observes);
        ask.remembered = queue.remembers(&mut self.rng, &ask.logs, self.times.now());
        ask.again = queue.again(&mut self.rng, &ask.logs, self.times.now());
        if self.forgets {
            // Where what counts no more is forgotten, an entry that was handed back is no more missed than one that never was; nor those
            // who wait by who waits no more.
            for (said, known) in ask.counted.iter_mut().zip(&queue.counts) {
                *said = if said == known { *said } else { Stamp::NEVER };
            }
            let remembered = &mut ask.remembered;
            for starts in [&mut remembered.newest, &mut remembered.apart] {
                for (log, start) in ask.logs.iter().zip(starts) {
                    if !self.record.holds(log, *start) {
                        *start = Stamp::NEVER;
                    }
                }
            }
        }
        if let Some(again) = ask.again.as_mut().filter(|_| self.forgets) {
            // A bucket is taken to have been full before, at the oldest entry of its log: one that counts no more, unless it is forgotten.
            for step in &mut again.steps {
                let has_bucket = |log: &Log| log.terms.iter().any(|term| matches!(term.shape, Shape::Bucket(_)));
                let all = ask.logs.iter().zip(step.charges.iter());
                step.charges = all.map(|(log, &units)| if has_bucket(log) { 0 } else { units }).collect();
            }
        }
        // What is said again, and was never granted, breaks the laws that others keep.
        if self.calm && ask.logs.iter().any(|log| log.retention() > ledger::SHORT) {
            (ask.remembered, ask.again) = (Remembered::default(), None);
        }
        let id = MessageId::new(queue.sender, Arc::clone(&queue.stream), number);
        let id = if self.rng.u8(0..8) == 0 { id } else { id.after(queue.previous) };
        let mut message = Message::new(Arc::clone(&self.upstream), id, ask);
        message.known = queue.known;
        Sent { message, queue: Some(at), before: None }
    }

    /// Slots that were granted, some that never were, or none; by the queue that they are of, or by nobody in particular.
    fn hand_back(&mut self) -> Option<Sent> {
        let (logs, slots) = if self.rng.u8(0..8) == 0 {
            let logs = Arc::clone(&self.queues[self.rng.usize(..self.queues.len())].logs);
            let start = self.times.now().plus(self.rng.i64(-1_000_000..1_000_000));
            let slots = Slots::new(self.rng.u32(0..3), start, vec![1; logs.len()]);
            (logs, if self.record.knows(start) { Vec::new() } else { vec![slots] })
        } else {
            self.record.take(&mut self.rng, |_| true)?
        };
        let of = self.queues.iter().position(|queue| Arc::ptr_eq(&queue.logs, &logs));
        let debts = if self.rng.u8(0..4) == 0 { self.world.debts(&mut self.rng, &logs) } else { Vec::new() };
        let ask = Ask { debts, ..Ask::hand_back(logs, slots) };
        if let Some(at) = of.filter(|_| self.rng.u8(0..8) > 0) {
            return Some(self.sent_by(at, ask));
        }
        let message = Message::new(Arc::clone(&self.upstream), MessageId::nobodys(), ask);
        Some(Sent { message, queue: None, before: None })
    }

    /// A message that has come before: the last, or one that may be outdated.
    fn copy(&mut self) -> Option<Sent> {
        let which = if self.rng.bool() { 0 } else { self.rng.usize(..COPIES) };
        let (sent, heard) = self.answered.get(which)?;
        // Said of the time when it was sent first.
        let message = Message { latest: None, ..sent.message.clone() };
        Some(Sent { message, queue: None, before: Some(heard.clone()) })
    }

    /// What a process tells of a response.
    fn told(&mut self, body: impl FnOnce(&World, &mut Rng, Stamp) -> Body) -> Message {
        let body = body(&self.world, &mut self.rng, self.times.now());
        let id = MessageId::new(self.rng.u64(1..4), "told", self.number());
        Message::new(Arc::clone(&self.upstream), id, body)
    }

    /// A caller that does not wait.
    fn now_or_never(&mut self) -> Message {
        let logs = Arc::clone(&self.queues[self.rng.usize(..self.queues.len())].logs);
        let logs = if logs.is_empty() { self.world.logs.clone().into() } else { logs };
        let run = Run { callers: 1, ..self.world.run(&mut self.rng, &logs) };
        let run = if self.rng.u8(0..4) == 0 { run } else { run.max_wait(Duration::ZERO) };
        Message::new(Arc::clone(&self.upstream), MessageId::nobodys(), Ask::new(logs, vec![run]))
    }

    fn number(&mut self) -> u64 {
        self.number += self.rng.u64(1..5);
        self.number
    }
}
