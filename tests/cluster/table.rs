//! What happened, in a table: `cargo test --test cluster -- --nocapture` shows it.

use std::fmt::Write as _;
use std::time::Duration;

use outgate::Limit;

use crate::outcome::{Outcome, allowed, ratio};

/// Prints one row for each outcome, at once, so that no other test's output comes between.
pub(crate) fn print(outcomes: &[&Outcome], within: Duration) {
    let mut text = format!(
        "\n{:<56} {:>5} {:>7} {:>6} {:>4} {:>11}  worst window",
        "case", "sent", "allowed", "share", "429s", "store calls"
    );
    for outcome in outcomes {
        let plan = &outcome.plan;
        let (sent, allowed) = (outcome.sent(within), allowed(&plan.limits, within));
        let share = 100.0 * ratio(sent, allowed);
        let store_calls = outcome.store_calls_per_call().map_or_else(|| "-".to_owned(), |calls| format!("{calls:.3}"));
        let of = |limit: &Limit| match outcome.worst_window(limit) {
            (worst, begin) if worst > limit.quota().into() => format!("{worst} of {} at {begin:.2?}", limit.quota()),
            (worst, _) => format!("{worst} of {}", limit.quota()),
        };
        let windows: Vec<_> = plan.limits.iter().map(of).collect();
        let refused = outcome.refused();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n{:<56} {sent:>5} {allowed:>7} {share:>5.1}% {refused:>4} {store_calls:>11}  {}",
            plan.name,
            windows.join(", ")
        );
    }
    println!("{text}");
}
