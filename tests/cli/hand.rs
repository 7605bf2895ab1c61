//! What is seen and done by hand, while throttles of this process use the Redis.

use std::time::{Duration, Instant};

use outgate::feedback::Feedback;
use outgate::testing::RedisServer;
use outgate::{Limit, RedisStore, Scope, Throttle, Upstream};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::terminal::Terminal;
use crate::{json, outgate, run};

/// A process, by a store of its own.
async fn process(server: &RedisServer, upstream: Upstream) -> Throttle {
    let store = RedisStore::connect(&server.url()).await.unwrap();
    Throttle::builder().store(store).upstream(upstream).build().unwrap()
}

fn github() -> Upstream {
    Upstream::new("github")
        .limit(Limit::per_hour(3))
        .limit(Limit::per_hour(2).each(Scope::bearer_token()))
        .limit(Limit::in_flight(10))
        .name_scope("s3cret", "release-bot")
}

/// Callers that wait for a scope: what aborts them when it is dropped.
async fn waiting(throttle: &Throttle, scope: &str, count: usize) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    for _ in 0..count {
        let call = throttle.acquire("github").scope(scope);
        callers.spawn(async move { drop(call.await) });
    }
    while throttle.snapshot().upstream("github").unwrap().callers < count {
        sleep(Duration::from_millis(5)).await;
    }
    callers
}

