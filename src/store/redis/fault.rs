//! What a server's error means, and how it is told.

use std::fmt;

use redis::{ErrorKind, RedisError};

/// What passes by itself, as the server calls it: it starts, it changes roles, it lacks something for a while.
const PASSING: [&str; 9] =
    ["BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN"];

/// Of these what it says to everybody, whatever they ask.
const SERVES_NOBODY: [&str; 2] = ["BUSY", "LOADING"];

/// What a replica says that had been a primary.
const DEMOTED: [&str; 2] = ["MASTERDOWN", "READONLY"];

/// Whether another server serves in the place of this one, to which its address may lead by now.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    error.code().is_some_and(|code| DEMOTED.contains(&code))
}

/// What a server says that has as many clients as it takes: "… reached", or "… + cluster connections reached".
const FULL: &str = "max number of clients";

/// Whether that is what a server says to a connection that it does not take: in protected mode, or with as many as it takes.
pub(super) fn takes_no_connection(error: &RedisError) -> bool {
    error.code() == Some("DENIED") || is_full(error)
}

fn is_full(error: &RedisError) -> bool {
    error.code() == Some("ERR") && error.detail().is_some_and(|detail| detail.contains(FULL))
}

/// Whether the server serves nobody for now: no other process goes by it either.
pub(super) fn serves_nobody(error: &RedisError) -> bool {
    error.code().is_some_and(|code| SERVES_NOBODY.contains(&code))
}

/// Of what passes by itself: what a server lacks that serves its slots all the same.
#[cfg(feature = "redis-cluster")]
const LACKS: [&str; 2] = ["MISCONF", "OOM"];

/// Whether a server refuses a call so of which it has the slot: another one has not taken over.
#[cfg(feature = "redis-cluster")]
pub(super) fn has_slot(error: &RedisError) -> bool {
    match Fault::of(error) {
        Fault::Lost => false,
        Fault::Passing => error.code().is_some_and(|code| LACKS.contains(&code)),
        Fault::Lasting => !error.code().is_some_and(|code| ["ASK", "MOVED"].contains(&code)),
    }
}

/// Why no connection was made, with the code that the client takes from what a server answers to `SELECT`.
pub(super) fn with_code(error: RedisError) -> RedisError {
    let detail = error.detail().filter(|_| error.code() == Some("ERR"));
    match detail.and_then(|detail| Some((code_of(detail)?, detail.to_owned()))) {
        Some((code, detail)) => redis::make_extension_error(code.to_owned(), Some(detail)),
        None => error,
    }
}

/// Of a server that serves nobody: "Redis is busy running a script", or whatever its name is.
fn code_of(detail: &str) -> Option<&'static str> {
    let (_, what) = detail.split_once(" is ")?;
    let starts = [("busy running a ", "BUSY"), ("loading the dataset", "LOADING")];
    starts.into_iter().find_map(|(start, code)| what.starts_with(start).then_some(code))
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
        if error.is_io_error() || error.is_timeout() || error.is_unrecoverable_error() {
            return Self::Lost;
        }
        match error.code() {
            Some(code) if PASSING.contains(&code) => Self::Passing,
            _ if is_full(error) => Self::Passing,
            _ => Self::Lasting,
        }
    }
}

/// What is found out as a connection is made: a server whose certificate is not trusted stays so.
pub(super) fn of_connecting(error: &RedisError) -> Fault {
    if is_not_trusted(error) { Fault::Lasting } else { Fault::of(error) }
}

#[cfg(feature = "redis-rustls")]
fn is_not_trusted(error: &RedisError) -> bool {
    use std::error::Error;
    use std::io;
    use std::sync::Arc;

    // The client keeps it so, behind its own error.
    let of_client = error.source().and_then(|of| of.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = of_client.and_then(|of| of.downcast_ref::<io::Error>());
    let tls = io.and_then(io::Error::get_ref).and_then(|of| of.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// Other clients say so themselves.
#[cfg(not(feature = "redis-rustls"))]
const fn is_not_trusted(_: &RedisError) -> bool {
    false
}

/// An error in the server's own words, and nothing behind it.
pub(super) struct Said(pub(super) RedisError);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.kind() == ErrorKind::AuthenticationFailed {
            // The client keeps the server's words to itself.
            return f.write_str("the server refuses the user or the password, or has as many clients as it takes");
        }
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
        assert_eq!(Fault::of(&RedisError::from((ErrorKind::Parse, "no Redis"))), Fault::Lost);
    }

    #[cfg(feature = "redis-cluster")]
    #[test]
    fn what_a_node_refuses_says_nothing_of_where_the_slot_is_unless_another_one_may_have_it() {
        for code in ["WRONGTYPE", "NOPERM", "ERR", "OUTDATED", "DUPLICATE", "GARBAGE", "OOM", "MISCONF"] {
            assert!(has_slot(&said(code, "here")), "{code}");
        }
        for code in
            ["READONLY", "MASTERDOWN", "CLUSTERDOWN", "LOADING", "BUSY", "NOREPLICAS", "TRYAGAIN", "MOVED", "ASK"]
        {
            assert!(!has_slot(&said(code, "here no more")), "{code}");
        }
        assert!(!has_slot(&RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))));
        assert!(!has_slot(&RedisError::from((ErrorKind::Parse, "no Redis"))));
    }

    #[test]
    fn a_server_that_serves_nobody_is_known_by_its_words_where_the_client_has_taken_the_code() {
        let refused = |detail: &str| {
            let words = "Redis server refused to switch database";
            with_code(RedisError::from((ServerErrorKind::ResponseError.into(), words, detail.to_owned())))
        };
        for (code, detail) in [
            ("BUSY", "Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
            ("BUSY", "Redis is busy running a module command."),
            ("BUSY", "Valkey is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."),
            ("LOADING", "Redis is loading the dataset in memory"),
            ("LOADING", "Valkey is loading the dataset in memory"),
        ] {
            let error = refused(detail);
            assert!(Fault::of(&error) == Fault::Passing && serves_nobody(&error), "{detail}");
            assert_eq!(Said(error).to_string(), format!("{code} {detail}"));
        }
        for detail in ["max number of clients reached", "max number of clients + cluster connections reached"] {
            let error = refused(detail);
            assert!(Fault::of(&error) == Fault::Passing && !serves_nobody(&error) && takes_no_connection(&error));
        }
        for detail in ["DB index is out of range", "Redis is running in protected mode"] {
            assert_eq!(Fault::of(&refused(detail)), Fault::Lasting, "{detail}");
        }
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
