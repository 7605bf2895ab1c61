//! All that can happen to a few processes before a store, within small bounds: what is said comes late, twice or never, callers give
//! up, and law 1 holds in every state. The store is the ledger itself.

mod process;
mod rules;
mod search;
mod world;

use self::rules::{Flaw, Rules};
use self::search::{Explored, Law, explore};
use self::world::World;

/// Calls in any window.
const QUOTA: u32 = 2;
/// Ticks of a window, of a guard, and of both.
const WINDOW: i64 = 1;
const GUARD: i64 = 1;
const SPAN: i64 = WINDOW + GUARD;
/// How many ticks ahead slots are booked.
const HORIZON: i64 = 1;
/// How late a slot may be used. The guard pays for it.
const LATE: i64 = GUARD;

const RULES: Rules = Rules {
    processes: 2,
    messages: 2,
    callers: 2,
    copies: 1,
    ticks: 3,
    wipes: 0,
    all_remember: false,
    splits: 0,
    flaw: None,
};

/// How many quotas a window may hold in which a store lost its memory, or two of them were believed: those of before and those of after.
const QUOTAS_BESIDE_LOSS: usize = 2;

/// No window of the upstream holds more than the quota.
fn law_1(world: &World) -> Result<(), String> {
    holds(world, 1)
}

fn law_beside_loss(world: &World) -> Result<(), String> {
    holds(world, QUOTAS_BESIDE_LOSS)
}

fn holds(world: &World, quotas: usize) -> Result<(), String> {
    let calls = world.fullest_window();
    if calls <= QUOTA as usize * quotas { Ok(()) } else { Err(format!("{calls} calls in a window")) }
}

/// No slot is lost, and nobody has one that is not booked.
fn booked_is_granted(world: &World) -> Result<(), String> {
    let [booked, granted] = world.booked_and_granted();
    if booked == granted { Ok(()) } else { Err(format!("booked {booked:?}, granted {granted:?}")) }
}

#[track_caller]
fn always(rules: Rules, laws: &[Law]) {
    let Explored { states, broken } = explore(&rules, laws);
    println!("{states} states");
    assert!(broken.is_none(), "{rules:?}: {broken:#?}");
    assert!(states > 1_000, "{states} states are not all that can happen");
}

#[track_caller]
fn not_always(rules: Rules, law: Law) {
    let Explored { states, broken } = explore(&rules, &[law]);
    println!("{rules:?}: after {states} states {broken:?}");
    assert!(broken.is_some(), "{rules:?}: not found in {states} states");
}

#[test]
fn whatever_is_late_lost_or_doubled_law_1_holds_and_booked_is_granted() {
    always(RULES, &[law_1, booked_is_granted]);
    always(Rules { copies: 2, ticks: 1, ..RULES }, &[law_1, booked_is_granted]);
    always(Rules { processes: 3, messages: 1, copies: 2, ..RULES }, &[law_1, booked_is_granted]);
}

#[test]
fn the_model_finds_what_breaks_law_1() {
    for flaw in [Flaw::ActsAgain, Flaw::ActsLate, Flaw::NewNumber, Flaw::NoGuard] {
        // A late copy comes after another message.
        let messages = if flaw == Flaw::ActsLate { 3 } else { 2 };
        not_always(Rules { flaw: Some(flaw), messages, ticks: 2, ..RULES }, law_1);
    }
}

#[test]
fn a_process_alone_overruns_nothing_when_its_store_loses_its_memory() {
    always(Rules { processes: 1, messages: 3, wipes: 1, ..RULES }, &[law_1]);
}

/// Whoever asks first says what the store must hold.
#[test]
fn where_each_process_was_granted_something_law_1_outlasts_that_the_store_loses_its_memory() {
    let rules = Rules { wipes: 1, all_remember: true, ..RULES };
    always(Rules { copies: 0, ..rules }, &[law_1]);
    always(Rules { ticks: 2, ..rules }, &[law_1]);
    not_always(Rules { flaw: Some(Flaw::SaysNothing), copies: 0, ..rules }, law_1);
}

/// One that remembers nothing, or less, may ask before those that remember.
#[test]
fn a_window_in_which_the_store_of_several_lost_its_memory_holds_two_quotas_at_most() {
    let rules = Rules { wipes: 1, copies: 0, ticks: 2, ..RULES };
    not_always(rules, law_1);
    always(rules, &[law_beside_loss]);
}

#[test]
fn beside_two_primaries_a_window_holds_two_quotas_at_most() {
    let rules = Rules { splits: 1, copies: 0, ticks: 1, ..RULES };
    not_always(rules, law_1);
    always(rules, &[law_beside_loss]);
}
