//! What a user must be allowed: what the docs say, no more and no less.

use std::collections::BTreeSet;
use std::fs;

use outgate::store::{RedisStore, Store, StoreErrorKind};
use outgate::testing::history::History;
use outgate::testing::{ManualClock, RedisServer, Reply};

use crate::{Failure, Outcome, told, used};

/// The line of the docs, for `ACL SETUSER`.
fn line() -> Result<Vec<&'static str>, Failure> {
    let docs = include_str!("../../lua/ACL.md");
    let line = docs.split("```text\n").nth(1).and_then(|rest| rest.split("\n```").next()).ok_or("no line")?;
    Ok(line.split(' ').collect())
}

/// The commands that it allows.
fn allowed() -> Result<BTreeSet<String>, Failure> {
    Ok(line()?.into_iter().filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect())
}

/// Has a store do everything that any message can, and what a user has it do.
async fn everything(server: &RedisServer) -> Outcome {
    let url = format!("redis://outgate:secret@{}", server.addr());
    used(RedisStore::connect(&url).await?).await?;
    let mut history = History::new("up".to_owned(), 7);
    let clock = ManualClock::new(history.epoch());
    let store = RedisStore::connect(&url).await?.with_clock(clock.clone());
    for _ in 0..2_000 {
        let Some((now, message)) = history.next_message() else { break };
        clock.set(now);
        let reply = store.apply(&message).await;
        let heard = reply.as_ref().map_err(outgate::store::StoreError::kind);
        if !matches!(heard, Ok(_) | Err(StoreErrorKind::Outdated | StoreErrorKind::Duplicate)) {
            return Err(format!("{message:?}: {reply:?}").into());
        }
        history.hear(reply.map_err(|error| error.kind()));
    }
    Ok(())
}

/// What a server was told since its figures were reset, in the words of an ACL.
fn called(server: &RedisServer) -> Result<BTreeSet<String>, Failure> {
    let stats = told(server, &["INFO", "commandstats"])?;
    let lines = stats.text().ok_or("no figures")?.lines();
    let commands = lines.filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    // By those anybody becomes a user; the library names itself by the last, and does without.
    let commands =
        commands.filter(|command| !["auth", "hello", "config|resetstat", "client|setinfo"].contains(command));
    Ok(commands.map(str::to_owned).collect())
}

/// What the scripts call.
fn of_scripts() -> Result<BTreeSet<String>, Failure> {
    let mut calls = BTreeSet::new();
    for file in fs::read_dir("lua")? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "lua") {
            let text = fs::read_to_string(&path)?;
            let code: String = text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
            let words = code.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
            calls.extend(words.map(str::to_lowercase));
        }
    }
    Ok(calls)
}

#[tokio::test]
async fn the_line_of_the_docs_allows_everything_and_nothing_else() -> Outcome {
    let server = RedisServer::start()?;
    told(&server, &line()?)?;
    told(&server, &["CONFIG", "RESETSTAT"])?;
    everything(&server).await?;
    let mut needed = called(&server)?;
    needed.extend(of_scripts()?);
    // Where the server has forgotten the scripts.
    needed.insert("eval".to_owned());
    assert_eq!(needed, allowed()?);
    assert_eq!(told(&server, &["ACL", "LOG"])?, Reply::Array(Vec::new()), "nothing was denied");
    Ok(())
}

#[tokio::test]
async fn each_word_of_the_line_is_missed_at_once() -> Outcome {
    let server = RedisServer::start()?;
    let url = format!("redis://outgate:secret@{}", server.addr());
    for command in allowed()? {
        told(&server, &["ACL", "SETUSER", "outgate", "reset"])?;
        told(&server, &line()?)?;
        told(&server, &["ACL", "SETUSER", "outgate", &format!("-{command}")])?;
        told(&server, &["ACL", "LOG", "RESET"])?;
        let store = RedisStore::connect(&url).await;
        let denied = format!("{:?}", told(&server, &["ACL", "LOG"])?);
        // What a script may not call, the server refuses the script.
        let is_named = store.is_err_and(|error| error.to_string().contains("run this command"));
        assert!(denied != "Array([])" || is_named, "{command}: {denied}");
    }
    Ok(())
}
