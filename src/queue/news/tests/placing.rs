//! Places for messages about scopes.

use super::*;
use crate::ledger::ScopeId;

/// Scopes that are refused, each with an errand, in order.
fn refused(desk: &mut Desk, scopes: u32) -> Vec<Errand> {
    refused_in(desk, "up", scopes)
}

fn refused_in(desk: &mut Desk, shard: &str, scopes: u32) -> Vec<Errand> {
    (0..scopes)
        .map(|scope| {
            let whom = Whom::new("up".into(), (0, Some(ScopeId::from_bits(scope.into()))));
            desk.whom = whom.within(&shard.into(), false);
            desk.background(pause(60));
            desk.errand()
        })
        .collect()
}

#[test]
fn places_are_given_in_order_and_who_frees_one_is_the_last() {
    let mut desk = Desk::new();
    let errands = refused(&mut desk, 20);
    let mut claims: Vec<_> = errands.iter().map(|errand| (desk.news.claim_place(errand), errand)).collect();
    // The last come round first.
    let has: Vec<_> =
        claims.iter().rev().map(|(claim, errand)| desk.news.has_place(*claim, errand, desk.now)).collect();
    assert_eq!(has, [[false; 4].as_slice(), &[true; 16]].concat(), "the first have one");
    for freed in 0..40 {
        let (claim, errand) = claims.remove(0);
        desk.news.free_place(claim, errand);
        let next = claims[15].0;
        assert!(desk.news.placed(errand).any(|claim| claim == next), "{freed}: the next is woken");
        let anew = desk.news.claim_place(errand);
        assert!(!desk.news.has_place(anew, errand, desk.now), "{freed}: it is the last now");
        claims.push((anew, errand));
    }
}

#[test]
fn who_does_not_come_round_is_passed_over_until_it_does() {
    let mut desk = Desk::new();
    let errands = refused(&mut desk, 20);
    let claims: Vec<_> = errands.iter().map(|errand| (desk.news.claim_place(errand), errand)).collect();
    for (at, (claim, errand)) in claims.iter().enumerate() {
        assert_eq!(desk.news.has_place(*claim, errand, desk.now), at < 16);
    }
    desk.now += SECOND;
    let comes_round = [3, 16, 17, 18, 19];
    assert!(comes_round.iter().all(|&at| desk.news.goes_on(&errands[at], desk.now)));
    desk.now += SECOND;
    let (claim, errand) = claims[19];
    assert!(desk.news.has_place(claim, errand, desk.now));
    let placed: Vec<_> = desk.news.placed(errand).collect();
    assert_eq!(placed, comes_round.map(|at| claims[at].0));
    // One comes back, and was not replaced.
    let (claim, errand) = claims[5];
    assert!(desk.news.goes_on(errand, desk.now) && desk.news.has_place(claim, errand, desk.now));
}

#[test]
fn who_was_replaced_has_no_place() {
    let mut desk = Desk::new();
    let errands = refused(&mut desk, 17);
    let claims: Vec<_> = errands.iter().map(|errand| (desk.news.claim_place(errand), errand)).collect();
    let has = |desk: &mut Desk, at: usize| desk.news.has_place(claims[at].0, claims[at].1, desk.now);
    assert!((0..16).all(|at| has(&mut desk, at)) && !has(&mut desk, 16));
    desk.handle(Event::Lost(errands[4].clone()));
    assert!(has(&mut desk, 16));
    assert!(!has(&mut desk, 4));
}

#[test]
fn those_of_a_shard_that_is_silent_leave_all_others_their_places() {
    let mut desk = Desk::new();
    let mut claims = Vec::new();
    for shard in ["silent", "other"] {
        let errands = refused_in(&mut desk, shard, 20);
        claims.extend(errands.into_iter().map(|errand| (desk.news.claim_place(&errand), errand)));
    }
    let has: Vec<_> = claims.iter().map(|(claim, errand)| desk.news.has_place(*claim, errand, desk.now)).collect();
    let of_each = [[true; 16].as_slice(), &[false; 4]].concat();
    assert_eq!(has, [of_each.clone(), of_each].concat());
    let (of_one, of_other) = (&claims[0].1, &claims[20].1);
    assert_eq!([of_one, of_other].map(|errand| desk.news.placed(errand).count()), [16, 16]);
    for (claim, errand) in &claims {
        desk.news.free_place(*claim, errand);
    }
    assert_eq!(desk.news.placed(&claims[0].1).count(), 0);
}
