//! The Lua scripts, each with the prelude in front.

use std::sync::LazyLock;

/// A script and the hash by which the server knows it.
pub(super) struct Script {
    pub(super) body: &'static str,
    pub(super) hash: String,
}

macro_rules! script {
    ($verb:ident) => {
        pub(super) fn $verb() -> &'static Script {
            static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
                let body = concat!(
                    include_str!("../../../lua/prelude.lua"),
                    include_str!(concat!("../../../lua/", stringify!($verb), ".lua"))
                );
                Script { body, hash: redis::Script::new(body).get_hash().to_owned() }
            });
            &SCRIPT
        }
    };
}

script!(book);
script!(hand_back);
script!(hold);
script!(learn);
script!(usage);

/// All scripts, to be loaded on every new connection.
pub(super) fn all() -> [&'static Script; 5] {
    [book(), hand_back(), hold(), learn(), usage()]
}
