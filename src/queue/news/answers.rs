//! What the store answered, and what follows from it.

use tokio::time::Instant;

use super::behind::{Pausing, What};
use super::entry::Unanswered;
use super::{Effect, Effects, News, Whom, tell};
use crate::ledger::Reply;
use crate::store::Applied;

impl News {
    /// Takes in the store's answer to the message about somebody.
    pub(super) fn receive(&mut self, whom: &Whom, answer: Applied, now: Instant, effects: &mut Effects) {
        let Some(entry) = self.entries.get_mut(whom) else { return };
        let Some(mut unanswered) = entry.unanswered.take() else { return };
        let upstream = whom.upstream();
        match (unanswered.what, answer) {
            (mut what, Ok(Reply::Looked(looked))) => {
                what.date(looked.now, now);
                entry.unanswered = Some(Unanswered { what, ..unanswered });
            }
            (what, Err(error)) if error.wants_another_name() && !unanswered.renamed => {
                effects.extend(unanswered.id.take().map(|id| Effect::Rename(id.sender)));
                entry.unanswered = Some(Unanswered { what, renamed: true, ..unanswered });
            }
            (What::Pausing(mut pausing), Err(error)) => {
                if !unanswered.resend.has_failed() {
                    tracing::warn!(upstream, %error, "the pause is not known to the others yet");
                }
                // Who waits for what is said next will not know in time either.
                tell(pausing.take_tickets().chain(entry.take_tickets()), &Err(error.clone()), effects);
                unanswered.resend.failed(error, now, self.random.u64(..));
                // Whether it is over, and is told for what it says of the limits alone, its turn decides.
                entry.unanswered = Some(Unanswered { what: What::Pausing(pausing), renamed: false, ..unanswered });
            }
            (What::Reporting(reporting), Err(error)) => {
                tracing::debug!(upstream, %error, "not learned from");
                tell(reporting.tickets, &Err(error), effects);
            }
            (What::Pausing(pausing), Ok(Reply::Paused(paused))) if pausing.is_void(paused.wait(), now) => {
                tracing::debug!(upstream, "the pause has ended");
                // What was said since the store has yet to judge.
                entry.pause_at = None;
                if !whom.is_echo {
                    effects.extend(pausing.until().map(|until| Effect::Release(whom.clone(), until)));
                    let behind = entry.behind(now);
                    effects.extend(behind.map(|(wait, reason)| Effect::Pause(whom.clone(), wait, reason)));
                }
                self.known.forget(whom);
                self.follow(pausing, now, effects);
            }
            (What::Pausing(pausing), Ok(Reply::Paused(paused))) => {
                let (wait, reason) = (paused.wait(), pausing.reason());
                if !whom.is_echo {
                    let lowered = (paused.rate < 1_000_000).then(|| f64::from(paused.rate) / 1e6);
                    let (scope, cause) = (whom.key().1.map(tracing::field::display), reason.words());
                    let status = reason.status;
                    tracing::warn!(upstream, scope, status, ?wait, cause, rate = lowered, "refused, nobody sends");
                }
                effects.push(Effect::Pause(whom.clone(), wait, reason));
                effects.extend((!wait.is_zero()).then(|| pausing.taken(whom)));
                let known = pausing.known(now, now + wait);
                self.known.enter(whom, known, now);
                let said = entry.take_known(known, now);
                for pausing in [Some(pausing), said].into_iter().flatten() {
                    self.follow(pausing, now, effects);
                }
            }
            (What::Reporting(reporting), Ok(Reply::Learned(learned))) => {
                if learned.outside > 0 {
                    tracing::debug!(upstream, units = learned.outside, "others use the same quota");
                }
                tell(reporting.tickets, &Ok(()), effects);
            }
            (mut what, Ok(_)) => tell(what.take_tickets(), &Ok(()), effects),
        }
    }

    /// The store knows of a pause: what the same responses reported comes next.
    pub(super) fn follow(&mut self, pausing: Pausing, now: Instant, effects: &mut Effects) {
        for follower in pausing.into_followers() {
            let report = follower.report.filter(|reported| !reported.is_stale(now));
            self.report(&follower.whom, report, follower.tickets, now, effects);
        }
    }
}
