//! What people decide: pauses, lowered quotas, and their end; that what counted is forgotten.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Message, MessageId, Pause, ScopeId};
use outgate::processes::Kind;
use outgate::{RedisStore, Store};

use crate::Whom;
use crate::meant::{self, Meant};
use crate::seen::{self, Seen, Unused};
use crate::show::{chain, line, rough};
use crate::sure;

type Said = Result<String, Box<dyn Error>>;

/// Nobody sends for so long.
pub(crate) async fn pause(store: &RedisStore, whom: &Whom, lasting: Duration) -> Said {
    let meant = meant::found_in_use(store, whom).await?;
    tell_all(store, &meant, |scope| Body::Pause { scope, pause: Pause::new(lasting) }).await?;
    said(&meant, &format!("is paused for {}", rough(lasting)))
}

/// So many millionths of the quotas are left.
pub(crate) async fn slow(store: &RedisStore, whom: &Whom, factor: u32, lasting: Duration) -> Said {
    let meant = meant::found_in_use(store, whom).await?;
    let has_quotas = |seen: &Seen| {
        seen.description.as_ref().is_none_or(|known| known.logs.iter().any(|(_, log)| !log.terms.is_empty()))
    };
    if !meant.all.iter().any(|(seen, _)| has_quotas(seen)) {
        let why = "only limits how many calls are in flight, which nothing lowers: nothing is changed";
        return Err(format!("{} {why}", meant.words).into());
    }
    tell_all(store, &meant, |scope| Body::SlowDown { scope, factor, lasting }).await?;
    let percent = f64::from(factor) / 10_000.0;
    said(&meant, &format!("is slowed down to {percent}% for {}", rough(lasting)))
}

/// Pauses and lowered quotas are over.
pub(crate) async fn release(store: &RedisStore, whom: &Whom) -> Said {
    let is_whole = whom.scope.is_none() && whom.value.is_none();
    match meant::found(store, whom).await {
        Err(error) if is_whole && error.is::<Unused>() => release_unused(store, &whom.name, error).await,
        Err(error) => Err(error),
        Ok(meant) => {
            tell_all(store, &meant, |scope| Body::Release { scope, served: None }).await?;
            said(&meant, "is released")
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
    tell(store, ledgers, &Body::Release { scope: None, served: None }).await?;
    Ok(format!("{name} is released, though no process has used it lately\n"))
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
    for (seen, scope) in &meant.all {
        // Of all releases that are there.
        let described = seen.descriptions();
        let units = described.iter().flat_map(|of| &of.logs).map(|(_, log)| Arc::clone(&log.unit));
        let units: Arc<[_]> = units.collect::<BTreeSet<_>>().into_iter().collect();
        let kinds = described.iter().flat_map(|of| &of.kinds);
        let without_value: BTreeSet<_> = kinds.filter_map(Kind::without_value).collect();
        let without_value = without_value.into_iter().filter(|_| scope.is_none()).map(Some);
        for scope in std::iter::once(*scope).chain(without_value) {
            tell(store, seen.ledgers(scope), &Body::Reset { scope, units: Arc::clone(&units) }).await?;
        }
    }
    said(&meant, "is reset: what counted is forgotten")
}

/// What a reset forgets, in words.
async fn what_is_forgotten(store: &RedisStore, meant: &Meant) -> Said {
    let is_shared = meant.all.iter().any(|(seen, _)| seen.found.ledger != seen.found.name);
    let shared = if is_shared { ", also for those that share its limits" } else { "" };
    let has_scopes = |seen: &Seen| seen.description.iter().flat_map(|of| &of.kinds).any(|kind| !kind.is_everybody);
    let is_scoped = meant.all.iter().any(|(seen, scope)| scope.is_none() && has_scopes(seen));
    let whose = if is_scoped { ", also of callers without a value" } else { "" };
    let words = &meant.words;
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
fn said(meant: &Meant, what: &str) -> Said {
    let words = &meant.words;
    let Some(unread) = &meant.unread else { return Ok(format!("{words} {what}\n")) };
    Err(format!("{words} {what}, but for a part that cannot be read: {}", chain(unread)).into())
}

/// Tells the store the same of each.
async fn tell_all(
    store: &RedisStore,
    meant: &Meant,
    body: impl Fn(Option<ScopeId>) -> Body,
) -> Result<(), Box<dyn Error>> {
    for (seen, scope) in &meant.all {
        tell(store, seen.ledgers(*scope), &body(*scope)).await?;
    }
    Ok(())
}

/// Tells the store something that acts once: of the whole upstream every shard.
async fn tell(store: &RedisStore, ledgers: Vec<Arc<str>>, body: &Body) -> Result<(), Box<dyn Error>> {
    let sender = getrandom::u64()?.max(1);
    for ledger in ledgers {
        let message = Message::new(ledger, MessageId::new(sender, "hand!", 1), body.clone());
        store.apply(&message).await?;
    }
    Ok(())
}
