//! What the scripts promise, to the server and to each other.

mod contract;
mod desk;
mod evicted;
mod expiry;
mod first_look;
mod garbage;
mod histories;
mod kept;
mod keyspace;
mod leaping;
mod presence;
mod replies;
mod seats;
mod size;

use std::fmt::Debug;

use outgate::testing::Reply;

pub(crate) use self::desk::{Desk, Log, Run};

/// Every file by its name.
const FILES: [(&str, &str); 33] = [
    ("again", include_str!("../../lua/again.lua")),
    ("book", include_str!("../../lua/book.lua")),
    ("boundaries", include_str!("../../lua/boundaries.lua")),
    ("bucket", include_str!("../../lua/bucket.lua")),
    ("calendar", include_str!("../../lua/calendar.lua")),
    ("claims", include_str!("../../lua/claims.lua")),
    ("contenders", include_str!("../../lua/contenders.lua")),
    ("debt", include_str!("../../lua/debt.lua")),
    ("first_answer", include_str!("../../lua/first_answer.lua")),
    ("first_look", include_str!("../../lua/first_look.lua")),
    ("head", include_str!("../../lua/head.lua")),
    ("inspect", include_str!("../../lua/inspect.lua")),
    ("list", include_str!("../../lua/list.lua")),
    ("log", include_str!("../../lua/log.lua")),
    ("loss", include_str!("../../lua/loss.lua")),
    ("look", include_str!("../../lua/look.lua")),
    ("life", include_str!("../../lua/life.lua")),
    ("named_terms", include_str!("../../lua/named_terms.lua")),
    ("pause", include_str!("../../lua/pause.lua")),
    ("processes", include_str!("../../lua/processes.lua")),
    ("rate", include_str!("../../lua/rate.lua")),
    ("release", include_str!("../../lua/release.lua")),
    ("renew", include_str!("../../lua/renew.lua")),
    ("report", include_str!("../../lua/report.lua")),
    ("reset", include_str!("../../lua/reset.lua")),
    ("holders", include_str!("../../lua/holders.lua")),
    ("roll_call", include_str!("../../lua/roll_call.lua")),
    ("seats", include_str!("../../lua/seats.lua")),
    ("shares", include_str!("../../lua/shares.lua")),
    ("turns", include_str!("../../lua/turns.lua")),
    ("slow_down", include_str!("../../lua/slow_down.lua")),
    ("state", include_str!("../../lua/state.lua")),
    ("usage", include_str!("../../lua/usage.lua")),
];
/// The scripts, each by the last of its files.
const SCRIPTS: [&str; 11] =
    ["book", "pause", "release", "slow_down", "reset", "look", "report", "usage", "renew", "processes", "inspect"];
/// Where it stands how they are joined.
const JOINED: &str = include_str!("../../src/store/redis/script.rs");
/// A supplied time with all the digits of a real one.
const NOW: i64 = 1_795_170_949_790_213;
const SECOND: i64 = 1_000_000;

/// The text of a file.
fn file(name: &str) -> &'static str {
    FILES.iter().find(|(of, _)| *of == name).map_or_else(|| panic!("no file is called {name}"), |(_, text)| text)
}

/// The files of a script, in the order in which they are joined; each part of it is a function inside of the one before.
fn parts_of(script: &str) -> Vec<Vec<&'static str>> {
    let joined = JOINED.split("script!(").find_map(|call| call.strip_prefix(script)?.strip_prefix(": "));
    let parts = joined.and_then(|parts| parts.split_once(')')).unwrap_or_else(|| panic!("{script} is not joined")).0;
    let files = |part: &'static str| part.split(',').map(|file| file.trim().trim_matches('"')).collect();
    parts.split(';').map(files).collect()
}

fn files_of(script: &str) -> Vec<&'static str> {
    parts_of(script).concat()
}

/// A script as it is run.
fn whole(script: &str) -> String {
    joined(script, |_| true)
}

/// The same of some of its files.
fn joined(script: &str, is_joined: impl Fn(&str) -> bool) -> String {
    let text = |files: Vec<&str>| files.into_iter().filter(|name| is_joined(name)).map(file).collect();
    let parts: Vec<String> = parts_of(script).into_iter().map(text).collect();
    parts.join("return (function()\n") + &"end)()".repeat(parts.len() - 1)
}

fn texts(reply: &Reply) -> Vec<String> {
    let Reply::Array(parts) = reply else { panic!("{reply:?} is no list") };
    parts.iter().map(|part| part.text().unwrap_or("?").to_owned()).collect()
}

fn must<T, E: Debug>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{error:?}"))
}
