//! A message whose answer is lost acts once.

use std::time::Duration;

use outgate::ledger::{
    Answer, Ask, Body, Learned, Log, Message, MessageId, Pause, QuotaReport, Report, Run, Slots, Stamp, Term, Verdict,
};
use outgate::store::Applying;
use outgate::store::{StoreError, StoreErrorKind};
use outgate::testing::{ManualClock, Mode, RedisServer};
use outgate::{Limit, MemoryStore, RedisStore, Store};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::scene::{Outcome, PATIENCE, Scene, plenty, throttle};
use crate::traces::Recorder;

#[tokio::test]
async fn an_ask_acts_once_however_often_its_connection_is_cut_before_the_reply() -> Outcome {
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    for (cuts, granted) in [(1, 2), (2, 3), (3, 4), (6, 5)] {
        scene.proxy.set(Mode::CutBeforeReply(cuts));
        drop(throttle.acquire("up").await?);
        assert_eq!(scene.proxy.mode(), Mode::Pass);
        scene.log_holds(granted).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_asks_of_a_crowd_act_once_when_their_connection_is_cut() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    for round in 1..=5 {
        scene.proxy.set(Mode::CutBeforeReply(2));
        let mut callers = JoinSet::new();
        for _ in 0..100 {
            let throttle = throttle.clone();
            callers.spawn(async move { throttle.acquire("up").await });
        }
        drop(callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?);
        scene.log_holds(1 + 100 * round).await?;
    }
    assert!(!recorder.news().iter().any(|line| line.contains("same name")), "nobody else has its name");
    Ok(())
}

#[tokio::test]
async fn a_hand_back_acts_once_and_leaves_equal_stamps_of_others_alone() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    drop(throttle.acquire("up").await?);
    for cuts in [1, 2, 3] {
        // Those who ask together get the same stamp.
        let before = scene.log()?.len();
        let mut callers = JoinSet::new();
        for _ in 0..10 {
            let throttle = throttle.clone();
            callers.spawn(async move { throttle.acquire("up").await });
        }
        let mut permits = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
        scene.proxy.set(Mode::CutBeforeReply(cuts));
        for permit in permits.drain(..4) {
            permit.hand_back();
        }
        while scene.proxy.mode() != Mode::Pass {
            sleep(Duration::from_millis(5)).await;
        }
        drop(throttle.acquire("up").await?);
        scene.log_holds(before + 7).await?;
    }
    assert!(!recorder.news().iter().any(|line| line.contains("same name")), "nobody else has its name");
    Ok(())
}

#[tokio::test]
async fn a_swallowed_reply_is_asked_for_again_and_the_ask_acts_once() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let scene = Scene::new()?;
    let throttle = scene.throttle(plenty())?;
    // By the second call the process knows the store's clock: until then it asks for the time first.
    for _ in 0..2 {
        drop(throttle.acquire("up").await?);
    }
    scene.proxy.set(Mode::SwallowReplies);
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let throttle = throttle.clone();
        callers.spawn(async move { throttle.acquire("up").await });
    }
    // Within the 5 s for which they wait.
    let by = Instant::now() + PATIENCE / 2;
    while scene.log()?.len() < 3 {
        assert!(Instant::now() < by, "the server has acted");
        sleep(Duration::from_millis(10)).await;
    }
    scene.proxy.set(Mode::Pass);
    drop(callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?);
    scene.log_holds(22).await?;
    assert!(!recorder.news().iter().any(|line| line.contains("same name")), "nobody else has its name");
    Ok(())
}

