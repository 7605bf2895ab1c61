//! The Lua scripts, each with what it shares with others in front.

use std::sync::LazyLock;

use redis::Cmd;

/// How many arguments most calls have at most, and in how many bytes beside their script.
const ARGUMENTS: usize = 12;
const ROOM: usize = 768;

/// A script and the hash by which the server knows it.
pub(super) struct Script {
    pub(super) body: String,
    pub(super) hash: String,
}

impl Script {
    /// A call by the script's hash; `encode` writes keys and arguments.
    pub(super) fn by_hash(&self, encode: &impl Fn(&mut Cmd)) -> Cmd {
        call("EVALSHA", &self.hash, encode)
    }

    /// The same call by the script's body.
    pub(super) fn by_body(&self, encode: &impl Fn(&mut Cmd)) -> Cmd {
        call("EVAL", &self.body, encode)
    }
}

fn call(verb: &str, script: &str, encode: &impl Fn(&mut Cmd)) -> Cmd {
    let mut cmd = Cmd::with_capacity(ARGUMENTS, script.len() + ROOM);
    cmd.arg(verb).arg(script);
    encode(&mut cmd);
    cmd
}

/// A script without its comments and most of its blanks, so that less is sent to a server that has forgotten it.
fn bare(text: &'static str) -> String {
    let code = |line: &'static str| line.split_once("-- ").map_or(line, |(code, _)| code).trim();
    let lines = text.lines().map(code).filter(|line| !line.is_empty() && *line != "--");
    let mut bare: String = lines.flat_map(|line| [line, "\n"]).collect();
    for (wide, narrow) in NARROWED {
        bare = bare.replace(wide, narrow);
    }
    bare
}

/// What needs no blanks, where it stands in no string.
const NARROWED: [(&str, &str); 6] = [(", ", ","), (" = ", "="), (" + ", "+"), ("{ ", "{"), (" }", "}"), (" == ", "==")];

/// Parts of a script, each in a function of its own inside of the one before.
///
/// Lua 5.1 looks for each local that a new function uses among all of those that any function uses already, one by one. Those of an outer
/// function it knows by their place.
fn nested(parts: &[String]) -> String {
    let ends = "end)()".repeat(parts.len() - 1);
    parts.join("return (function()\n") + &ends
}

macro_rules! script {
    ($verb:ident: $($($file:literal),+);+) => {
        pub(super) fn $verb() -> &'static Script {
            static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
                let body = nested(&[$(bare(concat!($(include_str!(concat!("../../../lua/", $file, ".lua"))),+))),+]);
                let hash = redis::Script::new(&body).get_hash().to_owned();
                Script { body, hash }
            });
            &SCRIPT
        }
    };
}

script!(book: "head", "first_look", "first_answer"; "state"; "list", "bucket", "calendar", "boundaries", "named_terms", "log", "life", "contenders", "shares", "turns", "debt", "loss", "again", "holders", "roll_call", "seats", "claims", "book");
script!(pause: "head", "state", "list", "rate", "pause");
script!(release: "head", "state", "release");
script!(slow_down: "head", "state", "slow_down");
script!(reset: "head", "state", "reset");
script!(look: "head", "state", "look");
script!(report: "head", "state", "list", "bucket", "report");
script!(usage: "head", "state", "list", "bucket", "calendar", "boundaries", "named_terms", "log", "holders", "usage");
script!(renew: "head", "state", "renew");
script!(processes: "head", "state", "processes");
script!(inspect: "inspect");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_comment_of_a_script_is_sent() {
        let all = [book, pause, release, slow_down, reset, look, report, usage, renew, processes, inspect];
        assert!(all.iter().all(|script| !script().body.contains("--")));
    }

    #[test]
    fn no_string_of_a_script_loses_a_blank() {
        for script in [
            include_str!("../../../lua/again.lua"),
            include_str!("../../../lua/book.lua"),
            include_str!("../../../lua/boundaries.lua"),
            include_str!("../../../lua/bucket.lua"),
            include_str!("../../../lua/calendar.lua"),
            include_str!("../../../lua/claims.lua"),
            include_str!("../../../lua/debt.lua"),
            include_str!("../../../lua/first_answer.lua"),
            include_str!("../../../lua/first_look.lua"),
            include_str!("../../../lua/head.lua"),
            include_str!("../../../lua/holders.lua"),
            include_str!("../../../lua/inspect.lua"),
            include_str!("../../../lua/life.lua"),
            include_str!("../../../lua/list.lua"),
            include_str!("../../../lua/log.lua"),
            include_str!("../../../lua/look.lua"),
            include_str!("../../../lua/loss.lua"),
            include_str!("../../../lua/named_terms.lua"),
            include_str!("../../../lua/pause.lua"),
            include_str!("../../../lua/processes.lua"),
            include_str!("../../../lua/rate.lua"),
            include_str!("../../../lua/release.lua"),
            include_str!("../../../lua/renew.lua"),
            include_str!("../../../lua/report.lua"),
            include_str!("../../../lua/roll_call.lua"),
            include_str!("../../../lua/seats.lua"),
            include_str!("../../../lua/shares.lua"),
            include_str!("../../../lua/slow_down.lua"),
            include_str!("../../../lua/state.lua"),
            include_str!("../../../lua/turns.lua"),
            include_str!("../../../lua/usage.lua"),
        ] {
            for line in script.lines().map(|line| line.split("--").next().unwrap_or_default()) {
                for string in line.split('\'').skip(1).step_by(2) {
                    assert!(NARROWED.iter().all(|(wide, _)| !string.contains(wide)), "{line}");
                }
            }
        }
    }
}
