use super::*;
use crate::config::reset::Reset;

const SECOND: Duration = Duration::from_secs(1);

fn charges(up: &Upstream) -> Charges {
    Charges::new(up).unwrap()
}

fn of(priority: Priority) -> Call {
    Call::new().priority(priority)
}

/// What calls of each priority are charged.
fn charged(up: &Upstream, call: &Call) -> [Vec<u32>; 3] {
    let all = [Priority::High, Priority::Normal, Priority::Low];
    all.map(|priority| charges(up).of(up, &call.clone().priority(priority)).unwrap().to_vec())
}

/// The logs, each with the quotas of its terms.
fn logs(charges: &Charges) -> Vec<(String, Vec<u32>)> {
    let of = |log: &Log| (log.unit.to_string(), log.terms.iter().map(|term| term.quota).collect());
    charges.logs().iter().map(of).collect()
}

#[test]
fn of_what_is_reserved_there_is_a_log_more_in_which_all_others_are_charged() {
    let up = Upstream::new("up").limit(Limit::per_second(100).burst(20)).limit(Limit::per_hour(5_000));
    let plain = charges(&up);
    let up = up.reserve(Priority::High, 20);
    let all = charges(&up);
    let rest = ("calls-below-high".to_owned(), vec![80, 16, 4_000]);
    assert_eq!(logs(&all), [logs(&plain), vec![rest]].concat());
    assert_eq!(charged(&up, &Call::new()), [[1, 0], [1, 1], [1, 1]]);
    assert_eq!(charged(&up, &Call::new().cost(7)), [[7, 0], [7, 7], [7, 7]]);
    assert_eq!(**all.one(Priority::Normal), [1, 1], "of a normal call");
    assert_eq!(all.limits().collect::<Vec<_>>(), plain.limits().collect::<Vec<_>>(), "shown by their own logs");
    assert_eq!(all.windows_of(&up, 0, |_| None), plain.windows_of(&up, 0, |_| None));
    assert_eq!((all.evidence(), all.windows_of(&up, 1, |_| None).len()), (Some(0), 0));

    let up = up.reserve(Priority::Normal, 50);
    assert_eq!(&*charges(&up).logs()[1].unit, "calls-below-normal", "what is said last holds");
    assert_eq!(charged(&up, &Call::new()), [[1, 0], [1, 0], [1, 1]]);
}

#[test]
fn rests_lie_beside_the_logs_of_their_scopes_in_the_same_entries() {
    let merchant = Scope::header("x-merchant");
    let up = Upstream::new("up")
        .limit(Limit::per_second(10).each(merchant))
        .limit(Limit::per_minute(200_000).of("tokens"))
        .limit(Limit::per_second(1))
        .limit(Limit::in_flight(25))
        .reserve(Priority::High, 20);
    let all = charges(&up);
    let names: Vec<_> = all.places.iter().zip(all.logs().iter()).map(|(of, log)| (of.scope, &*log.unit)).collect();
    let whole = [(0, "tokens-16"), (0, "calls"), (0, "tokens-16-below-high")];
    assert_eq!(names, [&whole[..], &[(1, "calls"), (1, "calls-below-high")]].concat(), "nothing is left of 1 a second");
    let [high, normal, _] = charged(&up, &Call::new().cost_of("tokens", 33));
    assert_eq!((high, normal), (vec![3, 1, 0, 1, 0], vec![3, 1, 3, 1, 1]));
    assert_eq!(all.limits().map(|(log, ..)| log).collect::<Vec<_>>(), [3, 0, 1]);
    assert_eq!(all.evidence(), Some(3), "of the scope that few share");
    let rests: Vec<_> = all.counted(&up).iter().map(|of| (of.unit.to_string(), of.quantum, of.rest_of)).collect();
    assert_eq!(rests[2], ("tokens".to_owned(), 16, Some(0)));
    assert_eq!((rests[0].2, rests[4].2), (None, Some(3)));
}

#[test]
fn a_part_of_more_units_than_there_may_be_calls_is_reserved() {
    let minute = Duration::from_secs(60);
    let window = Limit::per_minute(2_000_000).of("tokens");
    let bucket = Limit::bucket(2_000_000, 1_000, minute).of("tokens");
    // An entry of a bucket that is not whole yet counts as none.
    for (limit, quotas) in [(window, (15_625, 12_500)), (bucket, (15_624, 12_499))] {
        let all = charges(&Upstream::new("up").limit(limit).reserve(Priority::High, 20));
        let [whole, rest] = &all.logs()[..] else { panic!("{:?}", all.logs()) };
        assert_eq!((&*whole.unit, &*rest.unit), ("tokens-128", "tokens-128-below-high"));
        assert_eq!((whole.terms[0].quota, rest.terms[0].quota), quotas);
    }
}

