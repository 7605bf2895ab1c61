//! What people decide: pauses, lowered quotas, and their end; that what counted is forgotten.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Message, MessageId, Pause, ScopeId};
use outgate::processes::{Kind, ScopeInUse};
use outgate::{RedisStore, Store};

use crate::Whom;
use crate::seen::{self, Seen, Unused};
use crate::show::{line, name, rough};
use crate::sure;

type Said = Result<String, Box<dyn Error>>;
/// An upstream, as often as it is there, and the scope that is meant.
type Found = Vec<(Seen, Option<ScopeId>)>;

/// Nobody sends for so long.
pub(crate) async fn pause(store: &RedisStore, whom: &Whom, lasting: Duration) -> Said {
    let found = found(store, whom).await?;
    tell_all(store, &found, |scope| Body::Pause { scope, pause: Pause::new(lasting) }).await?;
    Ok(format!("{} is paused for {}\n", words(whom, &found), rough(lasting)))
}

/// So many millionths of the quotas are left.
pub(crate) async fn slow(store: &RedisStore, whom: &Whom, factor: u32, lasting: Duration) -> Said {
    let found = found(store, whom).await?;
    tell_all(store, &found, |scope| Body::SlowDown { scope, factor, lasting }).await?;
    let percent = f64::from(factor) / 10_000.0;
    Ok(format!("{} is slowed down to {percent}% for {}\n", words(whom, &found), rough(lasting)))
}

/// Pauses and lowered quotas are over.
pub(crate) async fn release(store: &RedisStore, whom: &Whom) -> Said {
    let is_whole = whom.scope.is_none() && whom.value.is_none();
    match seen::those(store, &whom.name).await {
        Err(error) if is_whole && error.is::<Unused>() => release_unused(store, &whom.name, error).await,
        Err(error) => Err(error),
        Ok(all) => {
            let found = with_scopes(all, whom)?;
            tell_all(store, &found, |scope| Body::Release { scope, served: None }).await?;
            Ok(format!("{} is released\n", words(whom, &found)))
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
    let found = found(store, whom).await?;
    let words = words(whom, &found);
    if !is_sure {
        sure::ask(&whom.name, &what_is_forgotten(store, &words, &found).await?)?;
    }
    for (seen, scope) in &found {
        let described = seen.descriptions();
        if described.is_empty() {
            return Err("its processes do not describe their limits".into());
        }
        let units: BTreeSet<_> =
            described.iter().flat_map(|of| &of.logs).map(|(_, log)| Arc::clone(&log.unit)).collect();
        let units: Arc<[_]> = units.into_iter().collect();
        let without_value: BTreeSet<_> =
            described.iter().flat_map(|of| &of.kinds).filter_map(Kind::without_value).collect();
        let without_value = without_value.into_iter().filter(|_| scope.is_none()).map(Some);
        for scope in std::iter::once(*scope).chain(without_value) {
            tell(store, seen.ledgers(scope), &Body::Reset { scope, units: Arc::clone(&units) }).await?;
        }
    }
    Ok(format!("{words} is reset: what counted is forgotten\n"))
}

/// What a reset forgets, in words.
async fn what_is_forgotten(store: &RedisStore, words: &str, found: &Found) -> Said {
    let is_shared = found.iter().any(|(seen, _)| seen.found.ledger != seen.found.name);
    let shared = if is_shared { ", also for those that share its limits" } else { "" };
    let has_scopes = |seen: &Seen| seen.description.iter().flat_map(|of| &of.kinds).any(|kind| !kind.is_everybody);
    let is_scoped = found.iter().any(|(seen, scope)| scope.is_none() && has_scopes(seen));
    let whose = if is_scoped { ", also of callers without a value" } else { "" };
    let mut what = format!("{words} forgets what counts{whose}{shared}, and as much as is allowed may start at once:");
    for (seen, scope) in found {
        for limit in seen::limits_of(store, seen, *scope).await? {
            what += "\n  ";
            what += &line(&limit);
        }
    }
    Ok(what)
}

fn words(whom: &Whom, found: &Found) -> String {
    let scope = found.iter().find_map(|(_, scope)| *scope);
    scope.map_or_else(|| whom.name.clone(), |scope| format!("{} for the scope {scope}", whom.name))
}

/// The upstream, wherever it is kept, and the scope there that somebody names.
async fn found(store: &RedisStore, whom: &Whom) -> Result<Found, Box<dyn Error>> {
    let all = seen::those(store, &whom.name).await.map_err(|error| match error.downcast::<Unused>() {
        Ok(unused) => format!("{unused}; its limits, scopes and shards are known as soon as a process calls it").into(),
        Err(other) => other,
    })?;
    with_scopes(all, whom)
}

/// Those in which the scope is known; it is enough that one release knows it.
fn with_scopes(all: Vec<Seen>, whom: &Whom) -> Result<Found, Box<dyn Error>> {
    let value = whom.value.as_deref().map(value_of).transpose()?;
    let (mut known, mut unknown) = (Vec::new(), None);
    for seen in all {
        let scope = match (&whom.scope, &value) {
            (Some(scope), _) => by_name(&seen, scope).map(Some).map_err(Into::into),
            (None, Some(value)) => by_value(&seen, value, whom.kind.as_deref()).map(Some),
            (None, None) => Ok(None),
        };
        match scope {
            Ok(scope) => known.push((seen, scope)),
            Err(error) => unknown = unknown.or(Some(error)),
        }
    }
    unknown.filter(|_| known.is_empty()).map_or(Ok(known), Err)
}

/// A value as it is said, or as it is read from the input.
fn value_of(said: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    if said != "-" {
        return Ok(said.as_bytes().to_vec());
    }
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    Ok(input.trim().as_bytes().to_vec())
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

fn by_value(seen: &Seen, value: &[u8], kind: Option<&str>) -> Result<ScopeId, Box<dyn Error>> {
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
    Ok(of.scope_of(value))
}

/// Tells the store the same of each.
async fn tell_all(
    store: &RedisStore,
    found: &Found,
    body: impl Fn(Option<ScopeId>) -> Body,
) -> Result<(), Box<dyn Error>> {
    for (seen, scope) in found {
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
