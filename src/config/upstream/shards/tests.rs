use super::*;
use crate::config::limit::Limit;
use crate::config::scope::Scope;
use crate::{Throttle, ThrottleBuilder};

fn scope(n: u32) -> ScopeId {
    ScopeId::of(&n.to_be_bytes())
}

fn by_token() -> Upstream {
    Upstream::new("up").scope_by(Scope::bearer_token())
}

#[test]
fn shards_are_spread_evenly_over_the_slots_and_keep_their_names() {
    for name in ["crawl", "gateway", "a"] {
        let names = names_of(&name.into(), 512);
        for bits in 0..=9_u32 {
            let mut parts: Vec<u32> =
                names[..1 << bits].iter().map(|name| slot_of(name) >> (SLOT_BITS - bits)).collect();
            parts.sort_unstable();
            assert!(parts.into_iter().eq(0..1 << bits), "{name}: {bits} bits");
        }
    }
    // Nobody's keys may move with a release.
    let crawl: Vec<_> = Upstream::new("crawl").shards(6).ledgers();
    let crawl: Vec<&str> = crawl.iter().map(|name| &**name).collect();
    assert_eq!(crawl, ["crawl", "crawl#1.1", "crawl#2.3", "crawl#3", "crawl#4.43", "crawl#5.4"]);
    assert_eq!(slot_of("github"), 10_239);
}

#[test]
fn a_scope_lies_always_in_the_same_shard_and_each_has_its_part() {
    assert_eq!([1, 2, 3, 8, 100].map(|shards| shard_of(Some(scope(7)), shards)), [0, 0, 0, 3, 49]);
    let mut counts = [0_u32; 12];
    for n in 0..12_000 {
        counts[shard_of(Some(scope(n)), 12)] += 1;
    }
    assert!(counts.iter().all(|count| count.abs_diff(1_000) < 120), "{counts:?}");
    assert_eq!([1, 12, 512].map(|shards| shard_of(None, shards)), [0; 3], "callers without a value");
}

#[test]
fn where_shards_are_added_only_scopes_go_that_go_to_those() {
    let mut moved = 0;
    for n in 0..10_000 {
        let (before, after) = (shard_of(Some(scope(n)), 12), shard_of(Some(scope(n)), 16));
        assert!(before == after || after >= 12, "{n}: from {before} to {after}");
        moved += u32::from(before != after);
    }
    assert!(moved.abs_diff(2_500) < 200, "{moved}");
}

#[test]
fn shards_that_cannot_be_are_a_mistake() {
    let merchant = Limit::per_second(1).each(Scope::header("x-merchant"));
    let limit = || by_token().limit(Limit::per_second(1));
    let cases = [
        (limit().shards(0), "0 is not between 1 and 512"),
        (limit().shards(513), "513 is not between"),
        (Upstream::new("up").limit(Limit::per_second(1)).shards(3), "a limit of the whole upstream"),
        (Upstream::new("up").limit(Limit::per_second(1)).shards(1), "a limit of the whole upstream"),
        (
            Upstream::new("up").limit(Limit::per_second(9).each(Scope::upstream())).shards(3),
            "a limit of the whole upstream",
        ),
        (limit().limit(Limit::per_second(9).each(Scope::upstream())).shards(3), "several scopes"),
        (limit().limit(Limit::in_flight(9).each(Scope::upstream())).shards(3), "several scopes"),
        (limit().limit(merchant).shards(3), "several scopes"),
        (limit().shares("account", [Limit::per_second(9)]).shards(3), "shared as \"account\""),
    ];
    for (upstream, why) in cases {
        let error = Throttle::builder().upstream(upstream).build().unwrap_err();
        assert_eq!((error.upstream(), error.field()), ("up", "shards"));
        assert!(error.to_string().contains(why), "{error}");
    }
    let fine =
        [limit().shards(1), limit().limit(Limit::in_flight(2)).limit(Limit::per_minute(9).of("tokens")).shards(512)];
    for upstream in fine {
        ThrottleBuilder::default().upstream(upstream).build().unwrap();
    }
}
