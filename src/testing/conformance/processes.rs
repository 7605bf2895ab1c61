//! The law of who is there.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, at, log};
use super::law::Law;
use crate::ledger::{Body, MessageId, Presence, Processes, Renewal, Reply, ScopeId, ScopePresence};

const SECOND: i64 = 1_000_000;

/// A process that says that it is there is told of until it says that it is gone, or lapses.
///
/// By table: processes of several upstreams that share a ledger, what they say and how they describe the upstream, one that goes, one that
/// falls silent, and a message that comes late.
pub async fn law_19(subject: &dyn Subject) {
    let law = Law::new(19, "a process that says that it is there is told of until it lapses");
    let mut desk = Desk::new(law, subject.store(), [log("calls", 5, SECOND)]);
    let scopes = vec![ScopePresence { callers: 3, ..ScopePresence::new(1, ScopeId::of(b"merchant")) }];
    let waiting = Presence { weight: 2, callers: 3, oldest: Duration::from_secs(9), described: 7, scopes };
    let idle = Presence { weight: 1, described: u64::MAX, ..Presence::default() };
    let says = |presence: &Presence, lasting| Renewal::new("mail", presence.clone(), Duration::from_secs(lasting));

    subject.clock().set(at(0));
    let renew = async |desk: &mut Desk<'_>, sender, renewal: Renewal| {
        let message = desk.message(sender, "there", Body::Renew(renewal));
        let answer = law.answered(subject.store().apply(&message).await);
        let renewed = if let Reply::Renewed { processes, is_described } = answer {
            Some((processes, is_described))
        } else {
            None
        };
        (law.some(renewed, "a renewal is answered by how many there are, and whether the sender is described"), message)
    };
    let (one, late) = renew(&mut desk, 9, says(&waiting, 20).about("100/s")).await;
    subject.clock().set(at(SECOND));
    let (two, _) = renew(&mut desk, u64::MAX, says(&idle, 600).about("")).await;
    law.equal(&(one, two), &((1, true), (2, true)), "how many there are");

    let there = async |desk: &mut Desk<'_>, upstream: &str| {
        let message = desk.message(1, "there?", Body::Processes { upstream: upstream.into() });
        let message = crate::ledger::Message { id: MessageId::nobodys(), ..message };
        let answer = law.answered(subject.store().apply(&message).await);
        law.some(answer.processes(), "a question for processes is answered by them")
    };
    let senders = |processes: &Processes| processes.all.iter().map(|process| process.sender).collect::<Vec<_>>();
    let told = there(&mut desk, "mail").await;
    let all: Vec<_> = told.all.iter().map(|process| (process.sender, process.seen, process.presence.clone())).collect();
    law.equal(&all, &vec![(9, at(0), waiting.clone()), (u64::MAX, at(SECOND), idle.clone())], "what they said");
    let descriptions = vec![(7, at(0), "100/s".into()), (u64::MAX, at(SECOND), "".into())];
    law.equal(&told.descriptions, &descriptions, "how they describe it");
    law.equal(&there(&mut desk, "files").await.all, &Vec::new(), "of another upstream nobody spoke");

    let (left, _) = renew(&mut desk, 9, says(&waiting, 0)).await;
    law.equal(&left, &(1, true), "one is gone");
    let again = subject.store().apply(&late).await;
    law.holds(again.is_err(), "what it said before it went comes too late");
    law.equal(&senders(&there(&mut desk, "mail").await), &vec![u64::MAX], "and is told of no more");
    subject.clock().set(at(181 * SECOND - 1));
    law.equal(&senders(&there(&mut desk, "mail").await), &vec![u64::MAX], "three minutes at most");
    subject.clock().set(at(181 * SECOND));
    let silent = there(&mut desk, "mail").await;
    law.equal(&(silent.all.len(), silent.descriptions.len()), &(0, 0), "who fell silent is forgotten");
    let (first, _) = renew(&mut desk, 4, says(&idle, 20)).await;
    law.equal(&first, &(1, false), "and counted no more, nor is it known how they describe it");
}