#[test]
fn calendars_and_buckets_leave_calendars_and_buckets() {
    let up = Upstream::new("up")
        .limit(Limit::per_day(1_000).resets(Reset::daily("UTC")))
        .limit(Limit::bucket(40, 2, SECOND));
    let up = up.reserve(Priority::High, 20);
    let all = charges(&up);
    assert_eq!(format!("{:?}", all.calendars(&up)).matches("Placed").count(), 2);
    let rest = &all.logs()[1].terms;
    assert_eq!((rest[0].quota, rest[1].as_bucket().unwrap().interval), (800, 625_000_000));
}

#[test]
fn who_has_less_may_not_cost_more_than_the_rest() {
    let up = Upstream::new("up").limit(Limit::per_second(100)).reserve(Priority::High, 20);
    assert!(charges(&up).of(&up, &of(Priority::High).cost(100)).is_ok());
    let refused = charges(&up).of(&up, &of(Priority::Low).cost(81));
    let Err(Error::CostExceedsQuota { most: 80, limit, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(*limit, Limit::per_second(100));
}

#[test]
fn what_cannot_be_reserved_names_its_field() {
    let up = || Upstream::new("up").limit(Limit::per_second(100));
    let cases = [
        up().reserve(Priority::High, 0),
        up().reserve(Priority::High, 100),
        up().reserve(Priority::Low, 20),
        Upstream::new("up").limit(Limit::per_second(1)).reserve(Priority::High, 20),
        Upstream::new("up").limit(Limit::in_flight(25)).reserve(Priority::High, 20),
    ];
    for up in cases {
        assert_eq!(up.check(0).unwrap_err().field(), "reserve", "{:?}", up.reserve);
    }
    for percent in [1, 99] {
        assert!(up().reserve(Priority::Normal, percent).check(0).is_ok());
    }
}

#[test]
fn who_takes_nothing_of_a_unit_is_told_apart_by_it_and_by_nothing_that_is_reserved() {
    let up = Upstream::new("up").limit(Limit::per_minute(500)).limit(Limit::per_minute(5_000).of("tokens"));
    let up = up.limit(Limit::per_hour(50).of("tokens").each(Scope::header("x-merchant"))).reserve(Priority::High, 20);
    let all = charges(&up);
    let untouched = |call: &Call| all.untouched_by(&all.of(&up, call).unwrap());
    for priority in [Priority::High, Priority::Normal, Priority::Low] {
        let call = of(priority);
        assert_eq!(untouched(&call), 0, "{priority:?}");
        let units = |bits: u16| all.places.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
        for (unit, logs) in [("tokens", 2), ("calls", 1)] {
            let bits = untouched(&call.clone().cost_of(unit, 0));
            let of_unit = |place: &Place| *place.unit == *unit && place.of_rest.is_none();
            assert!(units(bits).all(|(_, place)| of_unit(place)), "{priority:?} {unit}: {bits:b}");
            assert_eq!(bits.count_ones(), logs, "{priority:?} {unit}: {bits:b}");
        }
    }
    let merchant = Call::new().scope_of("x-merchant", "m-17");
    let mut streams: Vec<_> =
        [Scopes::default(), Scopes::only(Some(ScopeId::of(b"m-17"))), all.scopes(&merchant, None)]
            .into_iter()
            .flat_map(|scopes| [0, 1, 2].map(|untouched| Scopes { untouched, ..scopes.clone() }.stream()))
            .collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams.len(), 9);
}

#[test]
fn a_scope_that_no_limit_is_shared_by_is_an_error_that_names_it() {
    let merchant = || Scope::header("x-merchant");
    let up = || Upstream::new("up").scope_by(Scope::bearer_token());
    let each = || up().limit(Limit::per_second(9).each(merchant()));
    let faulty = Upstream::new("up").scope_by(Scope::header("no header")).limit(Limit::per_second(9).each(merchant()));
    let common = up().shares("all", [Limit::per_second(9)]);
    for up in [each(), common, faulty, each().limit(Limit::in_flight(3).each(merchant()))] {
        let error = Charges::new(&up).unwrap_err();
        assert_eq!((error.upstream(), error.field()), ("up", "scope_by"), "{error}");
    }
    for up in [each().limit(Limit::per_hour(9)), each().limit(Limit::in_flight(3)), up().limit(Limit::per_second(9))] {
        assert_eq!(charges(&up).sharers().last().map(Scope::name), Some(up.scope.name()));
    }
}
