//! What people decide: pauses, lowered quotas, and their end; that what counted is forgotten.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Message, MessageId, Pause, ScopeId};
use outgate::processes::{Description, Kind, ScopeInUse};
use outgate::{RedisStore, Store};

use crate::Whom;
use crate::seen::{self, Seen, Unused};
use crate::show::{line, name, rough};
use crate::sure;

type Said = Result<String, Box<dyn Error>>;

/// Nobody sends for so long.
pub(crate) async fn pause(store: &RedisStore, whom: &Whom, lasting: Duration) -> Said {
    let (seen, scope) = found(store, whom).await?;
    tell(store, seen.ledgers(scope), &Body::Pause { scope, pause: Pause::new(lasting) }).await?;
    Ok(format!("{} is paused for {}\n", words(whom, scope), rough(lasting)))
}

/// So many millionths of the quotas are left.
pub(crate) async fn slow(store: &RedisStore, whom: &Whom, factor: u32, lasting: Duration) -> Said {
    let (seen, scope) = found(store, whom).await?;
    tell(store, seen.ledgers(scope), &Body::SlowDown { scope, factor, lasting }).await?;
    let percent = f64::from(factor) / 10_000.0;
    Ok(format!("{} is slowed down to {percent}% for {}\n", words(whom, scope), rough(lasting)))
}

/// Pauses and lowered quotas are over.
pub(crate) async fn release(store: &RedisStore, whom: &Whom) -> Said {
    let is_whole = whom.scope.is_none() && whom.value.is_none();
    match seen::one(store, &whom.name).await {
        Err(error) if is_whole && error.is::<Unused>() => release_unused(store, &whom.name, error).await,
        Err(error) => Err(error),
        Ok(seen) => {
            let scope = scope_of(&seen, whom)?;
            tell(store, seen.ledgers(scope), &Body::Release { scope, served: None }).await?;
            Ok(format!("{} is released\n", words(whom, scope)))
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
    let (seen, scope) = found(store, whom).await?;
    let description = seen.description.as_ref().ok_or("its processes do not describe their limits")?;
    let words = words(whom, scope);
    if !is_sure {
        let shared = if seen.found.ledger == seen.found.name { "" } else { ", also for those that share its limits" };
        let limits = seen::limits_of(store, &seen, scope).await?;
        let is_scoped = scope.is_none() && description.kinds.iter().any(|kind| !kind.is_everybody);
        let whose = if is_scoped { ", also of callers without a value" } else { "" };
        let what = format!("{words} forgets what counts{whose}{shared}, and as much as is allowed may start at once:");
        let what = limits.iter().fold(what, |text, limit| text + "\n  " + &line(limit));
        sure::ask(&whom.name, &what)?;
    }
    // Of all releases that are there.
    let described = seen.processes.descriptions.iter().filter_map(|(.., text)| Description::read(text));
    let units: BTreeSet<_> = described.flat_map(|of| of.logs).map(|(_, log)| log.unit).collect();
    let units: Arc<[_]> = units.into_iter().collect();
    let without_value: BTreeSet<_> = description.kinds.iter().filter_map(Kind::without_value).collect();
    let without_value = without_value.into_iter().filter(|_| scope.is_none()).map(Some);
    for scope in std::iter::once(scope).chain(without_value) {
        tell(store, seen.ledgers(scope), &Body::Reset { scope, units: Arc::clone(&units) }).await?;
    }
    Ok(format!("{words} is reset: what counted is forgotten\n"))
}

fn words(whom: &Whom, scope: Option<ScopeId>) -> String {
    scope.map_or_else(|| whom.name.clone(), |scope| format!("{} for the scope {scope}", whom.name))
}

/// The upstream and the scope that somebody names.
async fn found(store: &RedisStore, whom: &Whom) -> Result<(Seen, Option<ScopeId>), Box<dyn Error>> {
    let seen = seen::one(store, &whom.name).await.map_err(|error| match error.downcast::<Unused>() {
        Ok(unused) => format!("{unused}; its limits, scopes and shards are known as soon as a process calls it").into(),
        Err(other) => other,
    })?;
    let scope = scope_of(&seen, whom)?;
    Ok((seen, scope))
}

fn scope_of(seen: &Seen, whom: &Whom) -> Result<Option<ScopeId>, Box<dyn Error>> {
    Ok(match (&whom.scope, &whom.value) {
        (Some(scope), _) => Some(by_name(seen, scope)?),
        (None, Some(value)) => Some(by_value(seen, value, whom.kind.as_deref())?),
        (None, None) => None,
    })
}

fn by_name(seen: &Seen, said: &str) -> Result<ScopeId, String> {
    let is_named = |scope: &&ScopeInUse| scope.name.as_deref() == Some(said);
    let begins = |scope: &&ScopeInUse| scope.scope.to_string().starts_with(said);
    let names = seen.description.iter().flat_map(|description| &description.names);
    let given = names.filter(|(_, name)| **name == *said).map(|(scope, _)| *scope);
    let in_use = seen.scopes.iter().filter(is_named).map(|scope| scope.scope);
    let mut found: Vec<_> = in_use.chain(given).collect::<BTreeSet<_>>().into_iter().collect();
    if found.is_empty() && said.len() >= 4 {
        found = seen.scopes.iter().filter(begins).map(|scope| scope.scope).collect();
    }
    match found[..] {
        [scope] => Ok(scope),
        [] if said.len() == 32 && u128::from_str_radix(said, 16).is_ok() => {
            Ok(ScopeId::from_bits(u128::from_str_radix(said, 16).unwrap_or_default()))
        }
        [] => {
            let names: Vec<_> = seen.scopes.iter().take(8).map(name).collect();
            let used = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(format!("no scope {said:?} is in use; in use: {used}; any other is named by --value or its whole hash"))
        }
        _ => Err(format!("several scopes are called {said:?}: say more digits of the hash")),
    }
}

fn by_value(seen: &Seen, value: &str, kind: Option<&str>) -> Result<ScopeId, Box<dyn Error>> {
    let description = seen.description.as_ref().ok_or("its processes do not describe their scopes")?;
    let kinds: Vec<_> = description.kinds.iter().filter(|of| !of.is_everybody).collect();
    let names = kinds.iter().map(|of| &*of.name).collect::<Vec<_>>().join(", ");
    let found = &seen.found;
    let fits = |of: &&Kind| kind.is_none_or(|kind| *of.name == *kind || seen::common_name(found, of) == Some(kind));
    let fitting = kinds.iter().copied().filter(fits);
    // Where both fit, the upstream's own is meant.
    let (common, own): (Vec<_>, Vec<_>) = fitting.partition(|of| seen::common_name(found, of).is_some());
    let [of] = (if own.is_empty() { common } else { own })[..] else {
        let names = if names.is_empty() { "none".to_owned() } else { names };
        return Err(format!("say of which kind the value is, by --kind; there are: {names}").into());
    };
    if value != "-" {
        return Ok(of.scope_of(value.as_bytes()));
    }
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    Ok(of.scope_of(input.trim().as_bytes()))
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
