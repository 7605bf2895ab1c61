//! What a connection begins with: who we are, and which database is meant.
//!
//! Left to do so the client tells of what the server answers only that it refuses, be it that it is busy, or has as many clients as it takes.

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError, Value, pipe};

/// What is left to the client of what it would say.
pub(super) fn left(settings: &RedisConnectionInfo) -> RedisConnectionInfo {
    match settings.protocol() {
        ProtocolVersion::RESP2 => {
            RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name()
        }
        // `HELLO` says who we are, and its errors are told.
        _ => settings.clone().set_db(0),
    }
}

/// Says the rest, or what the server answers to it where it refuses.
pub(super) async fn enter(
    settings: &RedisConnectionInfo,
    connection: &mut MultiplexedConnection,
) -> Result<(), RedisError> {
    let rest = rest(settings);
    if rest.is_empty() {
        return Ok(());
    }
    let said: Vec<Result<Value, RedisError>> = rest.query_async(connection).await?;
    said.into_iter().try_for_each(|said| said.map(drop))
}

fn rest(settings: &RedisConnectionInfo) -> Pipeline {
    let mut rest = pipe();
    if settings.protocol() == ProtocolVersion::RESP2 {
        if let Some(password) = settings.password() {
            rest.cmd("AUTH").arg(settings.username()).arg(password);
        }
        for (what, name) in [("LIB-NAME", settings.lib_name()), ("LIB-VER", settings.lib_ver())] {
            if let Some(name) = name.filter(|_| !settings.skip_set_lib_name()) {
                rest.cmd("CLIENT").arg("SETINFO").arg(what).arg(name).ignore();
            }
        }
    }
    if settings.db() != 0 {
        rest.cmd("SELECT").arg(settings.db());
    }
    rest.ignore_errors();
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What we say ourselves, and whether the client has something to say before.
    fn said(settings: &RedisConnectionInfo) -> (String, bool) {
        let words: Vec<String> = String::from_utf8_lossy(&rest(settings).get_packed_pipeline())
            .split("\r\n")
            .filter(|word| !word.is_empty() && !word.starts_with(['*', '$']))
            .map(str::to_owned)
            .collect();
        let left = left(settings);
        let is_quiet = left.password().is_none() && left.db() == 0 && left.skip_set_lib_name();
        (words.join(" "), !is_quiet || left.protocol() != ProtocolVersion::RESP2)
    }

    #[test]
    fn who_we_are_and_which_database_is_meant_is_said_once() {
        let settings = || RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        assert_eq!(said(&settings()), (String::new(), false));
        assert_eq!(said(&settings().set_db(2)), ("SELECT 2".to_owned(), false));
        assert_eq!(said(&settings().set_password("word").set_db(2)), ("AUTH word SELECT 2".to_owned(), false));
        assert_eq!(said(&settings().set_username("me").set_password("word")), ("AUTH me word".to_owned(), false));
        assert_eq!(said(&settings().set_username("me")), (String::new(), false));
        let named = settings().set_lib_name("billing", "1");
        assert_eq!(said(&named), ("CLIENT SETINFO LIB-NAME billing CLIENT SETINFO LIB-VER 1".to_owned(), false));
        assert_eq!(said(&named.set_skip_set_lib_name()), (String::new(), false));
        let hello = settings().set_password("word").set_db(2).set_protocol(ProtocolVersion::RESP3);
        assert_eq!(said(&hello), ("SELECT 2".to_owned(), true));
        assert_eq!(left(&hello).password(), Some("word"));
    }
}
