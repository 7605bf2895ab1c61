use super::*;
use crate::config::limit::Limit;
use crate::config::plan::Registered;
use crate::config::upstream::Upstream;
use crate::counts::Counts;
use crate::ledger::Cause;
use crate::queue::process::Process;
use crate::store::{MemoryStore, WithoutStore};

fn queues() -> (Queues, impl Fn(u32, &Queues, Instant) -> Arc<Queue>) {
    queues_of(WithoutStore::Wait)
}

fn queues_of(without_store: WithoutStore) -> (Queues, impl Fn(u32, &Queues, Instant) -> Arc<Queue>) {
    let process = Arc::new(Process::new(Arc::new(MemoryStore::new()), Duration::from_millis(250)).unwrap());
    let up = Registered::new(0, Upstream::new("up").limit(Limit::per_second(1)).without_store(without_store)).unwrap();
    let get = move |scope: u32, queues: &Queues, now| {
        let scopes = Scopes::only(Some(ScopeId::of(&scope.to_be_bytes())));
        get_of(&process, &up, &scopes, queues, now)
    };
    (Queues::default(), get)
}

fn get_of(process: &Arc<Process>, up: &Arc<Registered>, scopes: &Scopes, queues: &Queues, now: Instant) -> Arc<Queue> {
    let new = || Queue::new(process, up, scopes, [].into());
    queues.get((up.key(scopes.narrowest), 0), scopes, now, new).unwrap()
}

fn kept(queues: &Queues) -> usize {
    queues.parts.iter().map(|part| lock(part).queues.values().map(|entry| entry.all().count()).sum::<usize>()).sum()
}

#[test]
fn queues_of_one_scope_that_differ_in_others_are_each_made_once_and_forgotten_when_they_have_fallen_silent() {
    let process = Arc::new(Process::new(Arc::new(MemoryStore::new()), Duration::from_millis(250)).unwrap());
    let up = Registered::new(0, Upstream::new("up").limit(Limit::per_second(1))).unwrap();
    let queues = Queues::default();
    let get = |merchant: u32, now| {
        let [token, merchant] = [1, merchant].map(|scope: u32| Some(ScopeId::of(&scope.to_be_bytes())));
        let scopes = Scopes { narrowest: token, all: Some([token, merchant].into()), untouched: 0 };
        get_of(&process, &up, &scopes, &queues, now)
    };
    let now = Instant::now();
    let used: Vec<_> = (0..20_000).map(|merchant| get(merchant, now)).collect();
    assert!(used.iter().zip(0..).all(|(queue, merchant)| Arc::ptr_eq(queue, &get(merchant, now))));
    assert_eq!(kept(&queues), 20_000, "they are in use");
    drop(used);
    for second in 1..60 {
        get(0, now + Duration::from_secs(second));
    }
    assert!(kept(&queues) < 100, "{}", kept(&queues));
}

#[test]
fn a_program_with_a_thousand_scopes_makes_each_line_once() {
    let (queues, get) = queues();
    let all =
        |now| (0..1_000).map(|scope| get(scope, &queues, now)).map(|queue| Arc::as_ptr(&queue)).collect::<Vec<_>>();
    let now = Instant::now();
    let first = all(now);
    for round in 1..5 {
        assert_eq!(all(now + Duration::from_secs(60 * round)), first);
    }
}

#[test]
fn a_pause_is_told_to_the_queue_of_its_scope_or_once_to_those_in_use() {
    let (queues, get) = queues();
    let (now, crowd) = (Instant::now(), Arc::new(Crowd::new(9, Counts::default())));
    let in_use = get(0, &queues, now);
    (1..100_000).for_each(|scope| drop(get(scope, &queues, now)));
    let told = |scope: Option<u32>, secs, cause| {
        let scope = scope.map(|scope| ScopeId::of(&scope.to_be_bytes()));
        let until = now + Duration::from_secs(secs);
        queues.told_at_once((0, scope), &crowd, until, Reason::new(cause, 0), now)
    };
    let (scope, refusal) = (in_use.scope(), Cause::Refusal);
    let of = |told: Vec<Arc<Queue>>| told.iter().map(|queue| queue.scope()).collect::<Vec<_>>();
    for _ in 0..1_000 {
        assert_eq!(of(told(Some(0), 5, refusal)), [scope]);
        assert_eq!(of(told(Some(100_000), 5, refusal)), [], "nobody has called for it");
    }
    assert_eq!(of(told(None, 5, refusal)).len(), 1, "nobody waits, and one looks");
    assert_eq!(of(told(None, 5, refusal)), [], "once");
    let _waits = crowd.enter(false);
    assert_eq!(of(told(None, 6, refusal)), [], "it lasts already");
    assert_eq!(of(told(None, 6, Cause::Ban)), [scope]);
    assert_eq!(of(told(None, 7, Cause::Ban)), []);
    assert_eq!(crowd.paused(now), Some((now + Duration::from_secs(7), Reason::new(Cause::Ban, 0))));
}

#[test]
fn lines_of_many_scopes_are_forgotten_when_all_have_fallen_silent() {
    let (queues, get) = queues();
    let now = Instant::now();
    let used: Vec<_> = (0..100_000).map(|scope| get(scope, &queues, now)).collect();
    assert_eq!(kept(&queues), 100_000, "they are in use");
    drop(used);
    for second in 1..30 {
        get(0, &queues, now + Duration::from_secs(second));
    }
    assert!(kept(&queues) < 100, "{}", kept(&queues));
}

#[tokio::test]
async fn a_pause_is_not_forgotten_where_calls_may_go_without_the_store() {
    use WithoutStore::{SendUnthrottled, Wait};
    for (without_store, after, is_kept) in [(Wait, 1, false), (SendUnthrottled, 1, true), (SendUnthrottled, 61, false)]
    {
        let (queues, get) = queues_of(without_store);
        let now = Instant::now();
        let paused = get(0, &queues, now);
        paused.pause(Duration::from_secs(60), Reason::new(Cause::Refusal, 429), now);
        drop(paused);
        let then = now + Duration::from_secs(after);
        (1..100_000).for_each(|scope| drop(get(scope, &queues, then)));
        (0..30).for_each(|second| drop(get(1, &queues, then + Duration::from_secs(second))));
        let is_known = get(0, &queues, then).paused(now).is_some();
        assert_eq!(is_known, is_kept, "{without_store:?}, {after} s later");
    }
}
