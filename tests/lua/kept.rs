//! What is kept is what releases of this format have always kept: so an older one reads what this one writes, and this one what that did.

use std::fmt::Write as _;
use std::time::Duration;

use outgate::ledger::{
    Ask, Body, Bucket, Evidence, Log, Message, MessageId, Pause, Presence, Priority, QuotaReport, Renewal, Report, Run,
    ScopeId, ScopePresence, SeatLimit, Seats, Stamp, Term,
};
use outgate::testing::{ManualClock, RedisServer, Reply, RespClient};
use outgate::{RedisStore, Store};

use crate::{NOW, SECOND, must, texts};

/// Written by the first release of format 3.
const KEPT: &str = include_str!("../data/format_3.txt");

/// Everything of a prefix, a line for each key.
fn kept(client: &mut RespClient) -> String {
    let mut keys = texts(&must(client.command(&["KEYS", "*"])));
    keys.sort();
    let mut text = String::new();
    for key in keys {
        let of = match must(client.command(&["TYPE", &key])) {
            Reply::Simple(kind) if kind == "list" => &["LRANGE", &key, "0", "-1"][..],
            Reply::Simple(kind) if kind == "hash" => &["HGETALL", &key],
            _ => &["GET", &key],
        };
        let mut parts = match must(client.command(of)) {
            Reply::Array(parts) => parts,
            one => vec![one],
        };
        if of[0] == "HGETALL" {
            parts.sort_by_key(|part| format!("{part:?}"));
        }
        let _ = writeln!(text, "{key} {}", parts.iter().map(shown).collect::<Vec<_>>().join(" "));
    }
    text
}

/// Bytes that are no text in hex; of the format itself the number alone.
fn shown(part: &Reply) -> String {
    let Reply::Bulk(bytes) = part else { panic!("{part:?}") };
    match std::str::from_utf8(bytes) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => text.to_owned(),
        Ok(text) if text.ends_with(env!("CARGO_PKG_VERSION")) => text.split(' ').next().unwrap_or_default().to_owned(),
        _ => bytes.iter().fold("0x".to_owned(), |hex, byte| hex + &format!("{byte:02x}")),
    }
}

/// A little of everything.
fn story() -> Vec<Body> {
    let (scope, other) = (ScopeId::from_bits(0x5f), ScopeId::from_bits(0x60));
    let calls = || Log::new("calls", [Term::new(4, 60 * SECOND)]);
    let points = || Log::new("points", [Term::bucket(Bucket::new(500_000_000, 20_000_000_000))]).of(Some(scope));
    let lowered = || Log::new("calls", [Term::new(2, 60 * SECOND)]);
    let ask = |logs: Vec<Log>, runs: Vec<Run>| Ask::new(logs, runs);
    let mut insisting = ask(vec![calls(), points()], vec![Run::new(1, [3, 5]).priority(Priority::High)]);
    (insisting.insist, insisting.weight) = (true, 4);
    let mut settling = ask(vec![calls(), points()], Vec::new());
    settling.debts = vec![1, 7];
    let mut seated = ask(vec![calls()], vec![Run::new(2, [1])]);
    seated.seats = Some(Seats::new([SeatLimit::new(None, 3)]).keeping(2, 1));
    let refused = |log: Log| {
        let mut pause = Pause::new(Duration::from_secs(30));
        (pause.recovery, pause.memory) = (Duration::from_secs(10), Duration::from_secs(60));
        (pause.status, pause.told) = (429, Duration::from_secs(90));
        let windows = vec![(Term::new(4, 60 * SECOND), Duration::from_secs(57))];
        pause.evidence = Some(Box::new(Evidence::new(log, 2, windows)));
        pause
    };
    let mut report = Report::default();
    let term = Term::new(4, 60 * SECOND);
    report.quotas = vec![QuotaReport::new(term, Duration::from_secs(57), 1, Duration::from_secs(50))];
    let mut presence = Presence::default();
    (presence.callers, presence.oldest, presence.weight) = (3, Duration::from_secs(8), 4);
    presence.scopes = vec![ScopePresence::new(0, scope)];
    vec![
        ask(vec![calls(), points()], vec![Run::new(3, [1, 2])]).into(),
        insisting.into(),
        ask(vec![lowered()], vec![Run::new(1, [1])]).into(),
        settling.into(),
        seated.into(),
        Body::Pause { scope: Some(scope), pause: refused(points()) },
        Body::Pause { scope: None, pause: refused(calls()) },
        Body::SlowDown { scope: Some(other), factor: 250_000, lasting: Duration::from_secs(600) },
        Body::Release { scope: Some(scope), served: None },
        Body::Report { log: calls(), report },
        Body::Renew(Renewal::new("up", presence, Duration::from_secs(20)).about("{}")),
    ]
}

#[tokio::test]
async fn what_releases_of_one_format_keep_is_the_same() {
    let server = must(RedisServer::start());
    let clock = ManualClock::new(Stamp::from_micros(NOW));
    let store = must(RedisStore::builder(&server.url()).prefix("kept").connect().await).with_clock(clock.clone());
    for (sender, body) in (1..).zip(story()) {
        clock.set(Stamp::from_micros(NOW + 10_000 * must(i64::try_from(sender))));
        must(store.apply(&Message::new("up", MessageId::new(sender, "s", 17), body)).await);
    }
    let found = kept(&mut must(server.client()));
    assert!(
        found == KEPT,
        "releases of this format keep it otherwise: see that they read this, or raise the format\n{found}"
    );
}
