use super::*;
use crate::ledger::Term;

const fn at(micros: i64) -> Stamp {
    Stamp::from_micros(micros)
}

fn logs() -> [Log; 2] {
    [Log::new("calls", [Term::new(5, 1_000)]), Log::new("points", [Term::new(5, 3_000)])]
}

fn newest(memory: &mut Memory, known: i64) -> Vec<Stamp> {
    memory.remembered(&logs(), Some(at(known)), Instant::now()).newest
}

#[test]
fn the_newest_start_of_each_log_is_told_that_nobody_handed_back() {
    let mut memory = Memory::of(&logs());
    memory.granted(at(100), 2, &[1, 0], 1);
    memory.granted(at(300), 1, &[0, 2], 1);
    memory.granted(at(200), 1, &[1, 0], 1);
    memory.granted(at(200), 1, &[2, 1], 1);
    assert_eq!(newest(&mut memory, 50), [at(200), at(300)]);
    memory.handed_back(&Slots::new(1, at(300), [0, 1]));
    assert_eq!(newest(&mut memory, 50), [at(200), at(300)], "a unit of it is left");
    memory.handed_back(&Slots::new(1, at(300), [0, 1]));
    memory.handed_back(&Slots::new(3, at(200), [1, 0]));
    memory.handed_back(&Slots::new(1, at(250), [1, 1]));
    assert_eq!(newest(&mut memory, 50), [at(100), at(200)]);
}

#[test]
fn what_counts_no_more_is_not_told() {
    let mut memory = Memory::of(&logs());
    memory.granted(at(100), 1, &[1, 1], 1);
    let beyond = ledger::BEYOND;
    assert_eq!(newest(&mut memory, 1_099 + beyond), [at(100), at(100)], "the log is there for longer than it counts");
    assert_eq!(newest(&mut memory, 1_100 + beyond), [at(0), at(100)]);
    assert_eq!(newest(&mut memory, 3_100 + beyond), []);
    for start in 0..1_000 {
        memory.granted(at(10_000 + start), 1, &[1, 1], 1);
    }
    assert_eq!((memory.starts.len(), memory.units.len()), (MOST, 2 * MOST));
}

const HOUR: i64 = 3_600_000_000;

fn of_an_hour() -> Memory {
    Memory::of(&[Log::new("calls", [Term::new(5_000, HOUR)])])
}

/// What is said again: when each step starts, and its units.
fn again(memory: &Memory) -> Vec<(i64, u32)> {
    let steps = memory.again().map(|again| again.steps).unwrap_or_default();
    steps.iter().map(|step| (step.start.as_micros(), step.charges[0])).collect()
}

#[test]
fn what_counts_for_long_takes_little_room_and_is_said_again_no_earlier_than_it_started() {
    let mut memory = of_an_hour();
    let logs = [Log::new("calls", [Term::new(5_000, HOUR)])];
    for second in 0..7_200 {
        let now = at(second * 1_000_000);
        memory.granted(now, 2, &[1], 1);
        assert_eq!(memory.remembered(&logs, Some(now), Instant::now()).newest, [now]);
    }
    assert_eq!((memory.starts.len(), memory.units.len(), memory.granted_by.len()), (MOST, MOST, MOST));
    assert!(memory.older.len() <= 65, "{}", memory.older.len());
    memory.hear(at(HOUR * 2), 0, 2);
    let steps = again(&memory);
    assert!(steps.len() <= 66, "{}", steps.len());
    let since = |start: i64| steps.iter().filter(|step| step.0 >= start).map(|step| step.1).sum::<u32>();
    for second in (3_600..7_200).step_by(7) {
        assert!(since(second * 1_000_000) >= 2 * u32::try_from(7_200 - second).unwrap(), "{second}");
    }
    let units = since(0);
    assert!(units <= 2 * 3_660, "{units}");
    memory.handed_back(&Slots::new(1, at(4_000_000_000), [1]));
    memory.handed_back(&Slots::new(1, at(7_199_000_000), [1]));
    assert_eq!(again(&memory).iter().map(|step| step.1).sum::<u32>(), units - 2);
}

#[test]
fn what_was_granted_before_a_loss_is_said_until_the_store_has_it() {
    let mut memory = of_an_hour();
    assert_eq!(memory.again(), None);
    memory.granted(at(10), 3, &[1], 1);
    memory.hear(at(50), 0, 2);
    memory.granted(at(60), 1, &[1], 2);
    assert!(memory.has_untold());
    assert_eq!(again(&memory), [(10, 3)], "what it was granted since is there");
    memory.handed_back(&Slots::new(1, at(10), [1]));
    assert_eq!(again(&memory), [(10, 2)]);
    memory.tell_later();
    assert!(!memory.has_untold() && again(&memory).len() == 1, "with the next ask");
    let said = memory.again().unwrap();
    memory.hear(at(70), 0, 4);
    memory.is_told(&said, 4);
    assert_eq!(again(&memory), [(10, 2), (60, 1)], "another loss meanwhile");
    assert_eq!(memory.again().map(|again| (again.heard, again.loss)), Some((at(0), at(70))));
    memory.is_told(&memory.again().unwrap(), 5);
    assert_eq!(memory.again(), Some(Again::new(at(70), at(70), Vec::new())), "it has heard of it");
    memory.hear(at(70), 0, 6);
    assert!(!memory.has_untold());
}

