use super::*;

const MS: i64 = 1_000;
const FINE: Duration = Duration::from_millis(12);
const TOLERATED: Duration = Duration::from_millis(25);
/// The store's clock less the own, at first.
const OFFSET: i64 = 1_795_170_949_790_213;

struct Process {
    bounds: Bounds,
    epoch: Instant,
    now: i64,
    /// The store's clock less the own.
    offset: i64,
}

impl Process {
    fn new() -> Self {
        let epoch = Instant::now();
        Self { bounds: Bounds::since(epoch), epoch, now: 0, offset: OFFSET }
    }

    fn own(&self, at: i64) -> Instant {
        self.epoch + Duration::from_micros(at.unsigned_abs())
    }

    /// An exchange whose ways there and back take so long; by how much its stamp is placed too late.
    fn exchange(&mut self, there: i64, back: i64) -> (i64, Placing) {
        let (sent, stamped, arrived) = (self.now, self.now + there, self.now + there + back);
        let exchange = Exchange { sent: self.own(sent), arrived: self.own(arrived) };
        let stamp = Stamp::from_micros(stamped + self.offset);
        let placing = self.bounds.exchanged(exchange, stamp, FINE).expect("no leap");
        let placed = micros(placing.place(stamp).saturating_duration_since(self.epoch));
        self.now = arrived;
        (placed - stamped, placing)
    }

    fn ahead(&self) -> i64 {
        micros(self.bounds.ahead(TOLERATED, self.own(self.now)))
    }
}

#[test]
fn one_quick_exchange_places_all_later_stamps() {
    let mut process = Process::new();
    let (late, placing) = process.exchange(100, 300);
    assert_eq!((late, placing.excess, process.bounds.is_vague(FINE)), (100, Duration::from_micros(200), false));
    for back in [40, 300, 5, 200, 0].map(|ms| ms * MS) {
        process.now += 50 * MS;
        let (late, placing) = process.exchange(150, back);
        assert!(late.abs() <= 500, "{late}");
        assert!(placing.excess <= Duration::from_micros(500), "{:?}", placing.excess);
    }
}

#[test]
fn a_first_exchange_that_is_slow_places_late_and_says_by_how_much() {
    let mut process = Process::new();
    let (late, placing) = process.exchange(900 * MS, 100);
    assert_eq!((late, placing.excess), (100, Duration::from_micros(900_100)), "at the latest that it may be");
    assert!(process.bounds.is_vague(FINE));
    let (late, placing) = process.exchange(100, 100);
    assert_eq!((late, placing.excess), (0, Duration::from_micros(100)));
    assert!(!process.bounds.is_vague(FINE));
}

#[test]
fn a_delay_on_one_way_costs_half_of_itself() {
    let mut process = Process::new();
    for _ in 0..4 {
        process.exchange(0, 80 * MS);
    }
    let (late, placing) = process.exchange(0, 80 * MS);
    assert!((40 * MS..41 * MS).contains(&late), "{late}");
    assert_eq!(placing.excess, 2 * FINE * 3 / 4, "which leaves little time to be late");
    let mut process = Process::new();
    for _ in 0..4 {
        process.exchange(40 * MS, 40 * MS);
    }
    assert!(process.exchange(40 * MS, 40 * MS).0.abs() < MS);
}

/// How many exchanges place slots whose replies are held up so long, in milliseconds, and how late the last placed its stamp.
fn measured(backs: impl IntoIterator<Item = i64>) -> (usize, i64) {
    let mut process = Process::new();
    for (count, back) in (1..).zip(backs) {
        let (late, _) = process.exchange(0, back * MS);
        if !process.bounds.is_vague(FINE) {
            return (count, late / MS);
        }
    }
    panic!("no number of exchanges is enough");
}

#[test]
fn where_round_trips_vary_more_of_them_are_measured() {
    assert_eq!(measured([300, 301, 299, 302]), (4, 149), "no other is quicker");
    assert_eq!(measured([300, 301, 299, 310, 300]), (5, 149));
    assert_eq!(measured([900, 300, 301, 299, 302]), (5, 149), "the first had to connect");
    assert_eq!(measured([800, 180, 170, 190, 9]), (5, 4), "none of the others is quick beside that");
    assert_eq!(measured([28, 24, 21, 27]), (4, 10), "wrong by no more than a slot may be late");
    assert_eq!(measured([151, 150, 155, 162, 129, 80, 9]), (7, 4), "some are as long by chance");
    assert_eq!(measured([180, 150, 170, 165, 20, 160]), (5, 10), "one of them was hardly held up");
    assert_eq!(measured([180, 150, 170, 165, 140, 9]), (6, 4));
    assert_eq!(measured([130, 40, 170, 165]), (4, 20));
    assert_eq!(measured((0..).map(|nth| 100 + nth % 5 * 20)), (16, 50), "not for ever");
}

