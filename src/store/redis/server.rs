//! What a server says of itself: whether logs are safe there. Pure.

/// What a server reports of itself, in the lines of `INFO`.
pub(super) struct Server<'a>(pub(super) &'a str);

/// Why logs are not safe on a server, or cannot be kept there.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Doubt<'a> {
    /// It may evict logs, by this policy: calls wait then, and what processes used that are gone is given twice.
    Evicts(&'a str),
    /// It takes no writes.
    IsReplica,
    /// It is older than Redis 7.0: this version.
    TooOld(&'a str),
}

impl<'a> Server<'a> {
    /// Everything that is doubtful; nothing where it does not say.
    pub(super) fn doubts(&self) -> impl Iterator<Item = Doubt<'a>> {
        let policy = self.said("maxmemory_policy:").filter(|&policy| policy != "noeviction");
        let evicts = policy.filter(|_| self.said("maxmemory:").is_some_and(|bytes| bytes != "0"));
        let is_replica = self.said("role:") == Some("slave");
        // Valkey says a version of Redis that it is compatible with.
        let version = self.said("redis_version:");
        let old = version.filter(|version| major(version).is_some_and(|major| major < 7));
        let doubts = [evicts.map(Doubt::Evicts), is_replica.then_some(Doubt::IsReplica), old.map(Doubt::TooOld)];
        doubts.into_iter().flatten()
    }

    /// What is said behind `name`.
    pub(super) fn said(&self, name: &str) -> Option<&'a str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }
}

impl Doubt<'_> {
    /// Traces it.
    pub(super) fn warn(&self) {
        match self {
            Self::Evicts(policy) => {
                tracing::warn!(policy, "store may evict logs, its maxmemory-policy should be noeviction");
            }
            Self::IsReplica => tracing::warn!("store is a replica, which takes no writes"),
            Self::TooOld(version) => {
                tracing::warn!(version, "store is too old, Outgate needs Redis 7.0 or Valkey 7.2");
            }
        }
    }

    /// By what it is told from others.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Evicts(_) => "evicts",
            Self::IsReplica => "is replica",
            Self::TooOld(_) => "too old",
        }
    }
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubts(lines: &[&str]) -> String {
        let report = lines.join("\r\n");
        format!("{:?}", Server(&report).doubts().collect::<Vec<_>>())
    }

    #[test]
    fn a_report_is_read_line_by_line() {
        let sound =
            ["# Server", "redis_version:7.0.15", "role:master", "maxmemory:0", "maxmemory_policy:noeviction", ""];
        assert_eq!(doubts(&sound), "[]");
        assert_eq!(doubts(&["maxmemory:0", "maxmemory_policy:allkeys-lru"]), "[]", "it has all the memory there is");
        assert_eq!(doubts(&["maxmemory:9", "maxmemory_policy:allkeys-lru"]), r#"[Evicts("allkeys-lru")]"#);
        assert_eq!(doubts(&["redis_version:6.2.14", "role:slave"]), r#"[IsReplica, TooOld("6.2.14")]"#);
        for version in ["7.2.4", "8.0.1", "10.1.0"] {
            assert_eq!(doubts(&[&format!("redis_version:{version}")]), "[]");
        }
    }

    #[test]
    fn what_is_not_said_is_not_doubted() {
        for report in
            ["", "maxmemory_policy", "redis_version:", "redis_version:mine", "role:", "maxmemory_policy:allkeys-lru"]
        {
            assert_eq!(doubts(&[report]), "[]", "{report}");
        }
    }
}
