//! What people decide: pauses, lowered quotas, and their end; that what counted is forgotten.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Message, MessageId, Pause, ScopeId};
use outgate::processes::Kind;
use outgate::store::StoreError;
use outgate::{RedisStore, Store};
use tokio::task::JoinSet;

use crate::Whom;
use crate::meant::{self, Meant};
use crate::seen::{self, Known, Unused};
use crate::show::{chain, line, rough, shares};
use crate::sure;

type Said = Result<String, Box<dyn Error>>;

/// Nobody sends for so long.
pub(crate) async fn pause(store: &RedisStore, whom: &Whom, lasting: Duration) -> Said {
    let meant = meant::found_in_use(store, whom).await?;
    let told = tell_all(store, &meant, |scope| Body::Pause { scope, pause: Pause::new(lasting) }).await?;
    said(&meant, &told, &format!("is paused for {}{}", rough(lasting), shared(&meant)))
}

/// So many millionths of the quotas are left.
pub(crate) async fn slow(store: &RedisStore, whom: &Whom, factor: u32, lasting: Duration) -> Said {
    let meant = meant::found_in_use(store, whom).await?;
    let has_quotas = |seen: &Known| {
        seen.description.as_ref().is_none_or(|known| known.logs.iter().any(|(_, log)| !log.terms.is_empty()))
    };
    if !meant.all.iter().any(|(seen, _)| has_quotas(seen)) {
        let why = "only limits how many calls are in flight, which nothing lowers: nothing is changed";
        return Err(format!("{} {why}", meant.words).into());
    }
    let told = tell_all(store, &meant, |scope| Body::SlowDown { scope, factor, lasting }).await?;
    let percent = f64::from(factor) / 10_000.0;
    said(&meant, &told, &format!("is slowed down to {percent}% for {}{}", rough(lasting), shared(&meant)))
}

/// Pauses and lowered quotas are over.
pub(crate) async fn release(store: &RedisStore, whom: &Whom) -> Said {
    let is_whole = whom.scope.is_none() && whom.value.is_none();
    match meant::found(store, whom).await {
        Err(error) if is_whole && error.is::<Unused>() => release_unused(store, &whom.name, error).await,
        Err(error) => Err(error),
        Ok(meant) => {
            let told = tell_all(store, &meant, |scope| Body::Release { scope, served: None }).await?;
            said(&meant, &told, &format!("is released{}", shared(&meant)))
        }
    }
}

/// No process says of how many shards it has, but where nothing is kept nothing is paused.
async fn release_unused(store: &RedisStore, name: &str, unused: Box<dyn Error>) -> Said {
    let ledgers = store.ledgers_of(name).await?;
    if ledgers.is_empty() {
        return Err(format!(
            "{unused}; nor is anything kept of it: one that shares limits is released under their name"
        )
        .into());
    }
    let released = ledgers.into_iter().map(|ledger| (ledger, Body::Release { scope: None, served: None }));
    tell(store, released).await?.said(format!("{name} is released, though no process has used it lately"), None)
}

/// What counted counts no more.
pub(crate) async fn reset(store: &RedisStore, whom: &Whom, is_sure: bool) -> Said {
    let meant = meant::found_in_use(store, whom).await?;
    if meant.all.iter().any(|(seen, _)| seen.description.is_none()) {
        return Err("its processes do not describe their limits".into());
    }
    if !is_sure {
        sure::ask(&whom.name, &what_is_forgotten(store, &meant).await?)?;
    }
    let mut resets = Vec::new();
    for (seen, scope) in &meant.all {
        // Of all releases that are there.
        let described = seen.descriptions();
        let units = described.iter().flat_map(|of| &of.logs).map(|(_, log)| Arc::clone(&log.unit));
        let units: Arc<[_]> = units.collect::<BTreeSet<_>>().into_iter().collect();
        let kinds = described.iter().flat_map(|of| &of.kinds);
        let without_value: BTreeSet<_> = kinds.filter_map(Kind::without_value).collect();
        let without_value = without_value.into_iter().filter(|_| scope.is_none()).map(Some);
        for scope in std::iter::once(*scope).chain(without_value) {
            let reset = Body::Reset { scope, units: Arc::clone(&units) };
            resets.extend(seen.ledgers(scope).into_iter().map(|ledger| (ledger, reset.clone())));
        }
    }
    let told = tell(store, resets).await?;
    let scopes = if has_scopes(&meant) { "; each scope keeps what it counted: name it to reset it" } else { "" };
    said(&meant, &told, &format!("is reset: what counted is forgotten{}{scopes}", shared(&meant)))
}

