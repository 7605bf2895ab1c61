//! The guide names every metric, with its kind and its labels, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outgate::{Limit, Throttle, Upstream};

use crate::support::{Board, Distant};

const GUIDE: &str = include_str!("../../guide/watching.md");

const DASHBOARD: &str = include_str!("../../examples/metrics/dashboard.json");

/// The words in backquotes of a text.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// By the guide's table, of each metric: its kind, its labels, and what it means.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>, String)> {
    let rows = GUIDE.lines().filter(|line| line.starts_with("| `outgate_"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("a row of four cells: {line}") };
        (name.trim_matches('`').to_owned(), (kind.to_owned(), quoted(labels), meaning.to_owned()))
    };
    rows.map(row).collect()
}

/// The metrics that a dashboard asks for: of a histogram Prometheus has several.
fn asked_for() -> BTreeMap<String, &'static str> {
    let words = DASHBOARD.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = |word: &'static str| {
        let parts = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| word.strip_suffix(part));
        (parts.unwrap_or(word).to_owned(), if parts.is_some() { "histogram" } else { "" })
    };
    words.filter(|word| word.starts_with("outgate_")).map(name).collect()
}

#[test]
fn the_dashboard_asks_for_every_metric_that_there_is_and_for_no_other() {
    let (asked_for, documented) = (asked_for(), documented());
    assert!(asked_for.keys().eq(documented.keys()), "{asked_for:?} {documented:?}");
    for (name, (kind, ..)) in documented {
        assert_eq!(asked_for[&name] == "histogram", kind == "histogram", "{name}");
    }
    assert!(serde_json::from_str::<serde_json::Value>(DASHBOARD).is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_guide_names_every_metric_its_labels_and_their_values_and_no_other() {
    let up = Upstream::new("up").limit(Limit::per_second(2)).limit(Limit::per_minute(900).of("tokens"));
    let store = Distant::default();
    let (throttle, board) = Board::of(Throttle::builder().store(store).upstream(up.estimate("tokens", 100)));
    drop(throttle.acquire("up").max_wait(Duration::from_secs(1)).await.unwrap());
    let documented = documented();
    let mut emitted: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    for (name, kind, labels) in board.series() {
        let meaning = &documented.get(&name).unwrap_or_else(|| panic!("the guide does not name {name}")).2;
        let fixed = labels.iter().filter(|(label, _)| !["upstream", "unit", "limit"].contains(&&***label));
        for (label, value) in fixed {
            assert!(quoted(meaning).contains(value), "the guide does not say that {label} of {name} may be {value}");
        }
        let labels: BTreeSet<_> = labels.into_keys().collect();
        let before = emitted.insert(name.clone(), (kind.to_owned(), labels.clone()));
        assert!(before.is_none_or(|before| before.1 == labels), "{name} always has the same labels");
    }
    assert_eq!(board.described(), emitted.keys().cloned().collect(), "each is described, and no other");
    let named = documented.into_iter().map(|(name, (kind, labels, _))| (name, (kind, labels)));
    assert_eq!(emitted, named.collect());
}
