//! The law of forgetting.

use std::time::Duration;

use super::Subject;
use super::desk::{Desk, log};
use super::law::Law;
use crate::ledger::{Run, Slots};

const SPAN: Duration = Duration::from_millis(60);
const HORIZON: Duration = Duration::from_millis(40);
/// Eleven seconds, and three more by which a store may round.
const LEAP: Duration = Duration::from_secs(14);

/// After the longest span of silence nothing is stored, but for 11 to 14 s in case that the store's clock leaps ahead.
///
/// On the clock of production, so this is the one law that waits, for tokio's clock. Slots granted, booked and handed
/// back, callers that wait and insist, and pauses: all is gone one span after the last booked slot and one horizon after the
/// last promised ask.
pub async fn law_9(subject: &dyn Subject) {
    let law = Law::new(9, "after the longest span of silence nothing is stored");
    let span = i64::try_from(SPAN.as_micros()).unwrap_or(i64::MAX);
    law.equal(&subject.kept().await, &Vec::new(), "the running store is empty at first");

    let logs = [log("calls", 3, span), log("points", 9, span / 2)];
    let mut desks: Vec<_> = (0..3).map(|_| Desk::new(law, subject.running(), logs.clone())).collect();
    for desk in &mut desks {
        desk.horizon = HORIZON;
        let grant = desk.book(1, Run::new(2, [1, 3])).await;
        desk.hand_back(1, Slots::new(1, grant.now, [1, 3])).await;
        desk.book(2, Run::new(9, [1, 1])).await;
        let large = desk.asking(3, vec![Run::new(1, [3, 9])], |ask| ask.insist = true);
        desk.send(&large).await;
        desk.book(4, Run::new(1, [1, 1]).max_wait(Duration::ZERO)).await;
    }
    desks[1].pause(SPAN).await;
    desks[2].pause(SPAN / 2).await;
    law.holds(!subject.kept().await.is_empty(), "what is stored can be seen");

    // The last slot is booked at the horizon at the latest and counts for a span. Who waits for it to stop counting has
    // promised to ask by then, and is waited for one horizon longer. Who waits is counted for two periods: of eight horizons,
    // which are longer than a span here, and two more. Then the few calls above, and milliseconds cut off.
    let longest = (SPAN + HORIZON * 2).max(HORIZON * 20);
    tokio::time::sleep(LEAP + longest + Duration::from_millis(10)).await;
    law.equal(&subject.kept().await, &Vec::new(), "something is left");
}
