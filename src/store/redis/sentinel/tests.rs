//! How often the Sentinels are asked, in virtual time.

use redis::Client;
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use super::*;
use crate::error::StoreErrorKind;
use crate::ledger::{Ask, Log, Message, MessageId, Run, Term};
use crate::store::redis::address::Address;
use crate::store::redis::wire::Wire;

/// No Sentinel is known, so none names a primary.
fn sentinel() -> Arc<Sentinel> {
    sentinel_of(&[])
}

fn sentinel_of(addresses: &[String]) -> Arc<Sentinel> {
    let at = |address: &str| Client::open(format!("redis://{address}")).unwrap();
    let all = addresses.iter().map(|address| at(address)).collect();
    Arc::new(Sentinel::new("mymaster", all, at("127.0.0.1:1"), "outgate", Duration::from_secs(1)))
}

/// A call that goes on for as long as no primary is found.
async fn call(sentinel: Arc<Sentinel>) {
    let log = Log::new("calls", [Term::new(1, 1_000_000)]);
    let message = Message::new("up", MessageId::new(1, "", 1), Ask::new([log], vec![Run::new(1, [1])]));
    let _ = sentinel.answer(Call::new(&message, Wire::new("outgate", None)), &mut None).await;
}

fn looks(sentinel: &Sentinel) -> u64 {
    sentinel.known().looks
}

#[tokio::test(start_paused = true)]
async fn while_there_is_no_primary_a_process_asks_ever_less_often_however_many_call() {
    for (seed, callers) in (0..20).flat_map(|seed| [(seed, 1), (seed, 8)]) {
        fastrand::seed(seed);
        let (sentinel, mut calls) = (sentinel(), JoinSet::new());
        (0..callers).for_each(|_| drop(calls.spawn(call(Arc::clone(&sentinel)))));
        sleep(Duration::from_secs(3)).await;
        let first = looks(&sentinel);
        // After 20, 40 and 80 ms each at least 150 ms after the one before, and 300 ms at most.
        assert!((10..=24).contains(&first), "{seed}: {callers} calls asked {first} times");
        sleep(Duration::from_secs(3)).await;
        let later = looks(&sentinel) - first;
        assert!((10..=20).contains(&later), "{seed}: {callers} calls asked {later} times");
    }
}

#[tokio::test(start_paused = true)]
async fn when_another_primary_is_heard_of_it_is_asked_at_once_and_soon_again() {
    for seed in 0..20 {
        fastrand::seed(seed);
        let (sentinel, mut calls) = (sentinel(), JoinSet::new());
        calls.spawn(call(Arc::clone(&sentinel)));
        sleep(Duration::from_millis(2_0010 * seed)).await;
        let (before, heard) = (looks(&sentinel), Instant::now());
        sentinel.alarmed();
        for _ in 0..100 {
            yield_now().await;
        }
        assert_eq!((looks(&sentinel), Instant::now()), (before + 1, heard));
        sleep(3 * AGAIN).await;
        assert!(looks(&sentinel) > before + 1, "{seed}");
    }
}

/// What waiting heals for the one that was told it heals for those that were not.
#[tokio::test(start_paused = true)]
async fn after_an_answer_that_makes_no_sense_the_others_wait_as_well() {
    let sentinel = sentinel();
    let primary = sentinel.named(&Address::new("127.0.0.1", 1)).unwrap();
    assert!(sentinel.known().looked(Ok(Arc::clone(&primary)), Instant::now()).is_ok());
    sentinel.doubt(&primary, &StoreError::senseless());
    let failure = sentinel.primary().await.err().unwrap();
    assert!(failure.passes && failure.error.kind() == StoreErrorKind::Malformed);
    assert_eq!(looks(&sentinel), 1);
}

#[tokio::test(start_paused = true)]
async fn who_looks_while_another_primary_is_heard_of_begins_anew() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sentinel = sentinel_of(&[silent.local_addr().unwrap().to_string()]);
    let heard = async {
        sleep(Duration::from_millis(600)).await;
        sentinel.alarmed();
        Instant::now()
    };
    let (outcome, heard) = tokio::join!(sentinel.primary(), heard);
    // A Sentinel may take a second to answer.
    assert!(outcome.is_err() && heard.elapsed() >= Duration::from_secs(1), "{:?}", heard.elapsed());
    assert_eq!(looks(&sentinel), 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_listens_where_nobody_has_called_for_a_minute_and_who_is_primary_is_known_no_more() {
    let sentinel = sentinel();
    sentinel.listen();
    sleep(listen::IDLE / 2).await;
    sentinel.listen();
    let primary = sentinel.named(&Address::new("127.0.0.1", 1)).unwrap();
    assert!(sentinel.known().looked(Ok(primary), Instant::now()).is_ok());
    sleep(listen::IDLE.mul_f64(0.99)).await;
    assert!(sentinel.listener().runs() && sentinel.known().believed().is_some());
    // It looks each second.
    sleep(Duration::from_secs(2)).await;
    assert!(!sentinel.listener().runs() && sentinel.known().believed().is_none());
    sentinel.listen();
    sleep(Duration::from_secs(2)).await;
    assert!(sentinel.listener().runs());
}
