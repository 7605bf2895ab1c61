//! Random histories: with the first look and without it the script answers and writes alike.

use std::collections::BTreeMap;

use fastrand::Rng;
use outgate::testing::{RedisServer, Reply};

use crate::desk::{Slot, scopes};
use crate::first_look::glance;
use crate::keyspace::keyspace;
use crate::{Desk, Log, NOW, Run, SECOND, must};

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
    below_normal: i64,
    weight: i64,
}

const LOGS: [Log<'static>; 7] = [
    ("calls", &[(40, SECOND)]),
    ("points", &[(300, SECOND), (900, 9 * SECOND)]),
    ("5f/calls", &[(9, SECOND), (3, 50_000)]),
    ("5f/points", &[(2_000, 3 * SECOND)]),
    ("77/calls", &[(1, 20_000)]),
    ("88/calls", &[(200, 12 * SECOND)]),
    ("99/calls", &[(2, SECOND)]),
];

/// What a history is like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Nobody waits, so that there is no state of anything but of a log that counts for long.
    Calm,
    /// Callers of one scope at a time wait.
    Full,
    /// Many of one unit each do.
    Crowded,
    /// They wait, claim, and are paused, everywhere.
    Wild,
}

fn step(rng: &mut Rng, manner: Manner) -> Step<'static> {
    let (calm, wild, crowded) = (manner == Manner::Calm, manner == Manner::Wild, manner == Manner::Crowded);
    let is_of_one = manner == Manner::Full || crowded;
    let among = if is_of_one { [0..2, 2..4, 5..6, 6..7][rng.usize(0..4)].clone() } else { 0..LOGS.len() };
    let logs: Vec<Log<'_>> = LOGS[among.clone()].iter().copied().filter(|_| rng.u8(0..3) > 0).collect();
    let logs = if logs.is_empty() { vec![LOGS[among.start]] } else { logs };
    let units = |rng: &mut Rng| -> Vec<u32> {
        let of = |(_, terms): &Log<'_>| {
            let most = terms.iter().map(|term| term.0).min().unwrap_or(1);
            let at_most = if crowded { 1 } else { most.min(1 << rng.u8(0..12)) };
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
        let wait = (!crowded && rng.bool()).then(|| rng.i64(0..SECOND));
        (callers, if calm { Some(0) } else { wait }, units(rng))
    };
    let runs = (0..count).map(|_| run()).collect();
    let back = (rng.u8(0..9) == 0).then(|| (rng.i64(0..SECOND), units(rng)));
    Step {
        by: if rng.bool() || crowded {
            rng.i64(0..[9_000, 90_000][usize::from(crowded)])
        } else {
            rng.i64(0..2 * SECOND)
        },
        sender: rng.u64(1..if crowded { 13 } else { 4 }),
        on: if rng.u8(0..8) == 0 { rng.i64(-2..1) } else { rng.i64(1..9) },
        knows: rng.u64(0..8).saturating_sub(6),
        runs,
        back,
        pause: (wild && rng.u8(0..40) == 0).then(|| rng.i64(0..SECOND)),
        horizon: if rng.bool() || crowded { 250_000 } else { 0 },
        insist: wild && rng.u8(0..8) == 0,
        below_normal: if crowded { 0 } else { [-1, 0, 0, 1][rng.usize(0..4)] },
        weight: if crowded { 1 } else { [1, 1, 4][rng.usize(0..3)] },
        logs,
    }
}

