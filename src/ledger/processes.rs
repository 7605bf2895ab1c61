//! Which processes use an upstream, who waits there, and how they describe it.
//!
//! `lua/renew.lua` and `lua/processes.lua` say the same in Redis.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::{ScopeHasher, ScopeId, Stamp, micros};

/// For so long a process is known of that says nothing more, at most.
const KEPT: i64 = 180_000_000;
/// How often those are taken out that have said nothing for long.
const SWEEP: i64 = 5_000_000;

/// What a process says to a store of itself, for one upstream. Answered by [`Reply::Renewed`](super::Reply::Renewed).
///
/// ```
/// use outgate::ledger::{Body, Ledger, Message, MessageId, Presence, ProcessSeen, Processes, Renewal};
/// use outgate::ledger::{ScopeId, ScopePresence, Stamp};
/// use std::time::Duration;
///
/// let (mut ledger, now) = (Ledger::new(), Stamp::from_micros(5_000_000));
/// let mut presence = Presence::default();
/// presence.callers = 3;
/// presence.scopes = vec![ScopePresence::new(0, ScopeId::of(b"merchant"))];
/// let renewal = Renewal::new("gateway", presence.clone(), Duration::from_secs(20)).about("100/s");
/// let says = Message::new("gateway", MessageId::new(7, "there", 1), Body::Renew(renewal));
/// assert_eq!(ledger.apply(now, &says).unwrap().renewed(), Some(1)); // there is one process
///
/// let asks = Message::new("gateway", MessageId::nobodys(), Body::Processes { upstream: "gateway".into() });
/// let descriptions = vec![(presence.described, now, "100/s".into())];
/// let there = Processes::new(now, vec![ProcessSeen::new(7, now, presence)], descriptions);
/// assert_eq!(ledger.apply(now, &asks).unwrap().processes(), Some(there));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewal {
    /// The upstream, which has the ledger's name but where several share limits.
    pub upstream: Arc<str>,
    /// Who waits there.
    pub presence: Presence,
    /// For how long it is known of if it says nothing more: three minutes at most. Zero: it is gone.
    pub lasting: Duration,
    /// How it describes the upstream: the text of [`Presence::described`]. A store keeps it for three minutes.
    pub about: Option<Arc<str>>,
}

impl Renewal {
    /// A process that is known of for so long.
    #[must_use]
    pub fn new(upstream: impl Into<Arc<str>>, presence: Presence, lasting: Duration) -> Self {
        Self { upstream: upstream.into(), presence, lasting, about: None }
    }

    /// The same, with its description of the upstream.
    #[must_use]
    pub fn about(mut self, text: impl Into<Arc<str>>) -> Self {
        self.about = Some(text.into());
        self
    }
}

/// One process, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Presence {
    /// For how many processes it counts where limits are shared.
    pub weight: u32,
    /// Callers that wait.
    pub callers: u32,
    /// How long the one has waited who has waited longest.
    pub oldest: Duration,
    /// Which description of the upstream is its own: a hash of that.
    pub described: u64,
    /// Scopes that it uses: as many as it likes to name.
    pub scopes: Vec<ScopePresence>,
}

/// A scope that a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopePresence {
    /// Which kind of scope, by its place in the description.
    pub kind: u32,
    /// Which it is.
    pub scope: ScopeId,
    /// Callers that wait there.
    pub callers: u32,
    /// How long the one has waited who has waited longest.
    pub oldest: Duration,
}

impl ScopePresence {
    /// A scope in which nobody waits.
    #[must_use]
    pub const fn new(kind: u32, scope: ScopeId) -> Self {
        Self { kind, scope, callers: 0, oldest: Duration::ZERO }
    }
}

/// A process that uses an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessSeen {
    /// What the store calls it.
    pub sender: u64,
    /// When it said so.
    pub seen: Stamp,
    /// What it said.
    pub presence: Presence,
}

impl ProcessSeen {
    /// A process that said this then.
    #[must_use]
    pub const fn new(sender: u64, seen: Stamp, presence: Presence) -> Self {
        Self { sender, seen, presence }
    }
}

/// The processes that use an upstream, and how they describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Processes {
    /// The upstream's log time when the store answered.
    pub now: Stamp,
    /// By their names.
    pub all: Vec<ProcessSeen>,
    /// Each description by its [hash](Presence::described), when a process said it last, and its text.
    pub descriptions: Vec<(u64, Stamp, Arc<str>)>,
}

impl Processes {
    /// These processes at this time.
    #[must_use]
    pub fn new(now: Stamp, mut all: Vec<ProcessSeen>, mut descriptions: Vec<(u64, Stamp, Arc<str>)>) -> Self {
        all.sort_unstable_by_key(|process| process.sender);
        descriptions.sort_unstable_by_key(|(hash, ..)| *hash);
        Self { now, all, descriptions }
    }
}

/// Those of each upstream that has its logs in one ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry(HashMap<Arc<str>, Kept, ScopeHasher>);

#[derive(Clone, Debug)]
struct Kept {
    processes: BTreeMap<u64, Entry<Presence>>,
    descriptions: BTreeMap<u64, Entry<Arc<str>>>,
    swept: Stamp,
    /// Until when it is kept.
    until: Stamp,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    seen: Stamp,
    lapse: Stamp,
    says: T,
}

