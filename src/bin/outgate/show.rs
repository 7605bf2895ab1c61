//! What is to be seen, as text and as JSON.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use outgate::ledger::{Cause, PauseUsage, Slower};
use outgate::processes::ScopeInUse;
use outgate::store::UpstreamFound;
use serde_json::{Value, json};

use crate::seen::{LimitSeen, Seen, Unread};

/// All upstreams, one after another.
pub(crate) fn status(all: &[Result<Seen, Unread>], prefix: &str) -> String {
    let mut text = String::new();
    for row in all {
        let upstream = match row {
            Ok(seen) => seen,
            Err(unread) => {
                let _ = writeln!(text, "{}: {}", unread.found.name, why_unread(unread));
                continue;
            }
        };
        let _ = writeln!(text, "{}", headline(upstream));
        if let Some(paused) = &upstream.paused {
            let _ = writeln!(text, "  {}", pause(paused));
        }
        if let Some(slower) = slowed(upstream.rate, upstream.slower) {
            let _ = writeln!(text, "  {slower}");
        }
        if upstream.known.others > 0 {
            let _ = writeln!(
                text,
                "  {} describe it otherwise",
                count(upstream.known.others as u64, "process", "processes")
            );
        }
        for limit in &upstream.limits {
            let _ = writeln!(text, "  {}", line(limit));
        }
    }
    if all.is_empty() { nobody(prefix) } else { text }
}

/// Why an upstream is not shown.
pub(crate) fn why_unread(unread: &Unread) -> String {
    format!("cannot be read: {}", chain(&unread.error))
}

/// Which upstreams cannot be read, and why.
pub(crate) fn unread(all: &[Result<Seen, Unread>]) -> Option<String> {
    let unread = all.iter().filter_map(|row| row.as_ref().err());
    let why: Vec<_> = unread.map(|unread| format!("{} {}", unread.found.name, why_unread(unread))).collect();
    (!why.is_empty()).then(|| why.join("; "))
}

fn nobody(prefix: &str) -> String {
    format!("no process with the prefix {prefix} has used an upstream lately\n")
}

/// Who uses an upstream, and who waits.
pub(crate) fn headline(upstream: &Seen) -> String {
    let mut text = format!("{}", upstream.known.found.name);
    if let Some(shares) = shares(&upstream.known.found) {
        let _ = write!(text, " (shares {shares})");
    }
    let _ = write!(text, ": {}", count(upstream.known.processes.all.len() as u64, "process", "processes"));
    match upstream.known.oldest() {
        Some(oldest) => {
            let waiting = count(upstream.known.callers(), "caller waits", "callers wait");
            let _ = write!(text, ", {waiting}, the first for {}", rough(oldest));
        }
        None => text.push_str(", nobody waits"),
    }
    text
}

/// How much is used of a limit.
pub(crate) fn line(limit: &LimitSeen) -> String {
    let mut text = format!("{:<32} {:>7} of {}", limit.text, limit.used, limit.quota);
    if limit.booked > 0 {
        let _ = write!(text, ", {} booked", limit.booked);
    }
    if limit.outside > 0 {
        let _ = write!(text, ", {} used by others", limit.outside);
    }
    if let Some(next) = limit.next.filter(|next| !next.is_zero()) {
        let _ = write!(text, ", next in {}", rough(next));
    }
    if let Some(scope) = &limit.scope {
        let _ = write!(text, ", {}", name(scope));
        if scope.callers > 0 {
            let _ = write!(text, ": {}", count(scope.callers.into(), "caller waits", "callers wait"));
        }
        if let Some(paused) = &limit.paused {
            let _ = write!(text, ", {}", pause(paused));
        }
        if let Some(slower) = slowed(limit.rate, limit.slower) {
            let _ = write!(text, ", {slower}");
        }
    }
    tame(&text)
}

/// The limits of each upstream, one a line.
pub(crate) fn limits(all: &[Result<Seen, Unread>], prefix: &str) -> String {
    let mut text = String::new();
    for upstream in all.iter().flatten() {
        let limits = upstream.known.description.iter().flat_map(|description| &description.limits);
        for limit in limits {
            let _ = writeln!(text, "{}: {}", upstream.known.found.name, tame(&limit.text));
        }
    }
    if text.is_empty() && unread(all).is_none() { nobody(prefix) } else { text }
}

/// The name of a scope, or its first digits.
pub(crate) fn name(scope: &ScopeInUse) -> String {
    scope.name.as_ref().map_or_else(|| scope.scope.to_string().chars().take(8).collect(), ToString::to_string)
}

