//! The command `outgate`, against a Redis that throttles use.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod hand;
mod looking;
mod picture;
mod processes;
mod several;
mod sharing;
mod terminal;

use std::process::Stdio;
use std::time::Duration;

use outgate::testing::RedisServer;
use outgate::{Limit, RedisStore, Throttle, Upstream};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

/// What a command said, and how it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
    pub(crate) wrong: String,
}

/// Runs the command against a server.
pub(crate) async fn outgate(server: &RedisServer, args: &[&str]) -> Ended {
    run(&server.url(), args, "").await
}

pub(crate) async fn run(url: &str, args: &[&str], input: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outgate"));
    command.args(args).env("OUTGATE_REDIS", url).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Whoever does not read it has ended.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = timeout(Duration::from_secs(60), child.wait_with_output()).await.expect("it ends").unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), said: text(output.stdout), wrong: text(output.stderr) }
}

impl Ended {
    /// What it said where it went well.
    #[track_caller]
    pub(crate) fn well(self) -> String {
        assert_eq!((self.code, &*self.wrong), (Some(0), ""), "{}", self.said);
        self.said
    }

    /// What it complained of where it did not.
    #[track_caller]
    pub(crate) fn wrong(self) -> String {
        assert!(self.code.is_some_and(|code| code > 0) && self.said.is_empty(), "{:?} {}", self.code, self.said);
        self.wrong
    }
}

/// Somebody who may call `github` three times an hour, has called it once, and is known to the store.
pub(crate) async fn uses_github(server: &RedisServer) -> Throttle {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let github = Upstream::new("github").limit(Limit::per_hour(3));
    let throttle = Throttle::builder().store(store).upstream(github).build().unwrap();
    drop(throttle.acquire("github").await.unwrap());
    throttle.processes("github").await.unwrap();
    throttle
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
