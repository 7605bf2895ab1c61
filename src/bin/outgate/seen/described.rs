//! How processes describe an upstream, of which several releases may be there.

use std::collections::HashMap;

use outgate::ledger::{Shape, Stamp, Term};
use outgate::processes::{Description, Processes};

/// How most processes describe an upstream, by the newest of descriptions that say the same; and how many describe it otherwise.
pub(super) fn as_most_do(processes: &Processes) -> (Option<Description>, usize) {
    let mut users = HashMap::<u64, usize>::new();
    for process in &processes.all {
        *users.entry(process.presence.described).or_default() += 1;
    }
    // By what they say: how many, when the newest of them was seen, and that. What cannot be read says the same as no other.
    let mut said: Vec<(Option<Description>, usize, Stamp, Option<Description>)> = Vec::new();
    for (hash, seen, text) in &processes.descriptions {
        let (by, read) = (users.get(hash).copied().unwrap_or(0), Description::read(text));
        let says = read.as_ref().map(unplaced);
        let same = said.iter_mut().find(|(of, ..)| says.is_some() && *of == says);
        match same {
            Some((_, all, newest, of)) => {
                *all += by;
                if *seen > *newest {
                    (*newest, *of) = (*seen, read);
                }
            }
            None => said.push((says, by, *seen, read)),
        }
    }
    let most = said.into_iter().max_by_key(|(_, by, seen, _)| (*by, *seen));
    most.map_or((None, 0), |(_, by, _, read)| (read, processes.all.len().saturating_sub(by)))
}

/// A description without the boundaries of calendar windows: these go on with time, and by what each process knows of the upstream's clock.
fn unplaced(description: &Description) -> Description {
    let of = |term: &Term| if matches!(term.shape, Shape::Calendar(_)) { Term::new(term.quota, 0) } else { *term };
    let mut unplaced = description.clone();
    for (_, log) in &mut unplaced.logs {
        log.terms = log.terms.iter().map(of).collect();
    }
    unplaced
}