/// A hand-back that comes again must act once for as long as its slot counts, although that has not started yet.
#[tokio::test]
async fn a_hand_back_of_a_slot_far_ahead_is_remembered_until_the_slot_no_longer_counts() -> Outcome {
    let redis = RedisServer::start()?;
    let clock = ManualClock::new(Stamp::from_micros(1_000_000_000_000_000));
    let stores: [Box<dyn Store>; 2] = [
        Box::new(RedisStore::open(&redis.url())?.with_clock(clock.clone())),
        Box::new(MemoryStore::with_clock(clock.clone())),
    ];
    for store in stores {
        let logs = [Log::new("calls", [Term::new(2, 10_000)])];
        let message = |number, body: Body| Message::new("up", MessageId::new(1, "ab", number), body);
        let mut pause = message(1, Body::Pause { scope: None, pause: Pause::new(Duration::from_millis(200)) });
        pause.id.stream = "!".into();
        store.apply(&pause).await?;
        let ask = message(1, Ask::new(logs.clone(), vec![Run::new(2, [1])]).into());
        let booked = store.apply(&ask).await?.grant().ok_or("no grant")?;
        let [Answer { callers: 2, start, verdict: Verdict::Granted, .. }] = booked.answers[..] else {
            return Err(format!("{booked:?}").into());
        };
        let hand_back = message(2, Ask::hand_back(logs.clone(), vec![Slots::new(1, start, [1])]).into());
        store.apply(&hand_back).await?;
        clock.set(Stamp::from_micros(clock.now().as_micros() + 205_000));
        store.apply(&hand_back).await?;
        let usage = store.apply(&Message::new("up", MessageId::nobodys(), Body::usage(logs))).await?.usage();
        assert_eq!(usage.ok_or("no usage")?[0].terms[0].used, 1, "{store:?}");
    }
    Ok(())
}

/// A store that acts, but whose answers are lost for a while.
#[derive(Clone, Debug)]
struct Lossy {
    inner: MemoryStore,
    until: Instant,
}

impl Store for Lossy {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        Applying::pending(async move {
            let answer = self.inner.apply(message).await;
            let hands_back = matches!(&message.body, Body::Ask(ask) if !ask.back.is_empty());
            let is_lost = hands_back && Instant::now() < self.until;
            if is_lost { Err(StoreError::new(StoreErrorKind::Unreachable, "lost")) } else { answer }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_back_is_not_sent_again_once_the_store_may_have_forgotten_it() -> Outcome {
    let inner = MemoryStore::new();
    let lossy = Lossy { inner: inner.clone(), until: Instant::now() + Duration::from_secs(90) };
    let limit = Limit::per_hour(100);
    let (cut_off, other) = (throttle(lossy, limit.clone())?, throttle(inner, limit)?);
    // All of the same stamp.
    drop(other.acquire("up").await?);
    drop(other.acquire("up").await?);
    cut_off.acquire("up").await?.hand_back();
    // Somebody waits all the time, so that the line does not let go.
    let mut callers = JoinSet::new();
    for seconds in 0..85 {
        let cut_off = cut_off.clone();
        callers.spawn(async move {
            sleep(Duration::from_secs(seconds)).await;
            cut_off.acquire("up").await.is_ok()
        });
    }
    let granted = callers.join_all().await.into_iter().filter(|&granted| granted).count();
    sleep(Duration::from_secs(30)).await;
    let used = other.usage("up").await?.limits[0].used;
    assert_eq!(used as usize, 2 + granted);
    Ok(())
}

#[tokio::test]
async fn pauses_and_reports_act_once_when_their_connection_is_cut() -> Outcome {
    let scene = Scene::new()?;
    let store = RedisStore::open(&scene.proxy.url())?;
    store.apply(&Message::new("up", MessageId::nobodys(), Body::usage([]))).await?;
    let mut pause = Pause::new(Duration::ZERO);
    (pause.waits, pause.recovery) = ([0, 9, 99].map(Duration::from_secs).into(), Duration::from_secs(60));
    for (number, wait) in [(1, 0..1), (2, 8..10)] {
        scene.proxy.set(Mode::CutBeforeReply(1));
        let body = Body::Pause { scope: None, pause: pause.clone() };
        let paused = store.apply(&Message::new("up", MessageId::new(1, "!", number), body)).await?.paused();
        assert_eq!(scene.proxy.mode(), Mode::Pass);
        let is_next = paused.is_some_and(|paused| paused.first && wait.contains(&paused.wait().as_secs()));
        assert!(is_next, "each the next of a row: {paused:?}");
    }
    let (term, minute) = (Term::new(16, 60_000_000), Duration::from_secs(60));
    for (number, left, expected) in [(3, 15, 1), (4, 8, 8)] {
        scene.proxy.set(Mode::CutBeforeReply(1));
        let mut report = Report::default();
        report.quotas.push(QuotaReport::new(term, minute, left, minute));
        let body = Body::Report { log: Log::new("calls", [term]), report };
        let learned = store.apply(&Message::new("up", MessageId::new(1, "!", number), body)).await?.learned();
        assert_eq!(scene.proxy.mode(), Mode::Pass);
        assert_eq!(learned, Some(Learned::new(expected)), "what others use");
    }
    Ok(())
}
