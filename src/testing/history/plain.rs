//! Answers in one form, so that those of two stores can be compared.

use std::time::Duration;

use crate::ledger::{Answer, Body, Grant, Looked, Message, Paused, ProcessSeen, Processes, Reply, Stamp};

/// An answer to a message, in one form: every answer is told, equal neighbours together, nobody waits until before `now`, nothing
/// is said of how long nobody waits, and every stamp is so much after `epoch`.
#[must_use]
pub fn plain(message: &Message, reply: Reply, epoch: Stamp) -> Reply {
    let since = |stamp: Stamp| if stamp == Stamp::NEVER { stamp } else { stamp.plus(-epoch.as_micros()) };
    match reply {
        Reply::Grant(grant) => {
            let callers = if let Body::Ask(ask) = &message.body { ask.callers() } else { 0 };
            let within = if grant.answered(callers) < callers { grant.within } else { Duration::MAX };
            Reply::Grant(Grant {
                within,
                all_now: false,
                answers: joined(grant.answers(callers).map(|answer| Answer { start: since(answer.start), ..answer })),
                next: since(grant.next.max(grant.now)),
                next_smaller: grant.next_smaller.map(|(next, place)| (since(next), place)),
                now: since(grant.now),
                paused: grant.paused.map(|(until, reason)| (since(until), reason)),
                counted: grant.counted.iter().copied().map(since).collect(),
                ..grant
            })
        }
        Reply::Paused(paused) => Reply::Paused(Paused { now: since(paused.now), until: since(paused.until), ..paused }),
        Reply::Done(now) => Reply::Done(since(now)),
        Reply::Looked(looked) => Reply::Looked(Looked {
            now: since(looked.now),
            paused: looked.paused.iter().map(|paused| paused.map(|(until, cause)| (since(until), cause))).collect(),
            ..looked
        }),
        Reply::Processes(processes) => {
            let all = processes.all.into_iter().map(|of| ProcessSeen { seen: since(of.seen), ..of });
            let descriptions = processes.descriptions.into_iter().map(|(hash, seen, text)| (hash, since(seen), text));
            Reply::Processes(Processes::new(since(processes.now), all.collect(), descriptions.collect()))
        }
        other => other,
    }
}

fn joined(answers: impl Iterator<Item = Answer>) -> Vec<Answer> {
    let mut all: Vec<Answer> = Vec::new();
    for answer in answers.filter(|answer| answer.callers > 0) {
        match all.last_mut() {
            Some(last) if (last.start, last.verdict) == (answer.start, answer.verdict) => {
                last.callers += answer.callers;
            }
            _ => all.push(answer),
        }
    }
    all
}
