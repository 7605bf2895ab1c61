//! Which format a prefix is kept in, so that two releases which do not understand each other never share it.
//!
//! Scripts are called by their hashes, so each release calls its own. They share what is kept: logs, states, and the messages that
//! are remembered.

use redis::{Cmd, Value, cmd};

use crate::error::{StoreError, StoreErrorKind};

/// To be raised with each change after which an older release would misread what is kept, or a newer one what is there.
const FORMAT: u32 = 3;
/// By which it is found among the upstreams of a prefix: none has a tilde in its name.
pub(super) const NAME: &str = "~format";
/// It is kept for a year after somebody connected.
const KEPT_FOR: &str = "31622400000";
/// Writes it, unless another is kept: answers with what is kept then.
const CLAIM: &str = "\
    local kept = redis.call('get', KEYS[1])
    if kept and string.match(kept, '^%d+') ~= string.match(ARGV[1], '^%d+') then return kept end
    redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
    return ARGV[1]";

/// Has this release's format known, where no other is kept.
pub(super) fn claim(prefix: &str) -> Cmd {
    let own = format!("{FORMAT} {}", env!("CARGO_PKG_VERSION"));
    let mut claim = cmd("EVAL");
    claim.arg(CLAIM).arg(1).arg(key(prefix)).arg(own).arg(KEPT_FOR);
    claim
}

/// What the answer to that means: why this release cannot share what another keeps.
pub(super) fn judge(prefix: &str, answer: &Value) -> Result<(), StoreError> {
    judge_kept(prefix, if let Value::BulkString(kept) = answer { kept } else { &[] })
}

fn key(prefix: &str) -> String {
    format!("{prefix}:v1:{{{NAME}}}")
}

/// What was kept: a format, and by which release.
fn judge_kept(prefix: &str, kept: &[u8]) -> Result<(), StoreError> {
    let (format, release) = read(kept).unwrap_or_default();
    if format == FORMAT {
        return Ok(());
    }
    let theirs = match format {
        0 => "something that is no format".to_owned(),
        _ => format!("format {format} of Outgate {release}"),
    };
    let own = env!("CARGO_PKG_VERSION");
    let words = format!(
        "the prefix {prefix:?} is kept in {theirs}, and this is Outgate {own}, which keeps format {FORMAT}: give this release another \
         prefix, or stop all processes of the other one and delete {:?}",
        key(prefix)
    );
    Err(StoreError::new(StoreErrorKind::Refused, words))
}

/// Nothing that somebody else wrote is shown, unless it can be a version.
fn read(kept: &[u8]) -> Option<(u32, &str)> {
    let (format, release) = std::str::from_utf8(kept).ok()?.split_once(' ')?;
    let is_version = release.len() < 20 && release.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    Some((format.parse().ok()?, if is_version { release } else { "…" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_shared_by_its_releases_alone() {
        for shared in ["3 0.1.0", "3 0.9.12", "3 ?"] {
            assert!(judge_kept("mine", shared.as_bytes()).is_ok(), "{shared}");
        }
        for (kept, named) in [
            ("2 0.1.0", "format 2 of Outgate 0.1.0,"),
            ("4 s3cret!", "format 4 of Outgate …,"),
            ("", "something that is no format,"),
            ("0 0.1.0", "something that is no format,"),
            ("s3cret", "something that is no format,"),
        ] {
            let words = judge_kept("mine", kept.as_bytes()).unwrap_err().to_string();
            assert!(words.contains(named) && words.contains("keeps format 3") && !words.contains("s3cret"), "{words}");
        }
    }
}
