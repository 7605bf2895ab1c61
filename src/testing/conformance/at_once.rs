//! The law of messages that come at once.

use std::convert::Infallible;
use std::time::Duration;

use super::Subject;
use super::desk::{Desk, at, log};
use super::law::Law;
use crate::client::together::all;
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
    // A copy goes by the other handle.
    let copies = messages.iter().enumerate().map(|(place, message)| (place + 1, message));
    let sends = messages.iter().enumerate().chain(copies);
    let mut answers = vec![Vec::new(); 2 * messages.len()];
    let parts = sends.zip(&mut answers).map(|((place, message), answers)| async move {
        let reply = law.answered(handles[place % 2].apply(message).await);
        let grant = plain(message, reply, Stamp::from_micros(0)).grant();
        *answers = law.some(grant, "an ask is answered by a grant").answers;
        Ok::<(), Infallible>(())
    });
    let Ok(()) = all(parts).await;
    answers
}