/// Whether an upstream is meant as a whole, and some of its limits hold in each scope.
fn has_scopes(meant: &Meant) -> bool {
    let is_scoped = |seen: &Known| seen.description.iter().flat_map(|of| &of.kinds).any(|kind| !kind.is_everybody);
    meant.all.iter().any(|(seen, scope)| scope.is_none() && is_scoped(seen))
}

/// Whom else it concerns.
fn shared(meant: &Meant) -> &'static str {
    let is_shared = meant.all.iter().any(|(seen, scope)| scope.is_none() && shares(&seen.found).is_some());
    if is_shared { ", also for those that share its limits" } else { "" }
}

/// What a reset forgets, in words.
async fn what_is_forgotten(store: &RedisStore, meant: &Meant) -> Said {
    let whose = if has_scopes(meant) { ", also of callers without a value, but not of any other scope" } else { "" };
    let (words, shared) = (&meant.words, shared(meant));
    let mut what = format!("{words} forgets what counts{whose}{shared}, and as much as is allowed may start at once:");
    for (seen, scope) in &meant.all {
        for limit in seen::limits_of(store, seen, *scope).await? {
            what += "\n  ";
            what += &line(&limit);
        }
    }
    Ok(what)
}

/// What was done; an error where it was done to a part alone.
fn said(meant: &Meant, told: &Told, what: &str) -> Said {
    told.said(format!("{} {what}", meant.words), meant.unread.as_ref())
}

/// Tells the store the same of each.
async fn tell_all(
    store: &RedisStore,
    meant: &Meant,
    body: impl Fn(Option<ScopeId>) -> Body,
) -> Result<Told, Box<dyn Error>> {
    let of = |(seen, scope): &(Known, Option<ScopeId>)| {
        let body = body(*scope);
        seen.ledgers(*scope).into_iter().map(move |ledger| (ledger, body.clone()))
    };
    tell(store, meant.all.iter().flat_map(of)).await
}

/// Tells the store what acts once: of a whole upstream every shard, all at once. One that cannot be told holds up no other.
async fn tell(store: &RedisStore, all: impl IntoIterator<Item = (Arc<str>, Body)>) -> Result<Told, Box<dyn Error>> {
    let mut telling = JoinSet::new();
    for (ledger, body) in all {
        let (store, sender) = (store.clone(), getrandom::u64()?.max(1));
        let message = Message::new(ledger, MessageId::new(sender, "hand!", 1), body);
        telling.spawn(async move { store.apply(&message).await });
    }
    let mut told = Told { all: telling.len(), failed: 0, error: None };
    while let Some(answer) = telling.join_next().await {
        if let Err(error) = answer? {
            told.failed += 1;
            told.error = told.error.or(Some(error));
        }
    }
    match told.error {
        Some(error) if told.failed == told.all => Err(error.into()),
        _ => Ok(told),
    }
}

/// What came of telling the store.
struct Told {
    all: usize,
    failed: usize,
    /// Why one of those failed.
    error: Option<StoreError>,
}

impl Told {
    fn said(&self, done: String, unread: Option<&StoreError>) -> Said {
        let mut missing = Vec::new();
        if let Some(error) = &self.error {
            missing.push(format!("{} of {} parts: {}", self.failed, self.all, chain(error)));
        }
        missing.extend(unread.map(|unread| format!("a part that cannot be read: {}", chain(unread))));
        if missing.is_empty() {
            Ok(done + "\n")
        } else {
            Err(format!("{done}, but for {}", missing.join(", and ")).into())
        }
    }
}