/// How long a pause lasts, and why.
pub(crate) fn pause(paused: &PauseUsage) -> String {
    let why = match (paused.cause, paused.status) {
        (Cause::Spend, _) => "a spending limit".to_owned(),
        (Cause::Ban, _) => "a ban".to_owned(),
        (Cause::Overload, Some(status)) => format!("an overload ({status})"),
        (_, Some(status)) => format!("a refusal ({status})"),
        (_, None) => "by a program, or by hand".to_owned(),
    };
    format!("paused for {}: {why}", rough(paused.left))
}

/// What is left of the quotas, and, where refusals have lowered them, or have calls come one after another, for how long.
pub(crate) fn slowed(rate: u32, slower: Option<Slower>) -> Option<String> {
    let lowered = (rate < 1_000_000).then(|| format!("slowed down to {}", percent(rate)));
    let Some(slower) = slower else { return lowered };
    let what = lowered.unwrap_or_else(|| "calls come one after another".to_owned());
    Some(format!("{what}, after refusals for about {} more", rough(slower.left)))
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let (mut words, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    tame(&words)
}

/// A line without what a terminal would obey: anybody who reaches the store can say anything there.
fn tame(line: &str) -> String {
    line.replace(char::is_control, "\u{fffd}")
}

fn count(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Of millionths.
pub(crate) fn percent(millionths: u32) -> String {
    format!("{}%", f64::from(millionths) / 10_000.0)
}

/// A length of time: whole seconds, or milliseconds below one.
pub(crate) fn rough(time: Duration) -> String {
    let whole = if time < Duration::from_secs(1) {
        Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(time.as_secs())
    };
    humantime::format_duration(whole).to_string()
}

/// All upstreams as JSON: lengths of time in milliseconds.
pub(crate) fn json(all: &[Result<Seen, Unread>]) -> String {
    let all = Value::Array(all.iter().map(|row| row.as_ref().map_or_else(unreadable, upstream)).collect());
    let mut text = String::new();
    for letter in format!("{all:#}\n").chars() {
        // JSON need not escape all that a terminal obeys.
        if letter.is_control() && letter != '\n' {
            let _ = write!(text, "\\u{:04x}", u32::from(letter));
        } else {
            text.push(letter);
        }
    }
    text
}

fn unreadable(unread: &Unread) -> Value {
    json!({ "upstream": *unread.found.name, "shares": shares(&unread.found), "error": chain(&unread.error) })
}

/// The name of those with which an upstream shares limits.
pub(crate) fn shares(found: &UpstreamFound) -> Option<&str> {
    (found.ledger != found.name).then_some(&*found.ledger)
}

fn upstream(seen: &Seen) -> Value {
    let process = |process: &outgate::processes::ProcessSeen| {
        json!({
            "process": format!("{:016x}", process.sender),
            "seen_ms": ms(seen.known.processes.now.since(process.seen)),
            "weight": process.presence.weight,
            "callers": process.presence.callers,
            "oldest_ms": ms(process.presence.oldest),
        })
    };
    let scope = |scope: &ScopeInUse| {
        json!({
            "scope": scope.scope.to_string(), "name": scope.name.as_deref(), "kind": *scope.kind,
            "processes": scope.processes, "callers": scope.callers, "oldest_ms": ms(scope.oldest),
        })
    };
    let limit = |limit: &LimitSeen| {
        json!({
            "limit": *limit.text,
            "scope": limit.scope.as_ref().map(|scope| scope.scope.to_string()),
            "used": limit.used, "booked": limit.booked, "quota": limit.quota, "outside": limit.outside,
            "next_ms": limit.next.map(ms),
            "paused_ms": limit.paused.map_or(0, |paused| ms(paused.left)),
            "rate": f64::from(limit.rate) / 1e6,
            "slower_ms": limit.slower.map_or(0, |slower| ms(slower.left)),
        })
    };
    json!({
        "upstream": *seen.known.found.name,
        "shares": shares(&seen.known.found),
        "calls_per_second": seen.calls,
        "callers": seen.known.callers(),
        "oldest_ms": seen.known.oldest().map(ms),
        "paused_ms": seen.paused.map_or(0, |paused| ms(paused.left)),
        "rate": f64::from(seen.rate) / 1e6,
        "slower_ms": seen.slower.map_or(0, |slower| ms(slower.left)),
        "described_otherwise": seen.known.others,
        "processes": seen.known.processes.all.iter().map(process).collect::<Vec<_>>(),
        "scopes": seen.known.scopes.iter().map(scope).collect::<Vec<_>>(),
        "limits": seen.limits.iter().map(limit).collect::<Vec<_>>(),
    })
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