/// Applies a step, and says all that was answered.
fn apply(desk: &mut Desk<'_>, step: &Step<'_>, last: u64) -> (Vec<i64>, String, bool) {
    desk.sender = step.sender;
    desk.number = last.saturating_add_signed(step.on).max(1);
    desk.previous = last.saturating_sub(step.knows);
    (desk.horizon, desk.insist) = (step.horizon, step.insist);
    (desk.below_normal, desk.weight) = (step.below_normal, step.weight);
    let now = desk.now.unwrap_or_default() + step.by;
    desk.now = Some(now);
    if let Some(wait) = step.pause {
        desk.pause(None, wait);
    }
    let runs: Vec<Run<'_>> = step.runs.iter().map(|(callers, wait, units)| (*callers, *wait, &**units)).collect();
    let back: Vec<Slot<'_>> = step.back.iter().map(|(ago, units)| (now - ago, &**units)).collect();
    let first = if desk.looks_first { glance(desk, &step.logs, &back, &runs) } else { Reply::Nil };
    let at_a_glance = first != Reply::Nil;
    let reply = if at_a_glance { first } else { desk.try_ask(&step.logs, &back, &runs) };
    if let Reply::Error(words) = reply {
        return (Vec::new(), words, false);
    }
    let callers = runs.iter().map(|run| i64::from(run.0)).sum();
    let answer = desk.answer(&reply, scopes(&step.logs).len(), callers);
    (answer, format!("{:?}", desk.said), at_a_glance)
}

#[test]
fn the_first_look_answers_and_writes_as_the_rest_of_the_script_does() {
    let servers = [must(RedisServer::start()), must(RedisServer::start())];
    let (mut granted, mut put_off, mut counted, mut some, mut refused, mut all) = (0, 0, 0, 0, 0, 0);
    for seed in 0..50_usize {
        let (mut rng, name) = (Rng::with_seed(seed as u64), format!("random-{seed}"));
        let mut desks = servers.each_ref().map(|server| Desk::new(server, &name, Some(NOW)));
        desks[1].looks_first = false;
        // Of each sender, the last message that is remembered.
        let mut last: [(u64, Option<Step<'_>>); 13] = [const { (1_000, None) }; 13];
        let mut asked: [Option<Step<'_>>; 13] = [const { None }; 13];
        for turn in 0..120 {
            // The clock is set back by more than half the time that has passed, or is behind from the beginning.
            if (seed / 5 % 3, turn) == (1, 0) || (seed / 5 % 3, turn) == (2, 60) {
                for desk in &mut desks {
                    let now = desk.now.unwrap_or_default();
                    (desk.known, desk.now) = (now + SECOND / 3, Some(now - 20 * SECOND));
                }
            }
            let mut step =
                step(&mut rng, [Manner::Wild, Manner::Full, Manner::Full, Manner::Calm, Manner::Crowded][seed % 5]);
            let of = usize::try_from(step.sender).unwrap_or(0);
            let (number, before) = &mut last[of];
            if let Some(before) = before.clone().filter(|_| step.on == 0) {
                step = Step { on: 0, by: step.by, ..before };
            } else if let Some(before) = asked[of].clone().filter(|_| step.on > 4) {
                step = Step { on: step.on, by: step.by / 64, back: None, insist: false, ..before };
            }
            asked[of] = Some(step.clone());
            let [one, other] = desks.each_mut().map(|desk| apply(desk, &step, *number));
            assert_eq!((&one.0, &one.1), (&other.0, &other.1), "seed {seed}, turn {turn}");
            assert!(!other.2, "it was left out");
            if one.1.contains("remembered: true") {
                (*number, *before) = (desks[0].number, Some(step));
            }
            let waits = one.2 && one.0.len() == 2;
            counted += u32::from(waits && one.1.contains("remembered: true"));
            // Time, next, and of each answer its kind, its start and its callers.
            let is_of_some = one.0.len() > 5
                || one.0.get(1).is_some_and(|&next| next > 0)
                || one.0.get(3).is_some_and(|&start| start > 0);
            some += u32::from(one.2 && !waits && is_of_some);
            (granted, put_off) = (granted + u32::from(one.2 && !waits), put_off + u32::from(waits));
            (refused, all) = (refused + u32::from(one.0.is_empty()), all + 1);
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
    let counts = format!(
        "of {all} {granted}, {some} of them in part or ahead, and {put_off} at a glance, {counted} of those counted anew, {refused} outdated or of another sender"
    );
    assert!(counted > all / 100, "{counts}");
    assert!(granted > all / 8 && some > all / 100 && put_off > all / 50 && refused > all / 50, "{counts}");
}
