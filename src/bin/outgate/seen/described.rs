//! How processes describe an upstream, of which several releases may be there.

use outgate::ledger::{Shape, Term};
use outgate::processes::{Description, Processes};

/// How most processes describe an upstream, by the newest of descriptions that say the same; and how many describe it otherwise.
pub(super) fn as_most_do(processes: &Processes) -> (Option<Description>, usize) {
    let users = |hash: u64| processes.all.iter().filter(|process| process.presence.described == hash).count();
    let read = |text: &str| Description::read(text).map(unplaced);
    let all: Vec<_> =
        processes.descriptions.iter().map(|(hash, seen, text)| (*hash, *seen, read(text), text)).collect();
    // What cannot be read says the same as no other.
    let by_how_many = |of: &(u64, _, Option<Description>, _)| {
        let says_the_same =
            |other: &&(u64, _, Option<Description>, _)| other.0 == of.0 || other.2.is_some() && other.2 == of.2;
        all.iter().filter(says_the_same).map(|(hash, ..)| users(*hash)).sum::<usize>()
    };
    let most = all.iter().max_by_key(|of| (by_how_many(of), of.1));
    let others = most.map_or(0, |most| processes.all.len().saturating_sub(by_how_many(most)));
    (most.and_then(|(.., text)| Description::read(text)), others)
}

/// A description without the boundaries of calendar windows: these go on with time, and by what each process knows of the upstream's clock.
fn unplaced(description: Description) -> Description {
    let of = |term: &Term| if matches!(term.shape, Shape::Calendar(_)) { Term::new(term.quota, 0) } else { *term };
    let mut unplaced = description;
    for (_, log) in &mut unplaced.logs {
        log.terms = log.terms.iter().map(of).collect();
    }
    unplaced
}
