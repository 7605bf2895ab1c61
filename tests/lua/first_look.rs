//! The commonest ask is answered at a glance, as the rest of the script would answer it.

use std::collections::BTreeMap;

use fastrand::Rng;
use outgate::testing::{RedisServer, Reply};

use crate::desk::{Slot, scopes};
use crate::keyspace::keyspace;
use crate::{Desk, Log, NOW, Run, SECOND, must};

const FOUR: [Log<'_>; 1] = [("calls", &[(4, SECOND)])];
const ONE: [Run<'_>; 1] = [(1, None, &[1])];

/// Only the first look answers with one integer.
fn at_a_glance(desk: &mut Desk<'_>, logs: &[Log<'_>], runs: &[Run<'_>]) -> bool {
    let reply = desk.try_book(logs, runs);
    let callers = runs.iter().map(|run| i64::from(run.0)).sum();
    desk.answer(&reply, scopes(logs).len(), callers);
    desk.number += 1;
    matches!(reply, Reply::Int(_))
}

#[test]
fn what_can_start_now_is_answered_at_a_glance_and_nothing_else() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "one", Some(NOW));
    assert!(at_a_glance(&mut desk, &FOUR, &ONE), "one caller");
    assert!(at_a_glance(&mut desk, &FOUR, &[(1, Some(5), &[2])]), "of more units, who would not wait");
    assert!(!at_a_glance(&mut desk, &FOUR, &[(2, None, &[1])]), "no room for both");
    desk.upstream = "several";
    let logs: [Log<'_>; 3] =
        [("calls", &[(4, SECOND), (9, 9 * SECOND)]), ("5f/calls", &[(4, SECOND)]), ("77/points", &[(9, SECOND)])];
    assert!(at_a_glance(&mut desk, &logs, &[(2, None, &[1, 0, 3])]), "three logs in three scopes, one of no units");
    assert!(!at_a_glance(&mut desk, &logs, &[(1, None, &[1, 1, 4])]), "one of them is full");
    desk.upstream = "kinds";
    assert!(!at_a_glance(&mut desk, &FOUR, &[(1, None, &[1]), (1, None, &[2])]), "two kinds");
    assert!(!at_a_glance(&mut desk, &FOUR, &[]), "nobody");
    desk.upstream = "again";
    assert!(at_a_glance(&mut desk, &FOUR, &ONE));
    desk.number -= 1;
    assert!(!at_a_glance(&mut desk, &FOUR, &ONE), "the same message again");
    desk.previous = desk.number - 1;
    assert!(at_a_glance(&mut desk, &FOUR, &ONE), "after the message that is remembered");
    desk.previous = 0;
    desk.upstream = "late";
    desk.ahead = 5;
    assert!(!at_a_glance(&mut desk, &FOUR, &ONE), "from far away");
    desk.ahead = 0;
    for (upstream, scope) in [("all", None), ("scope", Some("77"))] {
        desk.upstream = upstream;
        desk.pause(scope, 5);
        assert!(!at_a_glance(&mut desk, &logs, &[(1, None, &[1, 1, 1])]), "paused");
    }
}

#[test]
fn a_log_that_only_the_first_look_writes_stays_short() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "short", Some(NOW));
    for call in 0..500 {
        desk.now = Some(NOW + call * SECOND / 3);
        assert_eq!(desk.book(&FOUR, &ONE)[1..], [0, 1, 0, 1]);
        assert!((1..=2 * 4 + 64).contains(&desk.int("LLEN", "log:calls")), "call {call}");
    }
}

#[test]
fn a_message_that_says_no_time_is_answered_in_full() {
    let server = must(RedisServer::start());
    let mut desk = Desk::new(&server, "full", Some(NOW));
    desk.known = 0;
    assert!(!at_a_glance(&mut desk, &FOUR, &ONE), "what one integer cannot say");
    desk.known = NOW - (1 << 40) + 1;
    assert!(at_a_glance(&mut desk, &FOUR, &ONE));
    desk.number = (1 << 53) - 1;
    assert_eq!(desk.book(&FOUR, &ONE), [NOW, 0, 1, 0, 1]);
}

/// One step of a history: by how far the clock moves, and an ask.
#[derive(Clone)]
struct Step<'a> {
    by: i64,
    sender: u64,
    /// How many numbers the sender goes on; none or less for a message that comes twice, or late.
    on: i64,
    /// Of how long ago the message is that it takes for the last.
    knows: u64,
    logs: Vec<Log<'a>>,
    runs: Vec<(u32, Option<i64>, Vec<u32>)>,
    back: Option<(i64, Vec<u32>)>,
    pause: Option<i64>,
    horizon: i64,
    insist: bool,
}

const LOGS: [Log<'static>; 5] = [
    ("calls", &[(40, SECOND)]),
    ("points", &[(300, SECOND), (900, 9 * SECOND)]),
    ("5f/calls", &[(9, SECOND), (3, 50_000)]),
    ("5f/points", &[(2_000, 3 * SECOND)]),
    ("77/calls", &[(1, 20_000)]),
];

