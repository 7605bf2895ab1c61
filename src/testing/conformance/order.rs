//! The laws of order: who comes first, and that asking together is asking one by one.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Subject;
use super::desk::{Desk, EPOCH, Granting, at, granted, log};
use super::law::Law;
use crate::ledger::{Answer, Log, Priority, Run, Stamp, Term};
use crate::store::clock::ManualClock;

const CASES: u64 = 200;

/// Slots are given in the order asked.
///
/// No start lies before one granted earlier, whoever asked; nobody overtakes a caller of equal charges of his own process that
/// waits, and nobody delays one that waits there, nor one of another process that insists. What lies further ahead is left to callers of
/// higher priority, whosever they are.
pub async fn law_2(subject: &dyn Subject) {
    let law = Law::new(2, "slots are given in the order asked");
    for seed in 0..CASES {
        starts_never_go_back(law, subject, seed).await;
    }

    subject.clock().set(at(0));
    nobody_delays_a_caller_of_its_process(law, subject).await;
    subject.clock().set(at(0));
    nobody_delays_a_caller_that_insists(law, subject).await;
    subject.clock().set(at(0));
    who_delays_nobody_is_served_however_much_is_claimed(law, subject).await;
    for beside in [false, true] {
        subject.clock().set(at(0));
        what_lies_further_ahead_is_left_to_higher_ones(law, subject, beside).await;
    }
}

async fn nobody_delays_a_caller_of_its_process(law: Law, subject: &dyn Subject) {
    let mut desk = Desk::new(law, subject.store(), [log("calls", 4, 1_000_000)]);
    desk.book(1, Run::new(1, [2])).await;
    subject.clock().set(at(400_000));
    desk.book(1, Run::new(1, [1])).await;
    let ask = desk.ask(1, vec![Run::new(1, [3]), Run::new(1, [2]), Run::new(1, [1])]);
    let waits = Granting::new(at(400_000), vec![], at(1_000_000));
    law.equal(&desk.send(&ask).await, &waits, "a small caller behind a large one of its process does not delay it");
    let ask = desk.ask(1, vec![Run::new(1, [2]), Run::new(2, [1])]);
    let beside = vec![Answer::waiting(1, at(1_000_000)), granted(1, at(400_000))];
    let beside = Granting::new(at(400_000), beside, at(1_000_000));
    law.equal(&desk.send(&ask).await, &beside, "but goes into what it leaves");
}

async fn nobody_delays_a_caller_that_insists(law: Law, subject: &dyn Subject) {
    let mut desk = Desk::new(law, subject.store(), [log("calls", 4, 1_000_000)]);
    desk.book(1, Run::new(1, [2])).await;
    let large = desk.asking(1, vec![Run::new(1, [3])], |ask| ask.insist = true);
    let waits = Granting::new(at(0), vec![], at(1_000_000));
    law.equal(&desk.send(&large).await, &waits, "a large caller waits for most of the quota");
    let grant = desk.book(2, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(0))], "what it leaves goes to others");
    subject.clock().set(at(900_000));
    let grant = desk.book(2, Run::new(1, [2])).await;
    let waits = Granting { contenders: 1, ..Granting::new(at(900_000), vec![], at(2_000_000)) };
    law.equal(&grant, &waits, "nobody delays a caller that insists");
    let large = desk.asking(1, vec![Run::new(1, [3])], |ask| ask.insist = true);
    let grant = desk.send(&large).await;
    law.equal(&grant.answers, &vec![granted(1, at(1_000_000))], "the caller that insists gets its slot");
    let grant = desk.book(2, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(1_000_000))], "what it leaves goes to the other at once");

    let gone = desk.asking(3, vec![Run::new(1, [4])], |ask| ask.insist = true);
    law.equal(&desk.send(&gone).await.next, &at(2_000_000), "another one insists, and is never heard of again");
    subject.clock().set(at(2_249_999));
    let grant = desk.book(2, Run::new(1, [1])).await;
    law.equal(
        &grant,
        &Granting { contenders: 2, ..Granting::new(at(2_249_999), vec![], at(3_249_999)) },
        "it is waited for until it breaks its promise, and who was just served is probably back",
    );
    subject.clock().set(at(2_250_000));
    let grant = desk.book(2, Run::new(1, [1])).await;
    law.equal(&grant.answers, &vec![granted(1, at(2_250_000))], "and no longer");
}

async fn who_delays_nobody_is_served_however_much_is_claimed(law: Law, subject: &dyn Subject) {
    let mut desk = Desk::new(law, subject.store(), [log("tokens", 100_000, 10_000_000)]);
    desk.book(1, Run::new(1, [91_000])).await;
    for sender in 2..10 {
        let large = desk.asking(sender, vec![Run::new(1, [10_000])], |ask| ask.insist = true);
        law.equal(&desk.send(&large).await.answers, &vec![], "a large caller waits");
    }
    let grant = desk.book(10, Run::new(100, [1])).await;
    law.equal(&grant.answers, &vec![granted(100, at(0))], "many small ones go into what those leave");
}

