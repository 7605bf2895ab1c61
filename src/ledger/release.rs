//! What ends a pause before its time, and a rate that somebody sets by hand.
//!
//! `lua/release.lua`, `lua/slow_down.lua` and `lua/look.lua` say the same in Redis.

use super::{Cause, Ledger, ScopeId, Stamp};

/// For how long a release by hand voids what was told before it, and what was forgotten by hand is no loss: longer than any pause may last.
pub(super) const MARK_MEMORY: i64 = 32 * 86_400 * 1_000_000;
/// The same of a call that looked whether a pause still held, and was served: as long as messages of before may come.
const SERVED_MEMORY: i64 = 3_600 * 1_000_000;
/// A release is told to whoever looks for so long. Processes look each second.
const RECENT: i64 = 5_000_000;
/// So many releases are told one by one.
const MANY: usize = 256;

/// A rate set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slow {
    /// Millionths of the quotas.
    pub(super) factor: i64,
    pub(super) until: Stamp,
    pub(super) began: Stamp,
}

/// When a scope was released; and of a whole upstream, which of its scopes were lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Releases {
    by_hand: Option<Stamp>,
    /// When the last call started that looked whether a pause still held, and was served.
    served: Option<Stamp>,
    /// The scopes that were released lately. `None`: the whole upstream, or too many to say.
    recent: Vec<(Option<ScopeId>, Stamp)>,
}

impl Releases {
    pub(super) const fn none() -> Self {
        Self { by_hand: None, served: None, recent: Vec::new() }
    }

    pub(super) const fn is_nothing(&self) -> bool {
        self.by_hand.is_none() && self.served.is_none() && self.recent.is_empty()
    }

    /// What of it still matters.
    pub(super) fn at(&self, now: Stamp) -> Self {
        Self {
            by_hand: self.by_hand.filter(|mark| mark.plus(MARK_MEMORY) > now),
            served: self.served.filter(|mark| mark.plus(SERVED_MEMORY) > now),
            recent: self.recent.iter().copied().filter(|(_, at)| at.plus(RECENT) > now).collect(),
        }
    }

    /// The last release by hand: what was imposed before it is void.
    pub(super) fn by_hand(&self) -> Stamp {
        self.by_hand.unwrap_or(Stamp::NEVER)
    }

    /// A refusal of a call from before this says nothing any more.
    pub(super) fn newest(&self) -> Stamp {
        self.by_hand().max(self.served.unwrap_or(Stamp::NEVER))
    }

    fn add(&mut self, scope: Option<ScopeId>, now: Stamp) {
        if self.recent.len() >= MANY {
            // Those that are kept as the clock may be set back.
            self.recent.retain(|(_, at)| at.plus(RECENT) > now);
        }
        if self.recent.len() >= MANY {
            self.recent = vec![(None, now)];
        } else {
            self.recent.push((scope, now));
        }
    }
}

/// What a process that looks is told of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Looked {
    /// The upstream's log time when the store answered: the next look says it.
    pub now: Stamp,
    /// Scopes whose pauses were ended since the last look; `None` is all of them. Whoever waits there asks again.
    pub released: Vec<Option<ScopeId>>,
    /// For the whole upstream, and then for each scope that was looked at: until when nobody sends, or sent as far as is remembered, and
    /// why. `None`: the store knows of no pause.
    pub paused: Vec<Option<(Stamp, Cause)>>,
}

impl Looked {
    /// What was released, and what is paused.
    #[must_use]
    pub const fn new(now: Stamp, released: Vec<Option<ScopeId>>, paused: Vec<Option<(Stamp, Cause)>>) -> Self {
        Self { now, released, paused }
    }
}

impl Ledger {
    /// Ends the pauses and the rates of a scope, or of the whole upstream and all its scopes. Where `served` is the start of a call
    /// that looked whether a pause still held: that pause alone. Says whether anything was to end.
    pub(super) fn release(&mut self, now: Stamp, scope: Option<ScopeId>, served: Option<Stamp>) -> bool {
        let released = self.upstream.constraints().releases.by_hand();
        let ends = self.scope_mut(scope).constrain(|of, _| {
            let mut next = of.kept(now);
            next.pause = None;
            if let Some(started) = served {
                let looked_at = of.pausing(now).filter(|pause| pause.is_ended_by(started));
                if looked_at.is_none_or(|pause| scope.is_some() && pause.began < released) {
                    return false;
                }
                next.releases.served = next.releases.served.max(Some(started));
            } else {
                (next.rate, next.slow) = (None, None);
                next.releases.by_hand = Some(now);
            }
            *of = next;
            true
        });
        if ends {
            self.upstream.constrain(|all, _| {
                *all = all.kept(now);
                all.releases.add(scope, now);
            });
        }
        ends
    }

    /// Lowers the quotas of a scope by hand.
    pub(super) fn slow_down(&mut self, now: Stamp, scope: Option<ScopeId>, factor: i64, micros: i64) {
        self.scope_mut(scope).constrain(|of, _| {
            *of = of.kept(now);
            of.slow = Some(Slow { factor, until: now.plus(micros), began: now });
        });
    }

    /// What was released since `since`, and what is, or was, paused of the whole upstream and of some scopes.
    pub(super) fn look(&self, now: Stamp, since: Stamp, scopes: &[ScopeId]) -> Looked {
        let lately = self.upstream.constraints().releases.at(now).recent;
        let released = if since.plus(RECENT) <= now {
            vec![None]
        } else {
            lately.iter().filter(|(_, at)| *at >= since).map(|(scope, _)| *scope).collect()
        };
        let all = std::iter::once(None).chain(scopes.iter().copied().map(Some));
        let paused = |scope| self.in_force(now, scope).last_pause().map(|(until, reason)| (until, reason.cause));
        Looked::new(now, released, all.map(paused).collect())
    }
}
