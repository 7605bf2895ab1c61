//! The Lua scripts, each with what it shares with others in front.

use std::sync::LazyLock;

/// A script and the hash by which the server knows it.
pub(super) struct Script {
    pub(super) body: String,
    pub(super) hash: String,
}

/// A script without its comments: from a connection that still lacks its password a server takes 16 kB at once, no more.
fn bare(text: &'static str) -> String {
    let code = |line: &'static str| line.split_once("-- ").map_or(line, |(code, _)| code).trim();
    let lines = text.lines().map(code).filter(|line| !line.is_empty() && *line != "--");
    lines.flat_map(|line| [line, "\n"]).collect()
}

macro_rules! script {
    ($verb:ident: $($file:literal),+) => {
        pub(super) fn $verb() -> &'static Script {
            static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
                let body = bare(concat!($(include_str!(concat!("../../../lua/", $file, ".lua"))),+));
                let hash = redis::Script::new(&body).get_hash().to_owned();
                Script { body, hash }
            });
            &SCRIPT
        }
    };
}

script!(book: "lane", "prelude", "book");
script!(hand_back: "prelude", "hand_back");
script!(hold: "prelude", "tell", "hold");
script!(learn: "prelude", "tell", "learn");
script!(usage: "prelude", "usage");

/// All scripts, to be loaded on every new connection.
pub(super) fn all() -> [&'static Script; 5] {
    [book(), hand_back(), hold(), learn(), usage()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_small_enough_for_a_server_that_wants_a_password_first() {
        for script in all() {
            assert!(script.body.len() < 16 * 1_024, "{}", script.body.len());
            assert!(!script.body.contains("--"), "no comment is left");
        }
    }
}
