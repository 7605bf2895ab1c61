//! Whom a command means: an upstream, wherever its processes keep it, and a scope of it.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Read as _;

use outgate::RedisStore;
use outgate::ledger::ScopeId;
use outgate::processes::{Kind, ScopeInUse};
use outgate::store::StoreError;

use crate::Whom;
use crate::seen::{self, Known, Unused};
use crate::show::name;

/// An upstream, and the scope that is meant.
pub(crate) struct Meant {
    /// As often as it is there, each time with the scope as it is called there.
    pub(crate) all: Vec<(Known, Option<ScopeId>)>,
    /// Why some of it cannot be read.
    pub(crate) unread: Option<StoreError>,
    /// What it is called in what is said of it.
    pub(crate) words: String,
}

/// So many scopes each process names.
const NAMED: usize = 64;

/// Why no scope is found.
struct Unfound {
    /// It is not there at all: another release may know it.
    is_unknown: bool,
    why: String,
}

impl Unfound {
    const fn unknown(why: String) -> Self {
        Self { is_unknown: true, why }
    }

    const fn unclear(why: String) -> Self {
        Self { is_unknown: false, why }
    }
}

/// The upstream, and the scope that somebody names.
pub(crate) async fn found(store: &RedisStore, whom: &Whom) -> Result<Meant, Box<dyn Error>> {
    let (all, unread) = seen::those(store, &whom.name).await?;
    let value = whom.value.as_deref().map(value_of).transpose()?;
    let (mut known, mut unknown, mut by_digits) = (Vec::new(), None, BTreeSet::new());
    for seen in all {
        let scope = match (&whom.scope, &value) {
            (Some(scope), _) => by_name(&seen, scope).or_else(|unfound| {
                let found = by_first_digits(&seen, scope)?.ok_or(unfound)?;
                by_digits.insert(found);
                Ok(found)
            }),
            (None, Some(value)) => by_value(&seen, value, whom.kind.as_deref()),
            (None, None) => {
                known.push((seen, None));
                continue;
            }
        };
        match scope {
            Ok(scope) => known.push((seen, Some(scope))),
            Err(Unfound { is_unknown: true, why }) => unknown = unknown.or(Some(why)),
            Err(Unfound { why, .. }) => return Err(why.into()),
        }
    }
    if by_digits.len() > 1 {
        return Err(several(whom.scope.as_deref().unwrap_or_default()).into());
    }
    if let Some(why) = unknown.filter(|_| known.is_empty()) {
        return Err(why.into());
    }
    let scope = known.iter().find_map(|(_, scope)| *scope);
    let mut words = scope.map_or_else(|| whom.name.clone(), |scope| format!("{} for the scope {scope}", whom.name));
    let is_named = || known.iter().any(|(seen, scope)| scope.is_some_and(|scope| seen.names(scope)));
    if value.is_some() && !is_named() {
        // It may be in use all the same, or be spelt otherwise.
        let _ = write!(words, ", which is not among those that processes name, the last {NAMED} each,");
    }
    Ok(Meant { all: known, unread, words })
}

/// The same of an upstream that has to be in use.
pub(crate) async fn found_in_use(store: &RedisStore, whom: &Whom) -> Result<Meant, Box<dyn Error>> {
    found(store, whom).await.map_err(|error| match error.downcast::<Unused>() {
        Ok(unused) => format!("{unused}; its limits, scopes and shards are known as soon as a process calls it").into(),
        Err(other) => other,
    })
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

/// By the name that the program gives it, or by its whole hash.
fn by_name(seen: &Known, said: &str) -> Result<ScopeId, Unfound> {
    let is_named = |scope: &&ScopeInUse| scope.name.as_deref() == Some(said);
    let names = seen.description.iter().flat_map(|description| &description.names);
    let given = names.filter(|(_, name)| **name == *said).map(|(scope, _)| *scope);
    let in_use = seen.scopes.iter().filter(is_named).map(|scope| scope.scope);
    let found: Vec<_> = in_use.chain(given).collect::<BTreeSet<_>>().into_iter().collect();
    match found[..] {
        [scope] => Ok(scope),
        [] if said.len() == 32 && u128::from_str_radix(said, 16).is_ok() => {
            Ok(ScopeId::from_bits(u128::from_str_radix(said, 16).unwrap_or_default()))
        }
        [] => {
            let names: Vec<_> = seen.scopes.iter().take(8).map(name).collect();
            let used = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let why = format!(
                "no scope {said:?} is among those that processes name, the last {NAMED} each; there are: {used}; one of them is named by four digits of its hash or more, any other by --value or its whole hash"
            );
            Err(Unfound::unknown(why))
        }
        _ => Err(Unfound::unclear(several(said))),
    }
}

/// By the first digits of its hash, of those that are in use.
fn by_first_digits(seen: &Known, said: &str) -> Result<Option<ScopeId>, Unfound> {
    let begins = |scope: &&ScopeInUse| said.len() >= 4 && scope.scope.to_string().starts_with(said);
    let found: BTreeSet<_> = seen.scopes.iter().filter(begins).map(|scope| scope.scope).collect();
    match found.into_iter().collect::<Vec<_>>()[..] {
        [] => Ok(None),
        [scope] => Ok(Some(scope)),
        _ => Err(Unfound::unclear(several(said))),
    }
}

fn several(said: &str) -> String {
    format!("several scopes are called {said:?}: say more digits of the hash")
}

/// By its value, of the only kind of scope that there is, or of this one.
fn by_value(seen: &Known, value: &[u8], kind: Option<&str>) -> Result<ScopeId, Unfound> {
    let undescribed = || Unfound::unclear("its processes do not describe their scopes".to_owned());
    let description = seen.description.as_ref().ok_or_else(undescribed)?;
    let kinds: Vec<_> = description.kinds.iter().filter(|of| !of.is_everybody).collect();
    let names = kinds.iter().map(|of| &*of.name).collect::<Vec<_>>().join(", ");
    let found = &seen.found;
    let fits = |of: &&Kind| kind.is_none_or(|kind| *of.name == *kind || seen::common_name(found, of) == Some(kind));
    let fitting = kinds.iter().copied().filter(fits);
    // Where both fit, the upstream's own is meant.
    let (common, own): (Vec<_>, Vec<_>) = fitting.partition(|of| seen::common_name(found, of).is_some());
    match (if own.is_empty() { common } else { own })[..] {
        // A client says a host in lower case, and without a dot at its end.
        [of] => {
            let as_said = of.scope_of(value);
            let is_host = [Some(&*of.name), seen::common_name(found, of)].contains(&Some("host"));
            if !is_host || seen.names(as_said) {
                return Ok(as_said);
            }
            let host = value.to_ascii_lowercase();
            Ok(of.scope_of(host.strip_suffix(b".").unwrap_or(&host)))
        }
        ref others => {
            let names = if names.is_empty() { "none".to_owned() } else { names };
            let why = format!("say of which kind the value is, by --kind; there are: {names}");
            Err(Unfound { is_unknown: others.is_empty(), why })
        }
    }
}
