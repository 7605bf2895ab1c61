//! The keys that a script touches.

use std::fmt::Write as _;

use redis::Cmd;

use crate::ledger::{Ask, Body, Log, Message, Renewal, ScopeId};

/// How much longer most keys are than their stem: a scope, and what is kept of it.
const BEHIND_STEM: usize = 64;

/// The keys of one upstream, written one after another into the same string.
pub(super) struct Keys {
    key: String,
    /// Up to the upstream's name, and its closing brace.
    stem: usize,
}

impl Keys {
    pub(super) fn new(prefix: &str, message: &Message) -> Self {
        // The braces keep all keys of an upstream in one slot of a Redis Cluster, so that one script may touch any of them.
        let stem = [prefix, ":v1:{", &message.upstream, "}"];
        let mut key = String::with_capacity(stem.iter().map(|part| part.len()).sum::<usize>() + BEHIND_STEM);
        key.extend(stem);
        Self { stem: key.len(), key }
    }

    pub(super) fn write(&mut self, cmd: &mut Cmd, message: &Message) {
        let logs = match &message.body {
            Body::Ask(ask) => &*ask.logs,
            Body::Usage { logs, .. } => logs,
            Body::Report { log, .. } => std::slice::from_ref(log),
            Body::Pause { scope, pause } => {
                let log = pause.log_of_calls().map(|of| &of.log);
                cmd.arg(2 + usize::from(scope.is_some()) + usize::from(log.is_some()));
                self.replay_and_states(cmd, message, scope.as_slice());
                if let Some(log) = log {
                    self.log(cmd, *scope, &log.unit);
                }
                return;
            }
            Body::Release { scope, .. } | Body::SlowDown { scope, .. } => {
                cmd.arg(2 + usize::from(scope.is_some()));
                return self.replay_and_states(cmd, message, scope.as_slice());
            }
            Body::Reset { scope, units } => {
                cmd.arg(2 + usize::from(scope.is_some()) + units.len());
                self.replay_and_states(cmd, message, scope.as_slice());
                return units.iter().for_each(|unit| self.log(cmd, *scope, unit));
            }
            Body::Look { scopes, .. } => {
                cmd.arg(2 + scopes.len());
                return self.replay_and_states(cmd, message, scopes);
            }
            Body::Renew(Renewal { upstream, .. }) | Body::Processes { upstream } => {
                cmd.arg(3);
                self.replay_and_states(cmd, message, &[]);
                return self.processes(cmd, message, upstream);
            }
        };
        let scopes = || Log::scopes(logs).flatten();
        let seats = match &message.body {
            Body::Ask(Ask { seats: Some(seats), .. }) => &*seats.limits,
            Body::Usage { seats, .. } => seats,
            _ => &[],
        };
        cmd.arg(2 + scopes().count() + logs.len() + seats.len());
        self.replay_and_states(cmd, message, &[]);
        for scope in scopes() {
            self.state(cmd, Some(scope));
        }
        for log in logs {
            self.log(cmd, log.scope, &log.unit);
        }
        for limit in seats {
            self.scope(limit.scope);
            self.key.push_str(":seats");
            cmd.arg(&self.key);
        }
    }

    /// The sender's last message, the state of the whole upstream, and those of some scopes.
    fn replay_and_states(&mut self, cmd: &mut Cmd, message: &Message, scopes: &[ScopeId]) {
        self.key.truncate(self.stem);
        let _ = write!(self.key, ":replay:{:x}:", message.id.sender);
        self.key.push_str(&message.id.stream);
        cmd.arg(&self.key);
        self.state(cmd, None);
        for &scope in scopes {
            self.state(cmd, Some(scope));
        }
    }

    /// The processes of an upstream: of several, where they share limits.
    fn processes(&mut self, cmd: &mut Cmd, message: &Message, upstream: &str) {
        self.key.truncate(self.stem);
        self.key.push_str(":processes");
        if *upstream != *message.upstream {
            let _ = write!(self.key, "@{upstream}");
        }
        cmd.arg(&self.key);
    }

    fn log(&mut self, cmd: &mut Cmd, scope: Option<ScopeId>, unit: &str) {
        self.scope(scope);
        self.key.push_str(":log:");
        self.key.push_str(unit);
        cmd.arg(&self.key);
    }

    fn state(&mut self, cmd: &mut Cmd, scope: Option<ScopeId>) {
        self.scope(scope);
        self.key.push_str(":state");
        cmd.arg(&self.key);
    }

    fn scope(&mut self, scope: Option<ScopeId>) {
        self.key.truncate(self.stem);
        if let Some(scope) = scope {
            let _ = write!(self.key, "/{scope}");
        }
    }
}
