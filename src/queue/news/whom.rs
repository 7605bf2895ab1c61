//! Of whom something is said.

use std::sync::Arc;

use crate::queue::table::Key;

/// Of whom something is said: a scope of an upstream, or the whole of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Whom {
    upstream: Arc<str>,
    /// Whose logs its calls are charged in, as the store knows it: of a whole upstream, each of its shards.
    pub(super) ledger: Arc<str>,
    /// Another shard is told the same.
    pub(super) is_echo: bool,
    pub(super) key: Key,
    /// Of which of their logs, where it is not the one that pauses speak of: each has reports of its own.
    log: Option<Arc<str>>,
}

impl Whom {
    /// Whether pauses are told of them, and not only reports of one of their logs.
    pub(crate) const fn may_be_paused(&self) -> bool {
        self.log.is_none()
    }

    pub(crate) fn new(upstream: Arc<str>, key: Key) -> Self {
        Self { ledger: Arc::clone(&upstream), is_echo: false, upstream, key, log: None }
    }

    /// The same, where the store calls it so: other upstreams share limits with it, or it has several shards, of which this is the first or
    /// not.
    pub(crate) fn within(self, ledger: &Arc<str>, is_first: bool) -> Self {
        Self { ledger: Arc::clone(ledger), is_echo: !is_first && self.key.1.is_none(), ..self }
    }

    /// The same, where something is said of a log of theirs that counts this.
    pub(crate) fn about(self, unit: &Arc<str>) -> Self {
        Self { log: Some(Arc::clone(unit)), ..self }
    }

    pub(crate) fn upstream(&self) -> &str {
        &self.upstream
    }

    pub(crate) const fn ledger(&self) -> &Arc<str> {
        &self.ledger
    }

    /// Whether it is a scope, and not the whole upstream.
    pub(crate) const fn is_scope(&self) -> bool {
        self.key.1.is_some()
    }

    pub(crate) const fn key(&self) -> Key {
        self.key
    }

    /// The stream of what is said of it.
    pub(crate) fn stream(&self) -> Arc<str> {
        let mut scope = self.key.1.map(|scope| scope.to_string()).unwrap_or_default();
        if let Some(log) = &self.log {
            scope = format!("{scope}~{log}");
        }
        if self.ledger == self.upstream {
            format!("{scope}!").into()
        } else {
            format!("{scope}!@{}", self.upstream).into()
        }
    }
}
