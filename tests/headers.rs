//! Reads every response of the corpus, and holds what the reader says against what the corpus expects, key by key.
//!
//! The environment variable `HEADER_CORPUS` may name another corpus of the same form.

#![allow(clippy::unwrap_used, reason = "a corpus that is not of this form is no corpus")]

mod headers {
    pub(crate) mod body;
    pub(crate) mod check;
    pub(crate) mod entry;
    mod executed;
}

use std::collections::BTreeMap;

use headers::check::{Verdict, check};
use headers::entry::{Entry, corpus};
use serde_json::Value;

#[derive(Default)]
struct Count {
    met: usize,
    unsupported: usize,
    missed: usize,
}

#[test]
fn every_response_is_read_as_the_corpus_expects() {
    let entries = corpus();
    let mut keys: BTreeMap<&str, Count> = BTreeMap::new();
    let (mut missed, mut unsupported, mut entirely) = (Vec::new(), Vec::new(), 0);
    for entry in &entries {
        let (missed_before, unsupported_before) = (missed.len(), unsupported.len());
        let feedback = entry.feedback();
        for (key, expected) in entry.expectations() {
            let count = keys.entry(key).or_default();
            match check(key, expected, entry, &feedback) {
                Verdict::Met => count.met += 1,
                Verdict::Unsupported(reason) => {
                    count.unsupported += 1;
                    unsupported.push(format!("{} ({}): {key}: {reason}", entry.id(), entry.upstream()));
                }
                Verdict::Missed(actual) => {
                    count.missed += 1;
                    missed.push(format!(
                        "{} ({}): {key}: expected {expected}, read {actual}",
                        entry.id(),
                        entry.upstream()
                    ));
                }
            }
        }
        entirely += usize::from(missed.len() == missed_before && unsupported.len() == unsupported_before);
    }

    println!("{entirely} of {} responses are met entirely", entries.len());
    println!("{:<22} {:>5} {:>12} {:>7}", "key", "met", "unsupported", "missed");
    for (key, count) in &keys {
        println!("{key:<22} {:>5} {:>12} {:>7}", count.met, count.unsupported, count.missed);
    }
    println!("unsupported: {}\n  {}", unsupported.len(), unsupported.join("\n  "));
    assert!(missed.is_empty(), "{} expectations are missed:\n  {}", missed.len(), missed.join("\n  "));
    assert!(!entries.is_empty(), "the corpus is empty");
}

/// The checks can fail: only what expects nothing to be said is met by a reader that says nothing.
#[test]
fn a_reader_that_reads_nothing_misses_every_expectation_of_something() {
    let silent = outgate::Feedback::default();
    let entries = corpus();
    let met = |entry: &&Entry| {
        entry.expectations().all(|(key, expected)| matches!(check(key, expected, entry, &silent), Verdict::Met))
    };
    let something = |entry: &&Entry| {
        let nothing = |expected: &Value| {
            expected.is_null() || *expected == false || expected.as_array().is_some_and(Vec::is_empty)
        };
        !entry.expectations().all(|(_, expected)| nothing(expected))
    };
    let met: Vec<&str> = entries.iter().filter(something).filter(met).map(Entry::id).collect();
    assert!(met.is_empty(), "a reader that reads nothing meets {met:?}");
}