/// Where others wait beside it, a process leaves it to its own higher ones as well as to theirs.
async fn what_lies_further_ahead_is_left_to_higher_ones(law: Law, subject: &dyn Subject, beside: bool) {
    let mut desk = Desk::new(law, subject.store(), [log("calls", 2, 1_000_000)]);
    desk.book(1, Run::new(2, [1])).await;
    if beside {
        desk.book(2, Run::new(1, [1])).await;
    }
    desk.book(1, Run::new(1, [1]).priority(Priority::High)).await;
    subject.clock().set(at(900_000));
    let answers = desk.book(1, Run::new(1, [1])).await.answers;
    let (told, what) = if beside { (Vec::new(), "beside another") } else { (vec![granted(1, at(1_000_000))], "alone") };
    law.equal(&answers, &told, &format!("a caller of a process that has a higher one, {what}"));
}

/// Random asks for some of the logs each. Each log is ordered, also where an ask for several was put off for another's sake.
async fn starts_never_go_back(law: Law, subject: &dyn Subject, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let logs = some_logs(&mut rng);
    let mut desk = Desk::new(law, subject.store(), logs.clone());
    let mut newest = vec![at(0); logs.len()];
    subject.clock().set(at(0));
    for _ in 0..20 {
        let chosen: Vec<usize> = (0..logs.len()).filter(|_| rng.u8(0..3) > 0).collect();
        desk.logs = chosen.iter().map(|&index| logs[index].clone()).collect();
        if chosen.is_empty() {
            continue;
        }
        let runs = (0..rng.usize(1..4)).map(|_| random_run(&mut rng, &desk.logs)).collect();
        desk.horizon = Duration::from_micros(rng.u64(0..900_000));
        let ask = desk.ask(rng.u64(1..4), runs);
        let grant = desk.send(&ask).await;
        for answer in grant.answers.iter().filter(|answer| answer.verdict.is_granted()) {
            for &index in &chosen {
                let what = format!("{answer:?} comes after {:?} in log {index}, seed {seed}", newest[index]);
                law.holds(answer.start >= newest[index], &what);
                newest[index] = answer.start;
            }
        }
        leap(subject.clock(), &mut rng);
    }
}

/// A batch of equal chargess gives what the same asks one by one would.
///
/// The callers of random asks, together at one upstream and alone at its twin: the same callers get the same starts, the first
/// without an answer is told the same time, and both logs hold the same. What a refused caller is told counts those
/// before it in its own ask, so that it is not compared.
pub async fn law_3(subject: &dyn Subject) {
    let law = Law::new(3, "a batch gives what the same asks one by one would");
    for seed in 0..CASES {
        let mut rng = Rng::with_seed(seed);
        let mut together = Desk::new(law, subject.store(), some_logs(&mut rng));
        let mut alone = Desk::new(law, subject.store(), Arc::clone(&together.logs));
        subject.clock().set(at(0));
        for _ in 0..6 {
            let charges = random_run(&mut rng, &together.logs).charges;
            let like = |run: Run| Run { charges: Arc::clone(&charges), ..run };
            let runs: Vec<Run> = (0..rng.usize(1..4)).map(|_| like(random_run(&mut rng, &together.logs))).collect();
            let horizon = Duration::from_micros(rng.u64(0..500_000));
            (together.horizon, alone.horizon) = (horizon, horizon);
            let callers: Vec<Run> =
                runs.iter().flat_map(|run| vec![Run { callers: 1, ..run.clone() }; run.callers as usize]).collect();
            let ask = together.ask(1, runs);
            let batch = together.send(&ask).await;
            let one_by_one = one_by_one(&mut alone, callers).await;
            law.equal(&verdicts(&batch), &one_by_one, &format!("seed {seed}, {ask:?}"));
            law.equal(&together.usage().await, &alone.usage().await, &format!("usage, seed {seed}, {ask:?}"));
            leap(subject.clock(), &mut rng);
        }
    }
}

/// The start of each granted caller, nothing for each that was refused; then when the first that waits may come.
type Verdicts = (Vec<Option<Stamp>>, Option<Stamp>);

fn verdicts(batch: &Granting) -> Verdicts {
    let each = batch.answers.iter().flat_map(|one| vec![start_of(one); one.callers as usize]);
    (each.collect(), Some(batch.next).filter(|&next| next != batch.now))
}

fn start_of(answer: &Answer) -> Option<Stamp> {
    (answer.verdict.is_granted()).then_some(answer.start)
}

async fn one_by_one(desk: &mut Desk<'_>, callers: Vec<Run>) -> Verdicts {
    let mut each = Vec::new();
    for caller in callers {
        let grant = desk.book(1, caller).await;
        match grant.answers.first() {
            Some(one) => each.push(start_of(one)),
            None => return (each, Some(grant.next).filter(|&next| next != grant.now)),
        }
    }
    (each, None)
}

fn some_logs(rng: &mut Rng) -> Vec<Log> {
    let term = |rng: &mut Rng| Term::new(rng.u32(1..30), rng.i64(1_000..800_000));
    (0..rng.usize(1..3)).map(|name| Log::new(format!("log{name}"), vec![term(rng), term(rng)])).collect()
}

/// Callers of the same charges.
fn random_run(rng: &mut Rng, logs: &[Log]) -> Run {
    let charges: Vec<u32> = logs.iter().map(|log| rng.u32(1..6).min(log.largest_charge())).collect();
    let run = Run::new(rng.u32(1..10), charges);
    if rng.u8(0..3) == 0 { run.max_wait(Duration::from_micros(rng.u64(0..300_000))) } else { run }
}

fn leap(clock: &ManualClock, rng: &mut Rng) {
    let now = clock.now().as_micros() - EPOCH;
    clock.set(at(now + rng.i64(0..300_000)));
}
