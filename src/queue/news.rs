//! What upstreams said, on its way to the store: for each scope one message at a time, and behind it at most one pause and the newest
//! report. A pause that only lengthens what the store knows waits there for more. It has no clock, no task and no lock: time is an argument, effects are what is to be done.

mod answers;
mod behind;
mod entry;
mod errand;
mod known;
mod places;
#[cfg(test)]
mod tests;
mod whom;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use self::behind::{Follower, Pausing, Reported, Reporting, What};
use self::entry::Entry;
pub(crate) use self::errand::{Errand, ROUND};
use self::known::{Known, KnownPause};
use self::places::Places;
pub(crate) use self::whom::Whom;
use super::log_time::Outlook;
use crate::error::StoreError;
use crate::ledger::{self, Body, Log, MessageId, Pause, Reason, Report, Stamp};
use crate::store::{Applied, Store};

/// What a response said.
#[derive(Debug)]
pub(crate) struct Said {
    /// Whose calls the response was about.
    pub(crate) whom: Whom,
    /// Who waits until the store knows, if anybody does.
    pub(crate) ticket: Option<u64>,
    /// Who is not to send for a while.
    pub(crate) pause: Option<(Whom, Pause)>,
    /// What it reported of a log.
    pub(crate) report: Option<(Log, Report)>,
    /// How many releases were known by then: the store may know no more of what it was told before the last.
    pub(crate) releases: u64,
}

/// Something that has happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// An upstream has said something.
    Said(Box<Said>),
    /// The store has answered the message of an errand.
    Answered(Errand, Applied),
    /// What the message of an errand was to tell is over.
    Over(Errand),
    /// Whoever had an errand is gone, with its runtime.
    Lost(Errand),
}

/// Something to be done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Nobody of this process sends to them for so long.
    Pause(Whom, Duration, Reason),
    /// The store has taken a pause of theirs that was said then, when so many releases were known.
    Took(Whom, Instant, u64),
    /// Of a pause that they knew until then nothing is left, but for what lasts longer.
    Release(Whom, Instant),
    /// Send the messages of an errand, until nothing is left to send.
    Begin(Errand),
    /// What is sent again is sent now, or soon. Who waits until the store knows may have to tell it.
    Hurry,
    /// The store knows, or does not, what somebody waits for.
    Tell(u64, Result<(), StoreError>),
    /// Take another name: somebody else has this one.
    Rename(u64),
}

pub(crate) type Effects = Vec<Effect>;

/// What to do next about somebody.
#[derive(Debug)]
pub(crate) enum Next {
    Send(Box<Message>),
    Wait(Instant),
    /// What was to be told has been over for a while: nobody is told of it any more.
    Over,
    /// Nothing, until something is said; or another does it.
    Idle,
}

/// Something for the store to know.
#[derive(Debug)]
pub(crate) struct Message {
    id: MessageId,
    body: Body,
}

impl Message {
    /// Sends it, with what is known of log time.
    pub(crate) async fn send(self, whom: &Whom, outlook: Outlook, store: &dyn Store) -> Applied {
        let message = ledger::Message::new(Arc::clone(&whom.ledger), self.id, self.body);
        let Outlook { known, latest, .. } = outlook;
        store.apply(&ledger::Message { known, latest, ..message }).await
    }
}

/// What is still to be said of the upstreams of a process.
#[derive(Debug)]
pub(crate) struct News {
    entries: HashMap<Whom, Entry>,
    known: Known,
    /// How many errands there were.
    errands: u64,
    /// How many errands it takes to look for those that are given up: twice as many as were left the last time.
    sweep_at: usize,
    /// When holders that are overdue are looked for again.
    looks_at: Option<Instant>,
    places: Places,
    /// Nothing waits for what may come.
    hurries: bool,
    /// Spreads the times at which messages are sent again.
    random: Rng,
}

impl Event {
    /// Of whose pause it tells.
    pub(crate) fn whom(&self) -> &Whom {
        match self {
            Self::Said(said) => said.pause.as_ref().map_or(&said.whom, |(whom, _)| whom),
            Self::Answered(errand, _) | Self::Over(errand) | Self::Lost(errand) => &errand.whom,
        }
    }
}

impl News {
    pub(crate) fn new(random: Rng) -> Self {
        let (entries, known, places) = (HashMap::new(), Known::default(), Places::default());
        Self { entries, known, errands: 0, sweep_at: 0, looks_at: None, places, hurries: false, random }
    }

