//! What follows when an upstream refuses: a pause for the whole cluster, and a rate by the evidence.

use std::iter::successors;
use std::time::Duration;

use crate::config::charges::Charges;
use crate::config::limit::Limit;
use crate::config::upstream::{MAX_PAUSE, Upstream};
use crate::feedback::{Dialect, Feedback, Quota, Reach, Refusal};
use crate::ledger::{Cause, Pause};

/// How long a ban, or a spent quota, that names its end is believed.
const MAX_NAMED_PAUSE: Duration = Duration::from_secs(86_400);
/// How long calls come slower after an overload; and beside others at most.
const RECOVERY: Duration = Duration::from_secs(10);
/// How long the first overload in a row is believed, and each lock: one page that fails is no reason for a cluster to fall silent for long.
const FIRST_OF_ONE_PAGE: Duration = Duration::from_secs(60);

/// The pause that a response asks for, and whether of the whole upstream; `None` when it was served.
///
/// Whether a wait was told or not, what follows is the same for every refusal: waits that nobody told grow with each
/// refusal in a row, from what stands in for one.
pub(crate) fn pause(
    (upstream, charges): (&Upstream, &Charges),
    feedback: &Feedback,
    random: f64,
) -> Option<(bool, Pause)> {
    let refusal = feedback.refusal()?;
    // Zero is not a licence to retry at once.
    let told = feedback.wait().filter(|wait| !wait.is_zero());
    let about_one_page = match refusal {
        Refusal::Overload => true,
        // Stripe asks whoever meets many of them to call more slowly.
        Refusal::Lock => upstream.dialect != Dialect::STRIPE,
        _ => false,
    };
    if about_one_page && told.is_none() {
        // One page that fails is no reason for a cluster to fall silent.
        return None;
    }
    let asked = told.map(|wait| wait + feedback.margin());
    let told = asked.map(|wait| wait.min(longest(upstream, feedback, refusal)));
    let mut pause = Pause::new(Duration::ZERO);
    if !about_one_page && asked > told {
        // What it asked for is longer than is believed at once: then one call looks whether it still holds.
        pause.told = asked.unwrap_or_default();
    }
    pause.waits = match told {
        // Overloads in a row are counted apart.
        Some(wait) if refusal == Refusal::Overload => growing(wait),
        Some(wait) if about_one_page => vec![wait.min(FIRST_OF_ONE_PAGE)],
        Some(wait) if !feedback.wait_stands_in() => vec![wait],
        _ => upstream.backoff.waits(random).into_iter().map(|wait| wait.max(told.unwrap_or_default())).collect(),
    };
    if let Some(max_pause) = upstream.max_pause {
        pause.waits.iter_mut().for_each(|wait| *wait = max_pause.min(*wait));
    }
    if told.is_none() || pause.waits.len() > 1 {
        // Waits grow up to the longest only if a refusal after the longest may still be the next in a row.
        pause.memory = told.filter(|_| !feedback.wait_stands_in()).unwrap_or_else(|| upstream.backoff.longest());
    }
    pause.cause = match refusal {
        Refusal::Overload => Cause::Overload,
        Refusal::Spend => Cause::Spend,
        Refusal::Ban => Cause::Ban,
        _ => Cause::Refusal,
    };
    Some((is_of_all(upstream, charges, feedback), pause))
}

/// Whether a refusal is about the whole upstream, and not only about the scope that few share.
fn is_of_all(upstream: &Upstream, charges: &Charges, feedback: &Feedback) -> bool {
    // Hosts that nobody named, as those of a crawler, have nothing in common.
    if charges.has_hosts() && upstream.hosts().is_empty() {
        return false;
    }
    match feedback.reach() {
        Some(Reach::Upstream) => true,
        // A scope may be one of many routes, or merchants, of an account.
        Some(Reach::Token) => feedback.is_global() && !charges.has_accounts(),
        _ => false,
    }
}

/// For how long after its pause calls come slower; `beside_others` where others are known to spend the same quota.
pub(crate) fn recovery(upstream: &Upstream, feedback: &Feedback, beside_others: bool) -> Duration {
    let longest = || upstream.limits.iter().map(Limit::window).max().unwrap_or_default();
    match feedback.refusal() {
        Some(Refusal::Overload | Refusal::Seats) => upstream.recovery.unwrap_or(RECOVERY),
        // Others come to their part only where calls go on slowly.
        Some(Refusal::Quota) if beside_others => upstream.recovery.unwrap_or_else(|| longest().min(RECOVERY)),
        Some(Refusal::Quota) => upstream.recovery.unwrap_or_default(),
        // What is somebody else's doing, or no matter of pace, is no reason to come slower.
        _ => Duration::ZERO,
    }
}

/// How long a response is believed that names a wait.
fn longest(upstream: &Upstream, feedback: &Feedback, refusal: Refusal) -> Duration {
    let named_end = match refusal {
        Refusal::Ban => Some(MAX_NAMED_PAUSE),
        Refusal::Quota => feedback.quotas().iter().filter_map(end_of_spent).max(),
        _ => None,
    };
    let by_default = named_end.map_or(MAX_PAUSE, |end| end.clamp(MAX_PAUSE, MAX_NAMED_PAUSE));
    upstream.max_pause.unwrap_or(by_default)
}

/// When a quota that every call spends, and that is spent, is there again.
fn end_of_spent(quota: &Quota) -> Option<Duration> {
    quota.reset_within().filter(|_| quota.unit().is_spent_by_every_call() && quota.is_spent())
}

/// Waits that double from a minute up to the one that was told.
fn growing(told: Duration) -> Vec<Duration> {
    let doubled = successors(Some(FIRST_OF_ONE_PAGE), |wait| wait.checked_mul(2));
    doubled.take_while(|wait| *wait < told).chain([told]).collect()
}
