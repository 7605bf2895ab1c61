//! The upstreams of a throttle, by their names and by what requests say. A change replaces all of it at once.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use http::{HeaderMap, Method};
use reqwest::Url;

use crate::client::router::Table;
use crate::config::plan::Registered;
use crate::config::request_head::RequestHead;
use crate::error::ConfigError;
use crate::ledger::ScopeHasher;

/// The upstreams that are registered at some moment.
#[derive(Debug)]
pub(crate) struct Registry {
    /// In the order of registration.
    pub(crate) upstreams: Vec<Arc<Registered>>,
    by_name: HashMap<Arc<str>, Arc<Registered>, ScopeHasher>,
    table: Table,
}

/// Places of upstreams, in the order of registration.
pub(crate) struct Places(HashMap<usize, usize, ScopeHasher>);

impl Places {
    /// The place of an upstream of any edition, where it is registered.
    pub(crate) fn of(&self, registered: &Registered) -> Option<usize> {
        self.0.get(&registered.index()).copied()
    }
}

impl Registry {
    /// Where each upstream stands.
    pub(crate) fn places(&self) -> Places {
        Places(self.upstreams.iter().enumerate().map(|(place, of)| (of.index(), place)).collect())
    }

    /// These upstreams, or what is wrong with them together.
    pub(crate) fn new(upstreams: Vec<Arc<Registered>>) -> Result<Self, ConfigError> {
        let mut by_name = HashMap::default();
        for registered in &upstreams {
            let name = &registered.upstream.name;
            if by_name.insert(Arc::clone(name), Arc::clone(registered)).is_some() {
                return Err(ConfigError::new(name, "name", "two upstreams have this name"));
            }
        }
        check_common_limits(&upstreams)?;
        let table = Table::new(upstreams.iter().map(|registered| &registered.upstream));
        Ok(Self { upstreams, by_name, table })
    }

    /// Warns of upstreams to which no request can belong, as all belong to others that were registered before.
    pub(crate) fn warning_of_hidden(self) -> Self {
        let all: Vec<_> = self.upstreams.iter().map(|registered| &registered.upstream).collect();
        for (at, hidden) in all.iter().enumerate() {
            let by = self.table.hidden_by(at, &all).and_then(|before| all.get(before));
            if let Some(before) = by {
                tracing::warn!(
                    upstream = &*hidden.name,
                    before = &*before.name,
                    "no request belongs to it: others take them before; register what is narrower first"
                );
            }
        }
        self
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Registered>> {
        self.by_name.get(name)
    }

    /// It has taken the place of another: callers of what is there no more look anew, and what upstreams have taken over
    /// from those before goes by what is said of them now.
    fn succeeds(&self, before: &Self) {
        let is_here =
            |known: &Arc<Registered>| self.find(&known.upstream.name).is_some_and(|new| Arc::ptr_eq(new, known));
        before.upstreams.iter().filter(|known| !is_here(known)).for_each(|gone| gone.replace());
        for new in &self.upstreams {
            new.crowd.admit_at_most(new.upstream.max_waiting);
            new.estimated.iter().for_each(|estimated| estimated.go_by(&new.upstream));
        }
    }

    /// Whether a call of this upstream to the first URL was redirected to where others are called: no request to the second can belong to it, as
    /// some to the first do, but to another one. Of a request that a client makes anew nobody knows the method, nor what a closure would say.
    fn leaves(&self, upstream: &str, from: &Url, to: &Url) -> bool {
        let ((is_own, _), (may_be_own, may_be_others)) = (self.may_be(upstream, from), self.may_be(upstream, to));
        is_own && may_be_others && !may_be_own
    }

    /// Whether a request to a URL may belong to this upstream, and whether to another one, by its host and path, and some method.
    fn may_be(&self, upstream: &str, url: &Url) -> (bool, bool) {
        let (own, others, headers) = (Cell::new(false), Cell::new(false), HeaderMap::new());
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD] {
            self.table.find(&RequestHead::new(&method, url, &headers), |index| {
                let found = self.upstreams.get(index).map(|found| &found.upstream);
                let accepts = found.map_or(Some(false), |found| found.accepts_by(&method));
                if accepts != Some(false) {
                    let is_own = found.is_some_and(|found| *found.name == *upstream);
                    if is_own { own.set(true) } else { others.set(true) }
                }
                accepts == Some(true)
            });
        }
        (own.get(), others.get())
    }

