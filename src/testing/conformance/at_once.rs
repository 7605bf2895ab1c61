//! The law of messages that come at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::Subject;
use super::desk::{Desk, at, log};
use super::law::Law;
use crate::ledger::{Answer, Message, Run, Slots, Stamp};
use crate::testing::history::plain;

const SENDERS: usize = 32;
const QUOTA: u32 = 10;

/// Messages that come at once act one after another, by whatever handle of the store they come.
///
/// Of 32 senders that ask in one moment, each twice, as many are granted a start as the quota allows; both copies of each are answered alike;
/// and what they hand back in one moment can be given again.
pub async fn law_22(subject: &dyn Subject) {
    let law = Law::new(22, "messages that come at once act one after another");
    subject.clock().set(at(0));
    let mut desk = Desk::new(law, subject.store(), [log("calls", QUOTA, 1_000_000)]);
    for _ in 0..3 {
        let run = || vec![Run::new(1, [1]).max_wait(Duration::ZERO)];
        let asks: Vec<Message> = (1..=SENDERS as u64).map(|sender| desk.ask(sender, run())).collect();
        let answers = sent_at_once(law, subject, &asks).await;
        let (once, again) = answers.split_at(SENDERS);
        law.equal(&again, &once, "both copies of a message are answered alike");
        let is_granted = |answers: &Vec<Answer>| answers.iter().any(|answer| answer.verdict.is_granted());
        let granted: Vec<&Message> =
            asks.iter().zip(once).filter(|(_, answers)| is_granted(answers)).map(|(ask, _)| ask).collect();
        law.equal(&granted.len(), &(QUOTA as usize), "so many are granted a start");
        law.equal(&desk.used().await, &vec![QUOTA], "and so many are entered");
        let back: Vec<Message> =
            granted.iter().map(|ask| desk.returning(ask.id.sender, Slots::new(1, at(0), [1]))).collect();
        sent_at_once(law, subject, &back).await;
        law.equal(&desk.used().await, &vec![0], "all is handed back");
    }
}

/// What all messages are answered, each sent twice, at once and by both handles in turn.
async fn sent_at_once(law: Law, subject: &dyn Subject, messages: &[Message]) -> Vec<Vec<Answer>> {
    let handles = [subject.store(), subject.another()];
    let send = |(place, message)| async move {
        let handle: &dyn crate::Store = handles[place % 2];
        let reply = law.answered(handle.apply(message).await);
        law.some(plain(message, reply, Stamp::from_micros(0)).grant(), "an ask is answered by a grant").answers
    };
    // A copy goes by the other handle.
    let first = messages.iter().enumerate();
    let copies = messages.iter().enumerate().map(|(place, message)| (place + 1, message));
    joined(first.chain(copies).map(send)).await
}

/// What comes of all of these, which go at once.
async fn joined<T, F: Future<Output = T>>(parts: impl Iterator<Item = F>) -> Vec<T> {
    let mut parts: Vec<(Pin<Box<F>>, Option<T>)> = parts.map(|part| (Box::pin(part), None)).collect();
    poll_fn(|cx| {
        for (part, outcome) in parts.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            if let Poll::Ready(ready) = part.as_mut().poll(cx) {
                *outcome = Some(ready);
            }
        }
        if parts.iter().all(|(_, outcome)| outcome.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    parts.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