#[tokio::test]
async fn status_shows_what_is_used_and_who_waits_in_all_processes() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (process(&server, github()).await, process(&server, github()).await);
    for token in ["s3cret", "s3cret", "other"] {
        drop(here.acquire("github").scope(token).await.unwrap());
    }
    let _callers = waiting(&there, "s3cret", 3).await;
    for throttle in [&here, &there] {
        throttle.processes("github").await.unwrap();
    }

    let text = outgate(&server, &["status"]).await.well();
    let first = "github: 2 processes, 3 callers wait, the first for ";
    assert!(text.starts_with(first), "{text}");
    let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let has = |begin: &str| assert!(lines.iter().any(|line| line.starts_with(begin)), "{begin}: {text}");
    has("3/h 3 of 3, next in ");
    has("2/h each bearer_token 2 of 2, next in ");
    has("2/h each bearer_token 1 of 2");
    // A process keeps seats for its next calls.
    has("10 in flight ");
    assert!(text.contains("release-bot: 3 callers wait"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");

    let all = json(&outgate(&server, &["status", "github", "--json"]).await.well());
    let up = &all[0];
    assert_eq!((&up["upstream"], &up["callers"], &up["paused_ms"]), (&"github".into(), &3.into(), &0.into()));
    assert_eq!(up["processes"].as_array().unwrap().len(), 2);
    let scopes = up["scopes"].as_array().unwrap();
    assert_eq!((scopes.len(), &scopes[0]["name"], &scopes[0]["processes"]), (2, &"release-bot".into(), &2.into()));
    assert_eq!((&up["limits"][0]["used"], &up["limits"][0]["quota"]), (&3.into(), &3.into()));

    let limits = outgate(&server, &["limits"]).await.well();
    assert_eq!(limits, "github: 3/h\ngithub: 2/h each bearer_token\ngithub: 10 in flight\n");
    let wrong = outgate(&server, &["status", "gitlab"]).await.wrong();
    assert_eq!(wrong, "outgate: no process has used an upstream \"gitlab\" lately; in use: github\n");
}

#[tokio::test]
async fn a_pause_by_hand_holds_everybody_up_until_it_is_released() {
    let server = RedisServer::start().unwrap();
    let up = || Upstream::new("github").limit(Limit::per_second(100));
    let (here, there) = (process(&server, up()).await, process(&server, up()).await);
    for throttle in [&here, &there] {
        drop(throttle.acquire("github").await.unwrap());
        throttle.processes("github").await.unwrap();
    }
    let said = outgate(&server, &["pause", "github", "10m"]).await.well();
    assert_eq!(said, "github is paused for 10m\n");
    let text = outgate(&server, &["status"]).await.well();
    assert!(text.contains("paused for 9m"), "{text}");
    for throttle in [&here, &there] {
        assert!(throttle.try_acquire("github").await.is_err(), "nobody sends");
    }
    let waits = [&here, &there].map(|throttle| tokio::spawn(throttle.acquire("github").into_future()));
    let said = outgate(&server, &["release", "github"]).await.well();
    assert_eq!(said, "github is released\n");
    for waits in waits {
        let permit = timeout(Duration::from_secs(30), waits).await.expect("not for ten minutes");
        drop(permit.unwrap().unwrap());
    }
}

/// Asks for the limits of an upstream until they are seen.
async fn seen_limits(server: &RedisServer, name: &str) -> usize {
    let begin = Instant::now();
    loop {
        let ended = outgate(server, &["status", name, "--json"]).await;
        let limits =
            json(if ended.code == Some(0) { &ended.said } else { "[]" })[0]["limits"].as_array().map_or(0, Vec::len);
        if limits > 0 || begin.elapsed() > Duration::from_secs(20) {
            return limits;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Nobody calls meanwhile.
#[tokio::test]
async fn an_upstream_whose_first_call_was_refused_is_seen_and_released_also_after_a_loss_of_data() {
    let server = RedisServer::start().unwrap();
    let throttle = process(&server, Upstream::new("github").limit(Limit::per_second(100))).await;
    let permit = throttle.acquire("github").await.unwrap();
    let headers = HeaderMap::from_iter([(RETRY_AFTER, 3_600.into())]);
    throttle.answered(&permit, StatusCode::TOO_MANY_REQUESTS, &headers);
    drop(permit);
    assert_eq!(seen_limits(&server, "github").await, 1);
    server.command(&["FLUSHALL"]).unwrap();
    assert_eq!(seen_limits(&server, "github").await, 1, "said again");
    while !outgate(&server, &["status"]).await.well().contains("paused for 59m") {
        sleep(Duration::from_millis(100)).await;
    }
    outgate(&server, &["release", "github"]).await.well();
    let call = timeout(Duration::from_secs(30), throttle.acquire("github"));
    drop(call.await.expect("not in an hour").unwrap());
}

#[tokio::test]
async fn an_upstream_of_several_shards_is_paused_and_shown_in_all_of_them() {
    let server = RedisServer::start().unwrap();
    let up = Upstream::new("shop").scope_by(Scope::header("x-merchant")).limit(Limit::per_hour(100)).shards(8);
    let throttle = process(&server, up).await;
    let merchants: Vec<String> = (0..20).map(|merchant| format!("m-{merchant}")).collect();
    for merchant in &merchants {
        drop(throttle.acquire("shop").scope(merchant).await.unwrap());
    }
    throttle.processes("shop").await.unwrap();
    let all = json(&outgate(&server, &["status", "--json", "--scopes", "20"]).await.well());
    let limits = all[0]["limits"].as_array().unwrap();
    assert_eq!((limits.len(), limits.iter().map(|limit| limit["used"].as_u64().unwrap()).sum::<u64>()), (20, 20));
    outgate(&server, &["pause", "shop", "10m"]).await.well();
    for merchant in &merchants {
        assert!(throttle.usage_in("shop", merchant).await.unwrap().paused.is_some(), "{merchant}");
    }
    outgate(&server, &["release", "shop"]).await.well();
    for merchant in &merchants {
        assert!(throttle.usage_in("shop", merchant).await.unwrap().paused.is_none(), "{merchant}");
    }
}

#[tokio::test]
async fn an_upstream_that_no_process_uses_is_released_in_all_its_shards() {
    let server = RedisServer::start().unwrap();
    let of_shop = async || {
        let up = Upstream::new("shop").scope_by(Scope::header("x-merchant")).limit(Limit::per_hour(100)).shards(8);
        process(&server, up).await
    };
    let merchants: Vec<String> = (0..20).map(|merchant| format!("m-{merchant}")).collect();
    let throttle = of_shop().await;
    throttle.report("shop", &Feedback::refused(Duration::from_secs(3_600))).await.unwrap();
    assert!(throttle.usage_in("shop", "m-0").await.unwrap().paused.is_some());
    throttle.close().await;
    let wrong = outgate(&server, &["pause", "shop", "5m"]).await.wrong();
    assert!(
        wrong.ends_with("in use: none; its limits, scopes and shards are known as soon as a process calls it\n"),
        "{wrong}"
    );
    let said = outgate(&server, &["release", "shop"]).await.well();
    assert_eq!(said, "shop is released, though no process has used it lately\n");
    let throttle = of_shop().await;
    for merchant in &merchants {
        assert!(throttle.usage_in("shop", merchant).await.unwrap().paused.is_none(), "{merchant}");
    }
    let wrong = outgate(&server, &["release", "sho"]).await.wrong();
    assert!(
        wrong.ends_with(
            "in use: none; nor is anything kept of it: one that shares limits is released under their name\n"
        ),
        "{wrong}"
    );
}

#[tokio::test]
async fn one_scope_is_slowed_down_by_its_name_its_hash_or_its_value() {
    let server = RedisServer::start().unwrap();
    let throttle = process(&server, github()).await;
    for token in ["s3cret", "other"] {
        drop(throttle.acquire("github").scope(token).await.unwrap());
    }
    let scopes = throttle.scopes("github").await.unwrap();
    let hash = |name: Option<&str>| scopes.iter().find(|scope| scope.name.as_deref() == name).unwrap().scope;
    let rate = async |token| throttle.usage_in("github", token).await.unwrap().rate;
    let (bot, other) = (hash(Some("release-bot")), hash(None).to_string());

    let said = outgate(&server, &["slow", "github", "50%", "10m", "--scope", "release-bot"]).await.well();
    assert_eq!(said, format!("github for the scope {bot} is slowed down to 50% for 10m\n"));
    assert_eq!((rate("s3cret").await, rate("other").await), (0.5, 1.0));
    outgate(&server, &["slow", "github", "25%", "10m", "--scope", &other[..8]]).await.well();
    assert_eq!((rate("s3cret").await, rate("other").await), (0.5, 0.25));
    outgate(&server, &["release", "github", "--value", "other"]).await.well();
    assert_eq!((rate("s3cret").await, rate("other").await), (0.5, 1.0));
    run(&server.url(), &["release", "github", "--value", "-"], "s3cret\n").await.well();
    assert_eq!((rate("s3cret").await, rate("other").await), (1.0, 1.0));
    let wrong = outgate(&server, &["release", "github", "--scope", "nobody"]).await.wrong();
    assert!(
        wrong.starts_with(
            "outgate: no scope \"nobody\" is among those that processes name, the last 64 each; there are: "
        ),
        "{wrong}"
    );
}

#[tokio::test]
async fn what_only_limits_calls_in_flight_cannot_be_slowed_down() {
    let server = RedisServer::start().unwrap();
    let throttle = process(&server, Upstream::new("seats").limit(Limit::in_flight(5))).await;
    drop(throttle.acquire("seats").await.unwrap());
    throttle.processes("seats").await.unwrap();
    let wrong = outgate(&server, &["slow", "seats", "50%", "10m"]).await.wrong();
    assert!(wrong.starts_with("outgate: seats only limits how many calls are in flight"), "{wrong}");
}

#[tokio::test]
async fn a_scope_that_nobody_uses_is_known_by_the_name_that_the_program_gives_it() {
    let server = RedisServer::start().unwrap();
    let throttle = process(&server, github().name_scope("idle", "other-bot").name_scope("spare", "other-bot")).await;
    drop(throttle.acquire("github").scope("other").await.unwrap());
    throttle.processes("github").await.unwrap();
    outgate(&server, &["slow", "github", "50%", "10m", "--scope", "release-bot"]).await.well();
    let rate = async |token| throttle.usage_in("github", token).await.unwrap().rate;
    assert_eq!((rate("s3cret").await, rate("other").await), (0.5, 1.0));
    let wrong = outgate(&server, &["pause", "github", "5m", "--scope", "other-bot"]).await.wrong();
    assert_eq!(wrong, "outgate: several scopes are called \"other-bot\": say more digits of the hash\n");
}

#[tokio::test]
async fn what_counted_is_forgotten_by_hand_where_somebody_is_sure() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (process(&server, github()).await, process(&server, github()).await);
    for (throttle, token) in [(&here, "s3cret"), (&here, "s3cret"), (&there, "other")] {
        drop(throttle.acquire("github").scope(token).await.unwrap());
    }
    here.processes("github").await.unwrap();
    let used = async |token| {
        let limits = here.usage_in("github", token).await.unwrap().limits;
        limits[..2].iter().map(|limit| limit.used).collect::<Vec<_>>()
    };
    for typed in ["", "github\nreally\n"] {
        let wrong = run(&server.url(), &["reset", "github"], typed).await.wrong();
        assert_eq!(wrong, "outgate: nobody is at a terminal to be asked whether they are sure: say --yes\n");
    }
    assert_eq!((used("s3cret").await, used("other").await), (vec![3, 2], vec![3, 1]));
    let said = outgate(&server, &["reset", "github", "--yes"]).await.well();
    let kept = "each scope keeps what it counted: name it to reset it";
    assert_eq!(said, format!("github is reset: what counted is forgotten; {kept}\n"));
    assert_eq!((used("s3cret").await, used("other").await), (vec![0, 2], vec![0, 1]));
    let said = outgate(&server, &["reset", "github", "--scope", "release-bot", "--yes"]).await.well();
    assert!(
        said.starts_with("github for the scope ") && said.ends_with(" is reset: what counted is forgotten\n"),
        "{said}"
    );
    assert_eq!((used("s3cret").await, used("other").await), (vec![0, 0], vec![0, 1]));
    for throttle in [&here, &there] {
        let call = timeout(Duration::from_secs(30), throttle.acquire("github").scope("s3cret"));
        drop(call.await.expect("not in an hour").unwrap());
    }
}

#[tokio::test]
async fn at_a_terminal_what_is_forgotten_is_shown_and_asked_for_twice() {
    let server = RedisServer::start().unwrap();
    let throttle = process(&server, github()).await;
    drop(throttle.acquire("github").scope("s3cret").await.unwrap());
    throttle.processes("github").await.unwrap();
    for (second, code, used) in [("no", 1, 1), ("really", 0, 0)] {
        let mut terminal = Terminal::run(&server, 24, 120, r#""$OUTGATE" reset github"#);
        for (question, answer) in [("Type github if", "github"), ("Type really:", second)] {
            while !terminal.screen().contents().contains(question) {
                assert!(terminal.take().await, "{}", terminal.screen().contents());
            }
            terminal.press(&format!("{answer}\r")).await;
        }
        assert_eq!(terminal.end().await, Some(code), "{}", terminal.screen().contents());
        let shown = terminal.screen().contents();
        assert!(
            shown.starts_with("github forgets what counts, also of callers without a value, but not of any other scope, and as much as is allowed may")
                && shown.contains("\n  3/h "),
            "{shown}"
        );
        assert!(
            shown.contains("1 of 3") && shown.contains(if code == 0 { "github is reset" } else { "nothing is done" }),
            "{shown}"
        );
        assert_eq!(throttle.usage_in("github", "s3cret").await.unwrap().limits[0].used, used);
    }
}

#[tokio::test]
async fn limits_that_upstreams_share_are_reset_with_those_of_the_one_alone() {
    let server = RedisServer::start().unwrap();
    let up = Upstream::new("files").limit(Limit::per_hour(5)).shares("drive", [Limit::per_hour(9)]);
    let throttle = process(&server, up).await;
    drop(throttle.acquire("files").await.unwrap());
    throttle.processes("files").await.unwrap();
    let used = async || throttle.usage("files").await.unwrap().limits.iter().map(|limit| limit.used).sum::<u32>();
    assert_eq!(used().await, 2);
    let reset = outgate(&server, &["reset", "files", "--yes"]).await.well();
    assert_eq!(reset, "files is reset: what counted is forgotten, also for those that share its limits\n");
    assert_eq!(used().await, 0);
    let paused = outgate(&server, &["pause", "files", "5m"]).await.well();
    assert_eq!(paused, "files is paused for 5m, also for those that share its limits\n");
}

#[tokio::test]
async fn a_host_is_named_as_people_write_it_and_a_value_that_nobody_named_is_said() {
    let server = RedisServer::start().unwrap();
    let throttle = process(&server, Upstream::new("crawl").limit(Limit::per_hour(5).each(Scope::host()))).await;
    drop(throttle.acquire("crawl").scope("example.com").await.unwrap());
    throttle.processes("crawl").await.unwrap();
    let said = outgate(&server, &["pause", "crawl", "5m", "--value", "Example.COM."]).await.well();
    assert!(!said.contains("is not among"), "{said}");
    assert!(throttle.usage_in("crawl", "example.com").await.unwrap().paused.is_some());
    let said = outgate(&server, &["pause", "crawl", "5m", "--value", "example.org"]).await.well();
    assert!(
        said.contains(", which is not among those that processes name, the last 64 each, is paused for 5m"),
        "{said}"
    );
}

#[tokio::test]
async fn what_is_wrong_is_named_and_a_password_is_not() {
    let server = RedisServer::start().unwrap();
    let said = outgate(&server, &["status"]).await.well();
    assert_eq!(said, "no process with the prefix outgate has used an upstream lately\n");
    for (args, words) in [
        (&["pause", "github", "soon"][..], "no length of time such as 5m"),
        (&["pause", "github", "0s"], "not between a moment and 31 days"),
        (&["slow", "github", "150%", "5m"], "no part between 0.1% and 100%"),
        (&["slow", "github", "half", "5m"], "no part between 0.1% and 100%"),
        (&["slow", "github", "50", "5m"], "without a %: write 50%"),
        (&["pause", "github", "5m"], "no process has used an upstream \"github\" lately; in use: none"),
        (&["status", "--prefix", "a b"], "a prefix must not be empty"),
        (&["status", "--servers", "redis://u:pa55word@any"], "--sentinel"),
        (&["--servers", "redis://u:pa55word@any", "status", "--cluster"], "--sentinel"),
        (&["--cluster", "status", "--sentinel", "mymaster"], "say one of them"),
    ] {
        let wrong = outgate(&server, args).await.wrong();
        assert!(wrong.contains(words) && !wrong.contains("pa55word"), "{args:?}: {wrong}");
    }
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_outgate"));
    let ended = command.arg("status").env("OUTGATE_SERVERS", "redis://u:pa55word@any").output().await.unwrap();
    let wrong = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && wrong.contains("--sentinel") && !wrong.contains("pa55word"), "{wrong}");
    let addr = server.addr();
    for url in [format!("redis://nobody:pa55word@{addr}"), "redis://:pa55word@127.0.0.1:1".into(), "pa55word".into()] {
        let wrong = run(&url, &["status"], "").await.wrong();
        assert!(!wrong.contains("pa55word") && wrong.starts_with("outgate: "), "{wrong}");
    }
    let help = run("redis://:pa55word@127.0.0.1:1", &["--help"], "").await.well();
    assert!(help.contains("OUTGATE_REDIS") && !help.contains("pa55word"), "{help}");
}

#[tokio::test]
async fn whoever_reads_may_have_seen_enough() {
    let server = RedisServer::start().unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_outgate"));
    command.arg("status").env("OUTGATE_REDIS", server.url()).kill_on_drop(true);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = timeout(Duration::from_secs(60), child.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
}