/// A random step. In a calm history nobody waits, so that there is no state of anything.
fn step(rng: &mut Rng, calm: bool) -> Step<'static> {
    let logs: Vec<Log<'_>> = LOGS.into_iter().filter(|_| rng.u8(0..3) > 0).collect();
    let logs = if logs.is_empty() { LOGS[..1].to_vec() } else { logs };
    let units = |rng: &mut Rng| -> Vec<u32> {
        let of = |(_, terms): &Log<'_>| {
            let most = terms.iter().map(|term| term.0).min().unwrap_or(1);
            let at_most = most.min(1 << rng.u8(0..12));
            if rng.u8(0..4) == 0 { 0 } else { rng.u32(1..=at_most) }
        };
        let mut units: Vec<u32> = logs.iter().map(of).collect();
        if units.iter().all(|&units| units == 0) {
            units[0] = 1;
        }
        units
    };
    let count = if rng.u8(0..6) == 0 { rng.usize(0..4) } else { 1 };
    let callers = [1, 1, 1, 2, 7, 64][rng.usize(0..6)];
    let mut run = || {
        let wait = rng.bool().then(|| rng.i64(0..SECOND));
        (callers, if calm { Some(0) } else { wait }, units(rng))
    };
    let runs = (0..count).map(|_| run()).collect();
    let back = (rng.u8(0..9) == 0).then(|| (rng.i64(0..SECOND), units(rng)));
    Step {
        by: if rng.bool() { rng.i64(0..9_000) } else { rng.i64(0..2 * SECOND) },
        sender: rng.u64(1..4),
        on: if rng.u8(0..8) == 0 { rng.i64(-2..1) } else { rng.i64(1..9) },
        knows: rng.u64(0..8).saturating_sub(6),
        runs,
        back,
        pause: (!calm && rng.u8(0..40) == 0).then(|| rng.i64(0..SECOND)),
        horizon: if rng.bool() { 250_000 } else { 0 },
        insist: !calm && rng.u8(0..8) == 0,
        logs,
    }
}

/// Applies a step, and says all that was answered.
fn apply(desk: &mut Desk<'_>, step: &Step<'_>, last: u64) -> (Vec<i64>, String, bool) {
    desk.sender = step.sender;
    desk.number = last.saturating_add_signed(step.on).max(1);
    desk.previous = last.saturating_sub(step.knows);
    (desk.horizon, desk.insist) = (step.horizon, step.insist);
    let now = desk.now.unwrap_or_default() + step.by;
    desk.now = Some(now);
    if let Some(wait) = step.pause {
        desk.pause(None, wait);
    }
    let runs: Vec<Run<'_>> = step.runs.iter().map(|(callers, wait, units)| (*callers, *wait, &**units)).collect();
    let back: Vec<Slot<'_>> = step.back.iter().map(|(ago, units)| (now - ago, &**units)).collect();
    let reply = desk.try_ask(&step.logs, &back, &runs);
    if let Reply::Error(words) = reply {
        return (Vec::new(), words, false);
    }
    let callers = runs.iter().map(|run| i64::from(run.0)).sum();
    let answer = desk.answer(&reply, scopes(&step.logs).len(), callers);
    (answer, format!("{:?}", desk.said), matches!(reply, Reply::Int(_)))
}

#[test]
fn the_first_look_answers_and_writes_as_the_rest_of_the_script_does() {
    let servers = [must(RedisServer::start()), must(RedisServer::start())];
    let (mut glances, mut refused, mut all) = (0, 0, 0);
    for seed in 0..40 {
        let (mut rng, name) = (Rng::with_seed(seed), format!("random-{seed}"));
        let mut desks = servers.each_ref().map(|server| Desk::new(server, &name, Some(NOW)));
        desks[1].looks_first = false;
        // Of each sender, the last message that is remembered.
        let mut last: [(u64, Option<Step<'_>>); 4] = [const { (1_000, None) }; 4];
        for turn in 0..120 {
            let mut step = step(&mut rng, seed % 4 > 0);
            let (number, before) = &mut last[usize::try_from(step.sender).unwrap_or(0)];
            if let Some(before) = before.clone().filter(|_| step.on == 0) {
                step = Step { on: 0, by: step.by, ..before };
            }
            let [one, other] = desks.each_mut().map(|desk| apply(desk, &step, *number));
            assert_eq!((&one.0, &one.1), (&other.0, &other.1), "seed {seed}, turn {turn}");
            assert!(!other.2, "it was left out");
            if one.1.contains("remembered: true") {
                (*number, *before) = (desks[0].number, Some(step));
            }
            (glances, refused, all) = (glances + u32::from(one.2), refused + u32::from(one.0.is_empty()), all + 1);
        }
        // Of the contents alone: under a test's clock keys expire at their own times.
        let [one, other] = desks.each_mut().map(|desk| {
            keyspace(&mut desk.client).into_iter().map(|(key, (content, _))| (key, content)).collect::<BTreeMap<_, _>>()
        });
        let differing: Vec<_> = one.keys().filter(|key| one.get(*key) != other.get(*key)).collect();
        assert!(differing.is_empty() && one.len() == other.len(), "seed {seed}: {differing:?}");
        for server in &servers {
            must(server.command(&["FLUSHALL"]));
        }
    }
    assert!(glances > all / 8 && refused > all / 50, "{glances} of {all}, {refused} outdated or of another sender");
}