    /// Takes in what has happened.
    pub(crate) fn handle(&mut self, event: Event, now: Instant, effects: &mut Effects) {
        match event {
            Event::Said(said) => self.take_note(*said, now, effects),
            Event::Answered(errand, answer) => {
                // Whoever was replaced has no say: the same message is sent again.
                if self.has(&errand) {
                    self.receive(&errand.whom, answer, now, effects);
                }
            }
            Event::Over(errand) => {
                let entry = self.entries.get_mut(&errand.whom).filter(|entry| entry.is_told_by(&errand));
                match entry.and_then(|entry| entry.take_over(now)) {
                    // What the same responses reported still counts.
                    Some(What::Pausing(pausing)) => self.follow(pausing, now, effects),
                    Some(What::Reporting(old)) => tell(old.tickets, &Err(StoreError::late()), effects),
                    None => {}
                }
            }
            Event::Lost(errand) => self.lose(&errand, now, effects),
        }
    }

    /// What to do next about an errand; `id` is that of a new message.
    pub(crate) fn turn(&mut self, errand: &Errand, now: Instant, id: impl FnOnce() -> MessageId) -> Next {
        let whom = &errand.whom;
        let entry = self.entries.get_mut(whom).filter(|entry| entry.is_told_by(errand));
        let Some(entry) = entry else { return Next::Idle };
        if self.hurries {
            entry.pause_at = None;
        }
        let Some(unanswered) = entry.next(now) else {
            if let Some(at) = entry.pause_at {
                return Next::Wait(at);
            }
            self.entries.remove(whom);
            return Next::Idle;
        };
        if let Some(at) = unanswered.resend.retry_at().filter(|&at| at > now) {
            return Next::Wait(at);
        }
        if unanswered.is_over(now) {
            return Next::Over;
        }
        if unanswered.what.needs_date(now) {
            // Any answer of the store tells what time it is there.
            let body = Body::Look { scopes: [].into(), since: Stamp::NEVER };
            return Next::Send(Box::new(Message { id: MessageId::nobodys(), body }));
        }
        let may_be_forgotten = unanswered.may_be_forgotten(now);
        let id = unanswered.id.get_or_insert_with(id).clone();
        let body = match &mut unanswered.what {
            What::Pausing(pausing) => {
                if may_be_forgotten {
                    pausing.forget_evidence();
                }
                Body::Pause { scope: whom.key.1, pause: pausing.rest(now) }
            }
            What::Reporting(Reporting { reported: Reported { log, report, .. }, .. }) => {
                Body::Report { log: log.clone(), report: report.clone() }
            }
        };
        Next::Send(Box::new(Message { id, body }))
    }

    /// From now on what may wait is told at once.
    pub(crate) const fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Whether nothing is left to be told.
    pub(crate) fn is_told(&self) -> bool {
        !self.entries.values().any(Entry::has_untold)
    }

    /// Whether the store has yet to say whether it takes a pause of theirs.
    pub(crate) fn has_untold_pause(&self, whom: &Whom, now: Instant) -> bool {
        self.entries.get(whom).is_some_and(|entry| entry.has_untold_pause(now))
    }

    fn take_note(&mut self, said: Said, now: Instant, effects: &mut Effects) {
        let Said { whom: of, ticket, pause, report, releases } = said;
        let report = report.map(|(log, report)| Reported { log, report, said: now });
        let Some((whom, pause)) = pause else {
            return self.report(&of, report, ticket.into_iter().collect(), now, effects);
        };
        effects.push(Effect::Pause(whom.clone(), pause.waits.first().copied().unwrap_or_default(), pause.reason()));
        let pausing = Pausing::new(pause, now, Follower::new(of, report, ticket), releases);
        let known = self.known.of(&whom, now);
        if known.is_none_or(|known| !pausing.adds_nothing_to(&known)) {
            return self.put_behind(&whom, pausing, known, now, effects);
        }
        if let Some(evidence) = pausing.evidence() {
            self.put_behind(&whom, evidence, known, now, effects);
        }
        self.follow(pausing, now, effects);
    }

    fn put_behind(
        &mut self,
        whom: &Whom,
        pausing: Pausing,
        known: Option<KnownPause>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let is_urgent = self.entry(whom, now, effects).put_behind(pausing, known, now);
        effects.extend(is_urgent.then_some(Effect::Hurry));
    }

    /// Reports something, where there is something to report.
    fn report(
        &mut self,
        whom: &Whom,
        reported: Option<Reported>,
        tickets: Vec<u64>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(reported) = reported.filter(|reported| !reported.report.quotas.is_empty()) else {
            return tell(tickets, &Ok(()), effects);
        };
        let reporting = Reporting { reported, tickets };
        let entry = self.entry(whom, now, effects);
        entry.reporting = Some(match entry.reporting.take() {
            Some(before) => before.and(reporting),
            None => reporting,
        });
    }
}

/// Those who wait learn this.
fn tell(tickets: impl IntoIterator<Item = u64>, outcome: &Result<(), StoreError>, effects: &mut Effects) {
    effects.extend(tickets.into_iter().map(|ticket| Effect::Tell(ticket, outcome.clone())));
}
