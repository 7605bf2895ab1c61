//! What it costs that processes say who waits in them: `cargo test --test lua presence -- --nocapture` prints it,
//! and of more processes with `OUTGATE_PROCESSES=1000`.

use std::sync::Arc;
use std::time::Duration;

use outgate::ledger::{Body, Message, MessageId, Presence, Renewal, ScopeId, ScopePresence};
use outgate::testing::RedisServer;
use outgate::{Limit, RedisStore, Scope, Store, Throttle, Upstream};

use crate::must;

/// Processes, each of which has callers that wait in so many scopes for a minute.
const PROCESSES: u64 = 50;
const SCOPES: u128 = 8;
/// One every 5 s, of which the first describes the upstream.
const A_MINUTE: u64 = 12;

/// How an upstream of three limits is described.
async fn description() -> Arc<str> {
    let up = Upstream::new("up").limit(Limit::per_second(100).burst(20)).limit(Limit::in_flight(25));
    let up = up.limit(Limit::per_hour(5_000).each(Scope::bearer_token())).name_scope("s3cret", "release-bot");
    let throttle = must(Throttle::builder().upstream(up).build());
    drop(must(throttle.acquire("up").scope("s3cret").await));
    let seen = must(throttle.processes("up").await);
    seen.descriptions[0].2.clone()
}

#[tokio::test]
async fn a_process_whose_callers_wait_tells_twelve_small_messages_a_minute() {
    let server = must(RedisServer::start());
    let store = must(RedisStore::connect(&server.url()).await);
    let about = description().await;
    let processes = std::env::var("OUTGATE_PROCESSES").map_or(PROCESSES, |count| must(count.parse()));
    let said = |section: &str, name: &str| -> f64 {
        let report = must(server.command(&["INFO", section])).text().unwrap_or_default().to_owned();
        let line = report.lines().find_map(|line| line.split_once(name)).unwrap_or_else(|| panic!("{name}: {report}"));
        must(line.1.split(',').next().unwrap_or_default().trim().parse())
    };
    must(server.command(&["CONFIG", "RESETSTAT"]));
    for round in 1..=A_MINUTE {
        for sender in 1..=processes {
            let mut presence = Presence::default();
            (presence.callers, presence.oldest, presence.described) = (24, Duration::from_secs(8), 7);
            presence.scopes = (0..SCOPES).map(|scope| ScopePresence::new(0, ScopeId::from_bits(scope))).collect();
            let renewal = Renewal::new("up", presence, Duration::from_secs(20));
            let renewal = if round == 1 { renewal.about(Arc::clone(&about)) } else { renewal };
            let message = Message::new("up", MessageId::new(sender, "+", round), Body::Renew(renewal));
            must(store.apply(&message).await);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let messages = (processes * A_MINUTE) as f64;
    let [input, output] =
        ["total_net_input_bytes:", "total_net_output_bytes:"].map(|name| said("stats", name) / messages);
    let time = said("commandstats", &format!("cmdstat_evalsha:calls={messages},usec=")) / messages;
    println!(
        "{A_MINUTE} messages a minute for each process and upstream, of {input:.0} bytes, answered by {output:.0}; {time:.0} µs of Redis each, \
         with {processes} processes and {SCOPES} scopes in each"
    );
    assert!(input < 1_500.0 && output < 150.0, "{input} {output} bytes");
}
