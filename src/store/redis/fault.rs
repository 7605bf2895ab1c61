//! What a server's error means, and how it is told.

use std::fmt;

use redis::{ErrorKind, RedisError};

/// What passes by itself, as the server calls it: it starts, it changes roles, it lacks something for a while.
const PASSING: [&str; 9] =
    ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"];

/// Of these what it says to everybody, whatever they ask.
const SERVES_NOBODY: [&str; 2] = ["BUSY", "LOADING"];

/// Whether the server serves nobody for now: no other process goes by it either.
pub(super) fn serves_nobody(error: &RedisError) -> bool {
    error.code().is_some_and(|code| SERVES_NOBODY.contains(&code))
}

/// Whether waiting helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// There was no answer: the connection cannot be used any more.
    Lost,
    /// The server serves nobody for now.
    Passing,
    /// It stays until somebody changes something.
    Lasting,
}

impl Fault {
    pub(super) fn of(error: &RedisError) -> Self {
        if error.kind() == ErrorKind::AuthenticationFailed {
            return Self::Lasting;
        }
        if error.is_io_error() || error.is_timeout() || error.is_unrecoverable_error() || is_turned_away(error) {
            return Self::Lost;
        }
        match error.code() {
            Some(code) if PASSING.contains(&code) => Self::Passing,
            _ => Self::Lasting,
        }
    }
}

/// Whether the server has as many clients as it takes: it says so instead of any answer, and hangs up.
fn is_turned_away(error: &RedisError) -> bool {
    error.code() == Some("ERR") && error.detail().is_some_and(|detail| detail.starts_with("max number of clients"))
}

/// An error in the server's own words, and nothing behind it.
pub(super) struct Said(pub(super) RedisError);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.detail()) {
            (Some(code), Some(detail)) => write!(f, "{code} {}", without_arguments(without_script(detail))),
            (Some(code), None) => f.write_str(code),
            (None, _) => f.write_str(without_arguments(&self.0.to_string())),
        }
    }
}

/// As in `Display`: what the client has in store behind it may be the words of a call, a password among them.
impl fmt::Debug for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind())
    }
}

impl std::error::Error for Said {}

/// What a server says of a command that it does not know, without the words of the call: `HELLO` may hold a password.
fn without_arguments(detail: &str) -> &str {
    detail.find(", with args beginning with").map_or(detail, |end| &detail[..end])
}

/// What a server says of a call within a script, without the script's hash behind it.
pub(super) fn without_script(detail: &str) -> &str {
    detail.rfind(" script: ").map_or(detail, |end| &detail[..end])
}

#[cfg(test)]
mod tests {
    use std::io;

    use redis::ServerErrorKind;

    use super::*;

    fn said(code: &str, detail: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    #[test]
    fn what_passes_is_told_from_what_lasts() {
        for code in PASSING {
            assert_eq!(Fault::of(&said(code, "for now")), Fault::Passing, "{code}");
        }
        for code in ["NOAUTH", "NOPERM", "WRONGTYPE", "MOVED", "ASK", "CROSSSLOT", "ERR", "GARBAGE", "NEVERHEARDOF"] {
            assert_eq!(Fault::of(&said(code, "for ever")), Fault::Lasting, "{code}");
        }
        assert_eq!(Fault::of(&RedisError::from((ErrorKind::AuthenticationFailed, "no"))), Fault::Lasting);
        assert_eq!(Fault::of(&RedisError::from((ServerErrorKind::NoPerm.into(), "no"))), Fault::Lasting);
        assert_eq!(Fault::of(&RedisError::from(io::Error::from(io::ErrorKind::TimedOut))), Fault::Lost);
        assert_eq!(Fault::of(&said("ERR", "max number of clients reached")), Fault::Lost);
        assert_eq!(Fault::of(&RedisError::from((ErrorKind::Parse, "no Redis"))), Fault::Lost);
    }

    #[test]
    fn the_words_are_the_servers_without_the_hash_of_a_script() {
        let error = said("WRONGTYPE", "Operation against a key script: c5fa, on @user_script:60.");
        assert_eq!(Said(error).to_string(), "WRONGTYPE Operation against a key");
        assert_eq!(Said(redis::make_extension_error("NOAUTH".to_owned(), None)).to_string(), "NOAUTH");
        let error = said("ERR", "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 's3cret' ");
        let error = Said(error);
        assert_eq!(error.to_string(), "ERR unknown command 'HELLO'");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}
