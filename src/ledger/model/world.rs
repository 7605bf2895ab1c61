//! A few processes, the store, and what is on its way between them. Time goes by ticks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use super::process::{Answer, Process, Said, entries, stamp, starts};
use super::rules::{Flaw, Rules, Step};
use super::{SPAN, WINDOW};
use crate::ledger::replay::Replays;
use crate::ledger::scope::Waiting;
use crate::ledger::{Ledger, Refused};

/// All that is so at one moment. What is lost stays under way for ever.
#[derive(Clone)]
pub(super) struct World {
    now: i64,
    stores: Vec<Ledger>,
    processes: Vec<Process>,
    sent: Vec<Sent>,
    /// When calls were sent.
    calls: Vec<i64>,
    /// Slots by copies that came when their message was answered, and had changed nothing: those may act anew.
    wasted: Vec<i64>,
    copies: u32,
    wipes: u32,
    is_split: bool,
}

/// A message under way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    process: usize,
    store: usize,
    said: Said,
}

impl World {
    /// Nobody has said anything.
    pub(super) fn new(rules: &Rules) -> Self {
        let processes = (1..).take(rules.processes).map(Process::new);
        Self {
            now: 0,
            stores: vec![Ledger::new()],
            processes: processes.collect(),
            sent: Vec::new(),
            calls: Vec::new(),
            wasted: Vec::new(),
            copies: 0,
            wipes: 0,
            is_split: false,
        }
    }

    /// All that can happen next.
    pub(super) fn steps(&self, rules: &Rules) -> Vec<Step> {
        let mut steps = Vec::new();
        for (process, of) in self.processes.iter().enumerate() {
            if of.said.is_none() && of.number < rules.messages {
                steps.push(Step::Ask { process });
                steps.extend((!of.held.is_empty() || !of.surplus.is_empty()).then_some(Step::HandBack { process }));
            }
            if of.said.is_some() && self.copies < rules.copies {
                steps.push(Step::Again { process });
            }
            steps.extend(of.answer.as_ref().filter(|(_, at)| *at < self.now).map(|_| Step::Hear { process }));
            steps.extend((of.store + 1 < self.stores.len()).then_some(Step::Follow { process }));
        }
        let is_new = |&sent: &usize| sent == 0 || self.sent[sent - 1] != self.sent[sent];
        for sent in (0..self.sent.len()).filter(is_new) {
            let Sent { process, said, .. } = &self.sent[sent];
            let is_awaited = self.processes[*process].awaits(said);
            steps.extend(
                [false, true]
                    .into_iter()
                    .filter(|at_once| is_awaited || !at_once)
                    .map(|at_once| Step::Act { sent, at_once }),
            );
        }
        if self.now < rules.ticks {
            let can_call = |calling: &u8| {
                self.processes
                    .iter()
                    .enumerate()
                    .all(|(process, of)| calling & (1 << process) == 0 || of.can_call(self.now))
            };
            steps.extend((0..1 << rules.processes).filter(can_call).map(|calling| Step::Tick { calling }));
        }
        let may_wipe = !rules.all_remember || self.processes.iter().all(Process::remembers);
        steps.extend((self.wipes < rules.wipes && may_wipe).then_some(Step::Wipe));
        steps.extend((rules.splits > 0 && !self.is_split).then_some(Step::Split));
        steps
    }

    /// What is so after a step.
    pub(super) fn after(&self, rules: &Rules, step: Step) -> Self {
        let mut world = self.clone();
        match step {
            Step::Ask { process } => {
                let said = world.processes[process].say(rules.callers);
                world.send(process, said);
            }
            Step::HandBack { process } => {
                let said = world.processes[process].say(0);
                world.send(process, said);
            }
            Step::Again { process } => {
                world.copies += 1;
                let said = world.processes[process].say_again(rules);
                world.send(process, said);
            }
            Step::Act { sent, at_once } => world.act(rules, sent, at_once),
            Step::Hear { process } => world.processes[process].hear(world.now),
            Step::Follow { process } => world.processes[process].store += 1,
            Step::Tick { calling } => world.tick(calling),
            Step::Wipe => {
                world.wipes += 1;
                world.stores.iter_mut().for_each(|store| *store = Ledger::new());
            }
            Step::Split => {
                world.is_split = true;
                world.stores.push(world.stores[0].clone());
            }
        }
        world
    }