    /// The upstream that a request belongs to.
    pub(crate) fn first_match(&self, request: &RequestHead<'_>) -> Option<&Arc<Registered>> {
        let accepts = |index: usize| self.upstreams.get(index).is_some_and(|found| found.upstream.accepts(request));
        self.table.find(request, accepts).and_then(|index| self.upstreams.get(index))
    }
}

/// Upstreams that share limits say the same of them, and no upstream has the name that they share them under.
fn check_common_limits(upstreams: &[Arc<Registered>]) -> Result<(), ConfigError> {
    let mut shared = HashMap::new();
    for upstream in upstreams.iter().map(|registered| &registered.upstream) {
        let Some((name, limits)) = upstream.common_limits() else { continue };
        let wrong = |reason| Err(ConfigError::new(&upstream.name, "shares", reason));
        if upstreams.iter().any(|other| other.upstream.name == *name) {
            return wrong(format!("{name:?} is the name of an upstream"));
        }
        if *shared.entry(name).or_insert_with(|| limits.clone()) != limits {
            return wrong(format!("another upstream says other limits of {name:?}"));
        }
    }
    Ok(())
}

/// The registry of the moment.
#[derive(Debug)]
pub(crate) struct Current {
    /// That of the beginning: mostly it stays so, and no call takes a lock to read it. It is kept as long as this, changed or not.
    first: Arc<Registry>,
    /// Another has taken its place.
    is_changed: AtomicBool,
    latest: RwLock<Arc<Registry>>,
    /// How many times upstreams have been registered since: one change at a time.
    changes: Mutex<u64>,
}

impl Current {
    pub(crate) fn new(registry: Registry) -> Self {
        let first_free = registry.upstreams.len() as u64;
        let first = Arc::new(registry);
        let latest = RwLock::new(Arc::clone(&first));
        Self { first, is_changed: AtomicBool::new(false), latest, changes: Mutex::new(first_free) }
    }

    pub(crate) fn get(&self) -> Arc<Registry> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> RwLockReadGuard<'_, Arc<Registry>> {
        self.latest.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Registered>> {
        let find = |registry: &Registry| registry.find(name).map(Arc::clone);
        if self.is_changed.load(Ordering::Acquire) { find(&self.lock()) } else { find(&self.first) }
    }

    /// The upstream that a request belongs to.
    #[inline]
    pub(crate) fn first_match(&self, request: &RequestHead<'_>) -> Option<Arc<Registered>> {
        let find = |registry: &Registry| registry.first_match(request).map(Arc::clone);
        // A closure of the program may decide, and may do anything: no lock is held meanwhile.
        if self.is_changed.load(Ordering::Acquire) { find(&self.get()) } else { find(&self.first) }
    }

    /// Whether a call of this upstream was redirected to where others are called.
    pub(crate) fn leaves(&self, upstream: &str, from: &Url, to: &Url) -> bool {
        self.get().leaves(upstream, from, to)
    }

    /// Replaces it, where `change` makes another of it. That is given the next number of an upstream, and counts it up.
    pub(crate) fn change<T, E>(
        &self,
        change: impl FnOnce(&Registry, &mut u64) -> Result<(Registry, T), E>,
    ) -> Result<T, E> {
        let mut changes: MutexGuard<'_, u64> = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let (registry, made) = change(&self.get(), &mut changes)?;
        let registry = Arc::new(registry);
        let mut latest = self.latest.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *latest, Arc::clone(&registry));
        // Under the lock, so that whoever has seen the change finds by it.
        self.is_changed.store(true, Ordering::Release);
        drop(latest);
        // Before the next change, which closes the queues of all before it.
        registry.succeeds(&before);
        drop(changes);
        // What closures of the program hold may do anything when it goes.
        drop(before);
        Ok(made)
    }
}