impl Kept {
    const fn new(now: Stamp) -> Self {
        Self { processes: BTreeMap::new(), descriptions: BTreeMap::new(), swept: now, until: now }
    }
}

impl Registry {
    /// A process says that it is there, or that it is gone. Says how many there are: those that fell silent are counted for
    /// some seconds more. And whether it is known how it describes the upstream.
    pub(super) fn renew(&mut self, now: Stamp, sender: u64, renewal: &Renewal) -> (u32, bool) {
        let of = self.0.entry(Arc::clone(&renewal.upstream)).or_insert_with(|| Kept::new(now));
        if now >= of.swept.plus(SWEEP) || now < of.swept {
            of.processes.retain(|_, entry| entry.lapse > now);
            of.descriptions.retain(|_, entry| entry.lapse > now);
            of.swept = now;
        }
        let lasting = micros(renewal.lasting).min(KEPT);
        if lasting > 0 {
            let entry = Entry { seen: now, lapse: now.plus(lasting), says: renewal.presence.clone() };
            of.processes.insert(sender, entry);
            if let Some(text) = &renewal.about {
                let entry = Entry { seen: now, lapse: now.plus(KEPT), says: Arc::clone(text) };
                of.descriptions.insert(renewal.presence.described, entry);
            }
        } else {
            of.processes.remove(&sender);
        }
        of.until = now.plus(KEPT);
        let is_described = of.descriptions.get(&renewal.presence.described).is_some_and(|entry| entry.lapse > now);
        (u32::try_from(of.processes.len()).unwrap_or(u32::MAX), is_described)
    }

    /// Who is there.
    pub(super) fn processes(&self, now: Stamp, upstream: &str) -> Processes {
        let Some(of) = self.0.get(upstream) else { return Processes::new(now, Vec::new(), Vec::new()) };
        let processes = of.processes.iter().filter(|(_, entry)| entry.lapse > now);
        let descriptions = of.descriptions.iter().filter(|(_, entry)| entry.lapse > now);
        Processes::new(
            now,
            processes.map(|(&sender, entry)| ProcessSeen::new(sender, entry.seen, entry.says.clone())).collect(),
            descriptions.map(|(&hash, entry)| (hash, entry.seen, Arc::clone(&entry.says))).collect(),
        )
    }

    /// Forgets what fell silent before `now`.
    pub(super) fn sweep(&mut self, now: Stamp) {
        self.0.retain(|_, of| of.until > now);
    }

    pub(super) fn is_spent(&self, now: Stamp) -> bool {
        self.0.values().all(|of| of.until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn says(callers: u32, lasting: u64) -> Renewal {
        let presence = Presence { callers, described: 7, ..Presence::default() };
        Renewal::new("up", presence, Duration::from_secs(lasting))
    }

    fn at(seconds: i64) -> Stamp {
        Stamp::from_micros(seconds * SECOND)
    }

    #[test]
    fn a_process_is_there_until_it_lapses_or_says_that_it_is_gone() {
        let mut registry = Registry::default();
        let there = |registry: &Registry, now| {
            let all = registry.processes(at(now), "up").all;
            all.iter().map(|process| (process.sender, process.presence.callers)).collect::<Vec<_>>()
        };
        assert_eq!(registry.renew(at(100), 2, &says(5, 15)).0, 1);
        assert_eq!(registry.renew(at(101), 1, &says(0, 180)).0, 2);
        assert_eq!(there(&registry, 101), [(1, 0), (2, 5)]);
        assert_eq!(registry.renew(at(104), 2, &says(4, 15)).0, 2);
        assert_eq!(there(&registry, 118), [(1, 0), (2, 4)]);
        assert_eq!(there(&registry, 119), [(1, 0)], "a process that died is told no more");
        assert_eq!(registry.renew(at(120), 3, &says(0, 180)).0, 2, "nor counted");
        assert_eq!(registry.renew(at(121), 1, &says(0, 0)).0, 1, "it is gone");
        assert_eq!(registry.renew(at(122), 1, &says(0, 0)).0, 1, "once");
        assert_eq!(there(&registry, 122), [(3, 0)]);
        assert_eq!(registry.processes(at(122), "other").all, []);
    }

    #[test]
    fn a_description_is_kept_for_three_minutes_by_its_hash() {
        let mut registry = Registry::default();
        let renew = |registry: &mut Registry, now| registry.renew(at(now), 1, &says(0, 180)).1;
        assert!(!renew(&mut registry, 0), "nobody has said it yet");
        assert!(registry.renew(at(0), 1, &says(0, 180).about("100/s")).1);
        assert!(renew(&mut registry, 60));
        let told = |now| registry.processes(at(now), "up").descriptions;
        assert_eq!(told(179), [(7, at(0), "100/s".into())]);
        assert_eq!(told(180), []);
        assert_eq!(
            [179, 180].map(|now| renew(&mut registry, now)),
            [true, false],
            "and who says no more than that is told"
        );
    }

    #[test]
    fn nothing_is_kept_of_who_fell_silent() {
        let mut registry = Registry::default();
        registry.renew(at(0), 1, &says(0, 600));
        registry.sweep(at(179));
        assert!(!registry.is_spent(at(179)) && registry.is_spent(at(180)));
        registry.sweep(at(180));
        assert!(registry.0.is_empty());
    }
}
