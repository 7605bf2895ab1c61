//! A message that is sent again, by whomever, acts once.

use std::time::Duration;

use outgate::testing::{FlakyProxy, Mode, RedisCluster, Reply};
use outgate::{Limit, RedisStore, Throttle, Upstream};
use tokio::task::JoinSet;

use crate::{Failure, Outcome, until};

/// A Cluster whose nodes are reached through proxies alone: that is where they say that they are.
struct Proxied {
    cluster: RedisCluster,
    proxies: Vec<FlakyProxy>,
}

impl Proxied {
    async fn start() -> Result<Self, Failure> {
        let cluster = RedisCluster::start(3, 0)?;
        let mut proxies = Vec::new();
        for node in cluster.nodes() {
            let proxy = FlakyProxy::start(node.addr())?;
            node.command(&["CONFIG", "SET", "cluster-announce-port", &proxy.addr().port().to_string()])?;
            proxies.push(proxy);
        }
        until(|| {
            let mut all = true;
            for node in cluster.nodes() {
                let slots = format!("{:?}", node.command(&["CLUSTER", "SLOTS"])?);
                all &= proxies.iter().all(|proxy| slots.contains(&format!("Int({})", proxy.addr().port())));
            }
            Ok(all)
        })
        .await?;
        Ok(Self { cluster, proxies })
    }

    /// The node that has the log of an upstream, and how long that is.
    fn log(&self, name: &str) -> Result<(usize, i64), Failure> {
        let key = format!("outgate:v1:{{{name}}}:log:calls");
        for (place, node) in self.cluster.nodes().iter().enumerate() {
            if let Reply::Int(length) = node.command(&["LLEN", &key])? {
                return Ok((place, length));
            }
        }
        Err("nobody has it".into())
    }
}

#[tokio::test]
async fn asks_and_hand_backs_act_once_however_often_replies_of_a_node_are_lost() -> Outcome {
    let proxied = Proxied::start().await?;
    let seed = proxied.proxies[0].url();
    let plenty = Limit::new(10_000, Duration::from_secs(60));
    let builder = Throttle::builder().store(RedisStore::cluster([&seed]).connect().await?);
    let names = ["one", "two", "three", "four"];
    let throttle =
        names.iter().fold(builder, |builder, name| builder.upstream(Upstream::new(*name).limit(plenty.clone())));
    let throttle = throttle.build()?;
    for name in names {
        drop(throttle.acquire(name).await?);
        let (node, mut granted) = proxied.log(name)?;
        assert_eq!(granted, 1);
        for cuts in [1, 2, 3] {
            proxied.proxies[node].set(Mode::CutBeforeReply(cuts));
            let mut callers = JoinSet::new();
            for _ in 0..20 {
                let throttle = throttle.clone();
                callers.spawn(async move { throttle.acquire(name).await });
            }
            let permits = callers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
            granted += 20;
            assert_eq!(proxied.log(name)?, (node, granted), "{name}, {cuts} cuts");
            proxied.proxies[node].set(Mode::CutBeforeReply(cuts));
            for permit in permits.into_iter().take(5) {
                permit.hand_back();
            }
            granted -= 5;
            until(|| Ok(proxied.log(name)? == (node, granted) && proxied.proxies[node].mode() == Mode::Pass)).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_replies_of_nodes_are_no_longer_doubled_every_answer_is_its_own() -> Outcome {
    let proxied = Proxied::start().await?;
    let seed = proxied.proxies[0].url();
    crate::doubled::heals(RedisStore::cluster([seed]).connect().await?, &proxied.proxies).await
}