#[test]
fn clocks_that_drift_apart_are_followed() {
    for drift in [-1, 1] {
        let mut process = Process::new();
        for second in 0..3_600 {
            // 400 ppm, and a quick exchange now and then.
            process.offset += drift * 400;
            process.now += 1_000 * MS;
            let back = if second % 10 == 0 { 200 } else { 60 * MS };
            let (late, _) = process.exchange(200, back);
            assert!(late.abs() <= 6 * MS, "{drift}: {late} µs late in second {second}");
        }
    }
}

#[test]
fn a_step_back_begins_the_bounds_anew() {
    for step in [-3_600_000 * MS, -200 * MS, -MS] {
        let mut process = Process::new();
        process.exchange(100, 100);
        process.offset += step;
        process.now += 100 * MS;
        let (late, placing) = process.exchange(100, 100);
        assert_eq!((late, placing.excess), (0, Duration::from_micros(100)), "{step}");
    }
}

#[test]
fn a_leap_ahead_is_not_believed_for_a_second_and_told_meanwhile() {
    let mut process = Process::new();
    process.exchange(100, 100);
    let before = process.offset;
    process.offset += 10_000 * MS;
    for (after, believed) in [(100, false), (500, false), (1_099, false), (1_100, true)] {
        let now = process.own(after * MS);
        let stamp = Stamp::from_micros(after * MS + process.offset);
        let placing = process.bounds.exchanged(Exchange { sent: now, arrived: now }, stamp, FINE);
        assert_eq!(placing.is_some(), believed, "{after}");
        let told = process.bounds.latest_before_leap(now).map(|latest| latest.as_micros() - after * MS - before);
        assert!(if believed { told.is_none() } else { told.is_some_and(|over| (0..MS).contains(&over)) }, "{told:?}");
    }
    let mut process = Process::new();
    process.exchange(100, 100);
    process.offset += 10_000 * MS;
    let now = process.own(MS);
    let stamp = Stamp::from_micros(MS + process.offset);
    assert!(process.bounds.exchanged(Exchange { sent: now, arrived: now }, stamp, FINE).is_none());
    process.offset -= 10_000 * MS;
    assert!(process.exchange(100, 100).0.abs() <= 100, "the store was told, and has corrected it");
    assert_eq!(process.bounds.latest_before_leap(now), None);
}

#[test]
fn starts_move_slowly_towards_earlier_and_at_once_towards_later() {
    let mut process = Process::new();
    for _ in 0..4 {
        process.exchange(0, 200 * MS);
    }
    assert!(process.exchange(0, 100).0 > 99 * MS, "what was sent just before was as late");
    for ms in [80, 60, 40, 20, 0] {
        process.now += 1_000 * MS;
        assert_eq!((process.exchange(0, 100).0 + MS / 2) / MS, ms);
    }
    let mut process = Process::new();
    for _ in 0..4 {
        process.exchange(200 * MS, 0);
    }
    let (late, _) = process.exchange(0, 100);
    assert!((0..MS).contains(&late), "{late}");
}

#[test]
fn slots_are_asked_for_as_far_ahead_as_replies_take() {
    let mut process = Process::new();
    process.exchange(100, 100);
    assert_eq!(process.ahead(), 0);
    process.exchange(100, 300 * MS);
    assert_eq!(process.ahead() / MS, 293, "what the last took, less a quarter of what may be late");
    process.exchange(100, 100);
    assert_eq!(process.ahead(), 0, "one slow reply is none that the next is expected to be like");
    for _ in 0..2 {
        process.exchange(100, 60 * MS);
    }
    for _ in 0..14 {
        process.exchange(100, 100);
        assert_eq!(process.ahead() / MS, 53, "but two are");
    }
    process.exchange(100, 100);
    assert_eq!(process.ahead(), 0);
    for _ in 0..2 {
        process.exchange(100, 60 * MS);
    }
    process.exchange(100, 100);
    process.now += 11_000 * MS;
    assert_eq!(process.ahead(), 0, "and not for ever");
}
