//! A key of ours that the scripts cannot read: which, what it holds, and what to do.

use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, RedisError, Value};

use super::fault::without_script;
use super::link::run;
use super::script;

/// A key, and what is wrong with it.
pub(super) struct Unreadable {
    pub(super) key: String,
    wrong: String,
}

impl Unreadable {
    /// The key that made a call fail; `None` where it was none, or none that can be found.
    pub(super) async fn find(
        error: &RedisError,
        connection: &mut MultiplexedConnection,
        encode: &(impl Fn(&mut Cmd) + Sync),
    ) -> Option<Self> {
        match error.code() {
            // The script names the key, and has looked at more of it than can be looked at again.
            Some("GARBAGE") => {
                let key = without_script(error.detail()?).to_owned();
                let wrong = if kind(&key) == "log" {
                    "holds a list with an entry that is no time"
                } else {
                    "holds a string that Outgate has not written"
                };
                Some(Self { key, wrong: wrong.to_owned() })
            }
            Some("WRONGTYPE" | "ERR") => {
                let keys = keys(encode);
                let answer = run(connection, script::inspect(), &|cmd| inspect(cmd, &keys)).await.ok()?;
                Self::read(&keys, &answer)
            }
            _ => None,
        }
    }

    fn read(keys: &[String], answer: &Value) -> Option<Self> {
        let (place, found): (usize, String) = redis::from_redis_value_ref(answer).ok()?;
        let key = keys.get(place.checked_sub(1)?)?.clone();
        let expected = type_of(kind(&key));
        let wrong = if found == expected {
            format!("holds a {found} that Outgate has not written")
        } else {
            format!("holds a {found} where Outgate keeps a {expected}")
        };
        Some(Self { key, wrong })
    }

    /// What is wrong, and what to do.
    pub(super) fn words(&self) -> String {
        format!("the key {} {}: delete it, or choose another prefix", self.key, self.wrong)
    }
}

/// Writes keys and their kinds, as the header of `inspect.lua` says.
pub(super) fn inspect(cmd: &mut Cmd, keys: &[String]) {
    cmd.arg(keys.len()).arg(keys);
    for key in keys {
        cmd.arg(kind(key));
    }
}

/// The keys of a call.
pub(super) fn keys(encode: &(impl Fn(&mut Cmd) + Sync)) -> Vec<String> {
    let mut call = Cmd::new();
    encode(&mut call);
    let mut words = call.args_iter().map(|arg| match arg {
        Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    });
    let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
    words.take(count).collect()
}

/// What a key is to the scripts: `log` of `outgate:v1:{up}/5f3a:log:calls`.
fn kind(key: &str) -> &str {
    let name = key.split_once('}').and_then(|(_, rest)| rest.split_once(':')).map_or("", |(_, name)| name);
    name.split([':', '@']).next().unwrap_or_default()
}

/// What the server calls what the scripts keep there.
fn type_of(kind: &str) -> &'static str {
    match kind {
        "log" => "list",
        "processes" => "hash",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_what_it_is_kept_for() {
        for (key, expected) in [
            ("outgate:v1:{up}:log:calls", "log"),
            ("a:b:v1:{up}/5f3a:log:tokens:in", "log"),
            ("outgate:v1:{up}/5f3a:state", "state"),
            ("outgate:v1:{up}/5f3a:seats", "seats"),
            ("outgate:v1:{up}:replay:ff:5f3a!", "replay"),
            ("outgate:v1:{up}:processes", "processes"),
            ("outgate:v1:{up}:processes@mail", "processes"),
            ("mine", ""),
        ] {
            assert_eq!(kind(key), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_do() {
        let keys = ["o:v1:{up}:state".to_owned(), "o:v1:{up}:log:calls".to_owned()];
        let answer = |place, found: &str| Value::Array(vec![Value::Int(place), Value::BulkString(found.into())]);
        let words = |place, found| Unreadable::read(&keys, &answer(place, found)).map(|unreadable| unreadable.words());
        assert_eq!(
            words(2, "string").as_deref(),
            Some(
                "the key o:v1:{up}:log:calls holds a string where Outgate keeps a list: delete it, or choose another prefix"
            )
        );
        assert_eq!(
            words(1, "string").as_deref(),
            Some(
                "the key o:v1:{up}:state holds a string that Outgate has not written: delete it, or choose another prefix"
            )
        );
        assert_eq!((words(0, ""), words(3, "list")), (None, None));
        assert!(Unreadable::read(&keys, &Value::Nil).is_none());
    }
}
