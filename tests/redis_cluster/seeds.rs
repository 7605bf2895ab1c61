//! What becomes of a Cluster of which no node has been heard yet.

use std::time::Duration;

use outgate::store::StoreErrorKind;
use outgate::testing::{FlakyProxy, Mode, RedisCluster, RedisServer};
use outgate::{Error, Limit, RedisStore, Throttle, Upstream};

use crate::recorder::Recorder;
use crate::{Failure, Outcome};

fn throttle(urls: &[String]) -> Result<Throttle, Failure> {
    let up = Upstream::new("up").limit(Limit::per_second(1_000));
    Ok(Throttle::builder().store(RedisStore::cluster(urls).open()?).upstream(up).build()?)
}

/// Why a call got no answer.
async fn no_answer(throttle: &Throttle) -> Result<String, Failure> {
    match throttle.acquire("up").max_wait(Duration::from_millis(300)).await {
        Err(error @ Error::StoreUnavailable { .. }) => Ok(error.to_string()),
        other => Err(format!("the store should not have answered: {other:?}").into()),
    }
}

fn gone() -> Result<String, Failure> {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(format!("redis://{}", nowhere.local_addr()?))
}

#[tokio::test]
async fn a_password_that_is_missing_or_wrong_is_a_refusal_whatever_else_is_wrong_and_is_traced() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let node = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", "{free}"])?;
    node.command(&["CONFIG", "SET", "requirepass", "secret"])?;
    for (urls, why) in [
        (vec![node.url(), gone()?], "NOAUTH Authentication required"),
        (vec![gone()?, format!("redis://:letmein@{}", node.addr())], "the password"),
    ] {
        let before = recorder.news().len();
        let error = RedisStore::cluster(&urls).connect().await.err().ok_or("connected")?;
        assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(why) && !error.to_string().contains("letmein"), "{error}");
        assert_eq!(recorder.news()[before..], ["WARN store refuses"]);
        let throttle = throttle(&urls)?;
        for _ in 0..3 {
            let told = no_answer(&throttle).await?;
            assert!(told.contains(why), "{told}");
        }
        assert_eq!(recorder.news()[before + 1..], ["WARN store refuses"], "nothing more within a minute");
    }
    Ok(())
}

/// As one that has started before it is told of the others.
#[tokio::test]
async fn a_node_that_knows_of_no_slots_is_down_and_hides_no_refusal() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let node = || RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", "{free}"]);
    let (empty, other) = (node()?, node()?);
    let throttle = throttle(&[empty.url()])?;
    for _ in 0..3 {
        let told = no_answer(&throttle).await?;
        assert!(told.contains("no node"), "{told}");
    }
    assert_eq!(recorder.news(), ["WARN store down"]);
    other.command(&["CONFIG", "SET", "requirepass", "secret"])?;
    for urls in [[empty.url(), other.url()], [other.url(), empty.url()]] {
        let error = RedisStore::cluster(urls).connect().await.err().ok_or("connected")?;
        assert!(error.kind() == StoreErrorKind::Refused && error.to_string().contains("NOAUTH"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_seed_that_hangs_up_is_quoted() -> Outcome {
    let node = RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", "{free}"])?;
    let mut client = node.client()?;
    client.command(&["CONFIG", "SET", "maxclients", "1"])?;
    let error = RedisStore::cluster([node.url()]).connect().await.err().ok_or("connected")?;
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("max number of clients"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_from_the_first_is_down_once_and_up_once() -> Outcome {
    let (recorder, _guard) = Recorder::on_this_thread();
    let cluster = RedisCluster::start(3, 0)?;
    let proxy = FlakyProxy::start(cluster.nodes()[0].addr())?;
    proxy.set(Mode::Refuse);
    let throttle = throttle(&[proxy.url()])?;
    for _ in 0..3 {
        no_answer(&throttle).await?;
    }
    assert_eq!(recorder.news(), ["WARN store down"]);
    proxy.set(Mode::Pass);
    drop(throttle.acquire("up").max_wait(Duration::from_secs(30)).await?);
    assert_eq!(recorder.news(), ["WARN store down", "INFO store up"]);
    Ok(())
}
