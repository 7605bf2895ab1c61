//! The first law, by histories.

use super::Subject;
use super::desk::fresh_home;
use super::history::History;
use super::law::Law;
use crate::testing::oracle::worst_window_of_units;

const HISTORIES: u64 = 60;

/// No half-open interval of a term's span ever holds more than its quota.
///
/// Random histories; every start that was granted and not handed back is judged under every term of its log.
pub async fn law_1(subject: &dyn Subject) {
    let law = Law::new(1, "no half-open interval of a term's span ever holds more than its quota");
    for seed in 0..HISTORIES {
        let (store, clock) = (subject.store(), subject.clock());
        let history = History { law, store, clock, home: fresh_home(law), seed, shift: 0, twice: false };
        let told = history.tell(async || ()).await;
        for (log, entries) in &told.logs {
            for term in log.terms.iter() {
                let worst = worst_window_of_units(entries, term.span);
                let what = format!("{worst:?} of {term:?} in {}, seed {seed}", log.name);
                law.holds(worst.count <= u64::from(term.quota), &what);
            }
        }
    }
}
