use outgate::ledger::{Cause, PauseUsage, Stamp};
use outgate::processes::{Presence, ProcessSeen, Processes};
use outgate::store::{StoreError, StoreErrorKind, UpstreamFound};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::seen::Known;

fn limit(text: &str, used: u64, quota: u64) -> LimitSeen {
    LimitSeen {
        text: text.into(),
        scope: None,
        used,
        booked: 0,
        quota,
        outside: 0,
        next: (used >= quota).then_some(Duration::from_millis(12)),
        paused: None,
        rate: 1_000_000,
        slower: None,
    }
}

fn seen(name: &str, callers: u32, calls: u64, limits: Vec<LimitSeen>) -> Seen {
    let at = Stamp::from_micros(1_000_000);
    let mut presence = Presence::default();
    (presence.callers, presence.oldest) = (callers, Duration::from_secs(8));
    let processes = Processes::new(at, vec![ProcessSeen::new(1, at, presence)], Vec::new());
    let found = UpstreamFound::new(name, name);
    let known = Known { found, processes, description: None, others: 0, scopes: Vec::new() };
    Seen { known, paused: None, rate: 1_000_000, slower: None, limits, calls }
}

fn look(screen: &mut Screen, all: Vec<Seen>) {
    screen.take(Ok(all.into_iter().map(Ok).collect()));
}

fn lines(screen: &Screen) -> Vec<String> {
    lines_of(screen, 100, 12)
}

fn lines_of(screen: &Screen, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..rows).map(row).collect()
}

/// By a program, or by hand.
fn pause_of(seconds: u64) -> PauseUsage {
    let left = Duration::from_secs(seconds);
    PauseUsage::new(left, left, Duration::ZERO, Cause::Refusal, None)
}

#[test]
fn the_screen_shows_a_bar_for_each_limit_calls_per_second_pauses_and_who_waits() {
    let mut screen = Screen::default();
    let booked = || LimitSeen { booked: 7, ..limit("100/s burst 20", 100, 100) };
    let limits = || vec![booked(), limit("5000/h", 2_500, 5_000)];
    for calls in [1, 4, 8] {
        let mut stripe = seen("stripe", 0, 0, vec![limit("25/s", 0, 25)]);
        let left = Duration::from_secs(298);
        stripe.paused = Some(PauseUsage::new(left, left, Duration::ZERO, Cause::Refusal, Some(429)));
        stripe.rate = 500_000;
        look(&mut screen, vec![seen("github", 12, calls, limits()), stripe]);
    }
    let lines = lines(&screen);
    assert!(lines[0].starts_with(" github: 1 process, 12 callers wait, the first for 8s ─"), "{lines:#?}");
    assert!(lines[1].starts_with("8 calls/s         ▁▄█"), "{lines:#?}");
    assert!(lines[2].starts_with("100% ─") && lines[2].contains("100/s burst 20"), "{lines:#?}");
    assert!(lines[2].ends_with("100 of 100, 7 booked, next in 12ms"), "{lines:#?}");
    assert!(lines[3].starts_with("50% ─") || lines[3].starts_with(" 50% ─"), "{lines:#?}");
    assert!(lines[4].starts_with(" stripe: 1 process, nobody waits ─"), "{lines:#?}");
    assert_eq!(lines[5], "paused for 4m 58s: a refusal (429)");
    assert_eq!(lines[6], "slowed down to 50%");
    assert!(lines[8].ends_with("0 of 25"), "{lines:#?}");
    assert_eq!(lines[11], "q: leave");
}

#[test]
fn what_was_seen_last_stays_while_nothing_can_be_seen() {
    let mut screen = Screen::default();
    look(&mut screen, vec![seen("github", 0, 5, Vec::new())]);
    screen.take(Err("the store cannot be connected to".into()));
    let lines = lines(&screen);
    assert!(lines[0].starts_with(" github: 1 process, nobody waits"), "{lines:#?}");
    assert_eq!(lines[11], "the store cannot be connected to");
    screen.take(Ok(Vec::new()));
    assert_eq!(self::lines(&screen)[0], "nobody has used an upstream lately");
}

#[test]
fn an_upstream_that_cannot_be_read_stands_among_the_others() {
    let mut screen = Screen::default();
    let error = StoreError::new(StoreErrorKind::Refused, "the key holds a string");
    let mail = Unread { found: UpstreamFound::new("mail", "mail"), error };
    let [github, stripe] = ["github", "stripe"].map(|name| seen(name, 0, 5, Vec::new()));
    screen.take(Ok(vec![Ok(github), Err(mail), Ok(stripe)]));
    let lines = lines(&screen);
    let begins = |line: usize, words: &str| assert!(lines[line].starts_with(words), "{lines:#?}");
    begins(0, " github: 1 process, nobody waits ─");
    begins(2, " mail ─");
    assert_eq!(lines[3], "cannot be read: the key holds a string");
    begins(4, " stripe: 1 process, nobody waits ─");
    assert_eq!(lines[11], "q: leave");
}

#[test]
fn calls_are_kept_for_as_long_as_they_are_shown() {
    let mut screen = Screen::default();
    for calls in 0..500 {
        look(&mut screen, vec![seen("github", 0, calls, Vec::new())]);
    }
    assert_eq!(screen.calls["github"].len(), SHOWN);
    assert_eq!(screen.calls["github"].back(), Some(&499));
}

#[test]
fn what_does_not_fit_is_counted_and_who_is_paused_or_waits_is_shown_first() {
    let mut screen = Screen::default();
    let some = |count| (0..count).map(|at| seen(&format!("up-{at}"), 0, 0, vec![limit("25/s", 1, 25)])).collect();
    look(&mut screen, some(6));
    assert_eq!(lines_of(&screen, 80, 19)[18], "q: leave", "all fit");
    let mut all: Vec<Seen> = some(22);
    all[20].paused = Some(pause_of(90));
    all[21].known.processes = seen("up-21", 3, 0, Vec::new()).known.processes;
    look(&mut screen, all);
    let lines = lines_of(&screen, 80, 24);
    let heads: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix(" up-")?.split(':').next()).collect();
    assert_eq!(heads, ["20", "21", "0", "1", "2", "3", "4"], "{lines:#?}");
    assert_eq!(lines[1], "paused for 1m 30s: by a program, or by hand");
    assert_eq!(lines.iter().filter(|line| line.ends_with("1 of 25")).count(), 7, "{lines:#?}");
    assert_eq!(lines[23], "... and 15 more: watch NAME; q: leave");
    screen.take(Err("the store cannot be connected to".into()));
    assert_eq!(lines_of(&screen, 80, 24)[23], "... and 15 more: watch NAME; the store cannot be connected to");
}

#[test]
fn of_one_that_is_too_tall_the_pause_and_the_first_limits_are_shown() {
    let mut screen = Screen::default();
    let mut github = seen("github", 0, 0, (0..30).map(|used| limit("25/s", used, 25)).collect());
    github.paused = Some(pause_of(90));
    look(&mut screen, vec![seen("a", 0, 0, Vec::new()), github]);
    let lines = lines(&screen);
    assert!(lines[0].starts_with(" github: 1 process, nobody waits ─"), "{lines:#?}");
    assert_eq!(lines[1], "paused for 1m 30s: by a program, or by hand");
    assert!(lines[3].ends_with("0 of 25") && lines[10].ends_with("7 of 25"), "{lines:#?}");
    assert_eq!(lines[11], "... and 1 more: watch NAME; q: leave");
}
