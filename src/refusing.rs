//! What follows when an upstream refuses: a hold for the whole cluster, and then a gentle start.

use std::time::Duration;

use crate::feedback::{Dialect, Feedback, Reach, Refusal};
use crate::store::{Cause, Hold, Home};
use crate::upstream::Upstream;

/// The hold that a response asks for, and on whom; `None` when it was served.
///
/// Whether a wait was told or not, what follows is the same for every refusal: waits that nobody told grow with each
/// refusal in a row.
pub(crate) fn hold(upstream: &Upstream, home: &Home, feedback: &Feedback, random: f64) -> Option<(Home, Hold)> {
    let refusal = feedback.refusal()?;
    // Zero is not a licence to retry at once, and more than a month is no time that anybody means.
    let told = feedback.wait().filter(|wait| !wait.is_zero() && !feedback.over_cap());
    let about_one_page = match refusal {
        Refusal::Overload => true,
        // Stripe says so of the account.
        Refusal::Lock => upstream.dialect != Dialect::STRIPE,
        _ => false,
    };
    if about_one_page && told.is_none() {
        // One page that fails is no reason for a cluster to fall silent.
        return None;
    }
    let mut hold = Hold::new(Duration::ZERO);
    hold.waits = match told {
        Some(wait) => vec![wait + feedback.margin()],
        None => upstream.backoff.waits(random),
    };
    // What is somebody else's doing, or no matter of pace, is no reason to come slower.
    let of_pace = matches!(refusal, Refusal::Quota | Refusal::Seats | Refusal::Overload);
    hold.recovery = if of_pace { upstream.recovery } else { Duration::ZERO };
    if told.is_none() {
        // Waits grow up to the longest only if a refusal after the longest is still the next in a row.
        hold.memory = upstream.backoff.longest();
    }
    hold.cause = match refusal {
        Refusal::Spend => Cause::Spend,
        Refusal::Ban => Cause::Ban,
        _ => Cause::Refusal,
    };
    let all = feedback.reach() == Some(Reach::Upstream);
    Some((if all { home.of_upstream().unwrap_or_else(|| home.clone()) } else { home.clone() }, hold))
}