    fn send(&mut self, process: usize, said: Said) {
        let sent = Sent { process, store: self.processes[process].store, said };
        let place = self.sent.partition_point(|other| *other <= sent);
        self.sent.insert(place, sent);
    }

    fn act(&mut self, rules: &Rules, sent: usize, at_once: bool) {
        let Sent { process, store, said } = self.sent.remove(sent);
        let (ledger, clock, message) = (&mut self.stores[store], stamp(self.now), said.written(rules));
        if rules.flaw == Some(Flaw::ActsAgain) {
            ledger.replays = Replays::default();
        }
        let is_known = ledger.replays.recall(clock, &message.id).is_ok_and(|known| known.is_some());
        let mut reply = ledger.apply(clock, &message);
        if rules.flaw == Some(Flaw::ActsLate) && reply == Err(Refused::Outdated) {
            let kept = mem::take(&mut ledger.replays);
            reply = ledger.apply(clock, &message);
            ledger.replays = kept;
        }
        let of = &mut self.processes[process];
        // Nobody waits for any other.
        if of.awaits(&said) {
            of.answer = Some((Answer::of(reply, said.callers), self.now));
            if at_once {
                of.hear(self.now);
            }
        } else if let (Ok(reply), false) = (reply, is_known) {
            self.wasted.extend(starts(&reply, said.callers));
        }
    }

    fn tick(&mut self, calling: u8) {
        for (place, process) in self.processes.iter_mut().enumerate() {
            if calling & (1 << place) != 0 {
                self.calls.extend(vec![self.now; process.call(self.now)]);
            }
        }
        self.now += 1;
        // What was so long ago matters no more: no window holds it beside a call that is yet to come, or was sent right now.
        self.calls.retain(|&at| at + WINDOW >= self.now);
        self.wasted.retain(|&start| start + SPAN > self.now);
        for process in &mut self.processes {
            process.put_back_late(self.now);
            process.used.retain(|&start| start + SPAN > self.now);
        }
    }

    /// The most calls that were sent in any window.
    pub(super) fn fullest_window(&self) -> usize {
        let within = |from: i64| self.calls.iter().filter(|&&at| (from..from + WINDOW).contains(&at)).count();
        self.calls.iter().map(|&from| within(from)).max().unwrap_or(0)
    }

    /// The slots that the log holds and that still count; and those that processes know of, or will by the answer to what they said,
    /// with those that nobody will ever know of.
    pub(super) fn booked_and_granted(&self) -> [Vec<i64>; 2] {
        let store = &self.stores[0];
        let booked = store.upstream.logs.iter().flat_map(entries).collect();
        let mut granted = self.wasted.clone();
        granted.extend(self.processes.iter().flat_map(|process| process.slots(self.now, store)));
        [booked, granted].map(|mut starts: Vec<i64>| {
            starts.retain(|start| start + SPAN > self.now);
            starts.sort_unstable();
            starts
        })
    }
}

/// Of worlds in which processes have changed places it is the same.
impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now, stores, processes, sent, calls, wasted, copies, wipes, is_split } = self;
        (now, calls, wasted, copies, wipes, is_split).hash(state);
        for store in stores {
            store.upstream.logs.iter().for_each(|log| entries(log).for_each(|start| start.hash(state)));
            if let Some(loss) = store.upstream.constraints().loss {
                format!("{loss:?}").hash(state);
            }
            if let waiting @ Waiting { contenders: Some(_), .. } = store.upstream.waiting() {
                format!("{waiting:?}").hash(state);
            }
        }
        let of_each = processes.iter().enumerate().map(|(place, process)| {
            let mut state = DefaultHasher::new();
            process.hash(stores, &mut state);
            sent.iter().filter(|sent| sent.process == place).for_each(|sent| (sent.store, &sent.said).hash(&mut state));
            state.finish()
        });
        of_each.fold(0, u64::wrapping_add).hash(state);
    }
}