#[test]
fn what_has_survived_is_not_said_again() {
    let sent = Instant::now();
    let after = |survived: u64, idle: u64| {
        let mut memory = of_an_hour();
        for number in 1..=4 {
            memory.granted(at(i64::try_from(number).unwrap()), 1, &[1], number);
            let sent = sent + Duration::from_secs(if number > 2 { idle } else { 0 });
            memory.is_remembered(number, at(0), Duration::ZERO, sent);
        }
        memory.hear(at(9), survived, 5);
        again(&memory).iter().map(|step| step.0).collect::<Vec<_>>()
    };
    assert_eq!(after(0, 0), [1, 2, 3, 4]);
    assert_eq!(after(3, 0), [4]);
    assert!(after(4, 0).is_empty());
    assert_eq!(after(4, 61), [1, 2], "by then the store may have forgotten the second, or lost it");
}

#[test]
fn what_counts_for_short_is_not_said_again() {
    let mut memory = Memory::of(&logs());
    memory.granted(at(10), 3, &[1, 1], 1);
    memory.hear(at(50), 0, 2);
    assert!(!memory.has_untold() && memory.granted_by.is_empty());
    assert_eq!(memory.again(), Some(Again::new(at(50), at(50), Vec::new())));
}

#[test]
fn a_message_is_told_for_as_long_as_the_store_must_remember_it() {
    let (mut memory, sent) = (Memory::of(&logs()), Instant::now());
    let number = |memory: &mut Memory, after: Duration| {
        let told = memory.remembered(&logs(), None, sent + after);
        (told.number, told.told)
    };
    assert_eq!(number(&mut memory, Duration::ZERO), (0, at(0)));
    memory.is_remembered(7, at(500), Duration::ZERO, sent);
    let until = Duration::from_millis(3) + BEYOND;
    assert_eq!(number(&mut memory, BEYOND), (7, at(500)));
    assert_eq!(number(&mut memory, until), (0, at(0)));
    memory.is_remembered(8, at(600), Duration::from_secs(9), sent);
    assert_eq!(number(&mut memory, Duration::from_secs(13)), (8, at(600)));
    memory.rename();
    assert_eq!(number(&mut memory, Duration::from_secs(13)), (0, at(600)), "what it was granted by then is still held");
}

#[test]
fn what_was_granted_under_another_name_is_said_again_after_a_loss() {
    let (mut memory, sent) = (of_an_hour(), Instant::now());
    for number in 1..=2 {
        memory.granted(at(i64::try_from(number).unwrap()), 1, &[1], number);
        memory.is_remembered(number, at(0), Duration::ZERO, sent);
    }
    memory.rename();
    memory.is_remembered(3, at(0), Duration::ZERO, sent);
    memory.hear(at(9), 3, 4);
    assert_eq!(again(&memory), [(1, 1), (2, 1)], "of its messages under that name none is known to be there");
}

#[test]
fn what_is_taken_over_is_told_for_as_long_as_it_counted_and_hides_no_start_that_counts_for_longer() {
    let seconds = [Log::new("calls", [Term::new(5, 20_000_000)])];
    let hours = [Log::new("calls", [Term::new(5_000, HOUR)])];
    let told = |memory: &mut Memory, known: i64| memory.remembered(&hours, Some(at(known)), Instant::now()).newest;
    let (mut before, mut memory) = (Memory::of(&seconds), of_an_hour());
    memory.granted(at(500), 1, &[1], 1);
    before.granted(at(1_000), 1, &[1], 1);
    memory.take_over(&mut before, &seconds, &hours);
    assert_eq!(told(&mut memory, 20_000_000), [at(1_000)]);
    assert_eq!(told(&mut memory, 20_001_000), [at(500)], "its own");
    let mut next = of_an_hour();
    next.take_over(&mut memory, &hours, &hours);
    assert_eq!(told(&mut next, 20_001_000), [at(500)]);
    next.handed_back(&Slots::new(1, at(500), [1]));
    assert_eq!(told(&mut next, 20_000_000), [at(1_000)]);
    assert_eq!(told(&mut next, 20_001_000), [Stamp::NEVER]);
    // Another of its own starts then as well.
    next.granted(at(1_000), 1, &[1], 2);
    assert_eq!(told(&mut next, HOUR), [at(1_000)]);
    assert_eq!(told(&mut next, HOUR + 1_000), []);
}

#[test]
fn what_is_taken_over_of_many_calls_leaves_room_for_what_counts_for_longer() {
    let seconds = [Log::new("calls", [Term::new(5, 20_000_000)])];
    let hours = [Log::new("calls", [Term::new(5_000, HOUR)])];
    let mut memory = of_an_hour();
    memory.granted(at(500), 1, &[1], 1);
    for start in 0..512 {
        let mut before = Memory::of(&seconds);
        before.granted(at(1_000 + start), 1, &[1], 1);
        memory.take_over(&mut before, &seconds, &hours);
    }
    assert_eq!(memory.starts.len(), MOST);
    let newest = memory.remembered(&hours, Some(at(30_000_000)), Instant::now()).newest;
    assert_eq!(newest, [at(500)]);
}
