//! A proxy that loses, delays and cuts what passes between a client and Redis.

use std::{
    io,
    time::{Duration, Instant},
};

use outgate::testing::{FlakyProxy, Mode, RedisServer, Reply, RespClient};

const PATIENT: Duration = Duration::from_secs(10);
const HASTY: Duration = Duration::from_millis(30);

struct Scene {
    redis: RedisServer,
    proxy: FlakyProxy,
}

impl Scene {
    fn new() -> io::Result<Self> {
        let redis = RedisServer::start()?;
        let proxy = FlakyProxy::start(redis.addr())?;
        Ok(Self { redis, proxy })
    }

    /// A client whose connection through the proxy is known to work.
    fn client(&self) -> io::Result<RespClient> {
        let mut client = RespClient::connect(self.proxy.addr(), PATIENT)?;
        client.command(&["PING"])?;
        Ok(client)
    }

    fn n_in_redis(&self) -> io::Result<Option<i64>> {
        Ok(self.redis.command(&["GET", "n"])?.text().and_then(|text| text.parse().ok()))
    }
}

#[test]
fn it_passes_and_counts_whole_requests() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut client = scene.client()?;
    let large = "x".repeat(3_000_000);
    client.command(&["SET", "large", &large])?;
    client.send(&["INCR", "n"])?;
    client.send(&["STRLEN", "large"])?;
    assert_eq!((client.receive()?, client.receive()?), (Reply::Int(1), Reply::Int(3_000_000)));
    assert_eq!(client.command(&["GET", "large"])?, Reply::Bulk(large.into_bytes()));
    assert_eq!((scene.proxy.connections(), scene.proxy.requests()), (1, 5));
    assert_eq!(scene.proxy.url(), format!("redis://{}", scene.proxy.addr()));
    Ok(())
}

#[test]
fn swallowed_replies_never_come_and_the_connection_ends_with_the_mode() -> io::Result<()> {
    let scene = Scene::new()?;
    let (mut client, mut idle) = (scene.client()?, scene.client()?);
    scene.proxy.set(Mode::SwallowReplies);
    client.send(&["INCR", "n"])?;
    while scene.n_in_redis()? != Some(1) {}
    client.set_patience(HASTY)?;
    let silence = client.receive().map_err(|error| error.kind());
    assert!(matches!(silence, Err(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)), "{silence:?}");
    scene.proxy.set(Mode::Pass);
    assert!(client.command(&["GET", "n"]).is_err());
    assert_eq!(idle.command(&["GET", "n"])?.text(), Some("1"));
    Ok(())
}

#[test]
fn the_connection_is_cut_in_place_of_the_next_replies_and_then_it_passes() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut first = scene.client()?;
    scene.proxy.set(Mode::CutBeforeReply(2));
    let mut second = RespClient::connect(scene.proxy.addr(), PATIENT)?;
    for client in [&mut first, &mut second] {
        let kind = client.command(&["INCR", "n"]).map_err(|error| error.kind());
        assert!(matches!(kind, Err(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)), "{kind:?}");
    }
    assert_eq!(scene.n_in_redis()?, Some(2));
    assert_eq!(scene.proxy.mode(), Mode::Pass);
    assert_eq!(scene.client()?.command(&["INCR", "n"])?, Reply::Int(3));
    Ok(())
}

#[test]
fn replies_are_garbled_and_doubled() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut client = scene.client()?;
    scene.proxy.set(Mode::DoubleReplies);
    assert_eq!(client.command(&["INCR", "n"])?, Reply::Int(1));
    assert_eq!(client.receive()?, Reply::Int(1));
    scene.proxy.set(Mode::GarbleReplies);
    let kind = client.command(&["INCR", "n"]).map_err(|error| error.kind());
    assert!(
        matches!(kind, Err(io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::WouldBlock)),
        "{kind:?}"
    );
    assert_eq!(scene.n_in_redis()?, Some(2));
    scene.proxy.set(Mode::Pass);
    assert_eq!(scene.client()?.command(&["INCR", "n"])?, Reply::Int(3));
    Ok(())
}

#[test]
fn refusing_closes_old_and_new_connections_and_passes_nothing() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut old = scene.client()?;
    scene.proxy.set(Mode::Refuse);
    assert!(old.command(&["INCR", "n"]).is_err());
    assert!(RespClient::connect(scene.proxy.addr(), PATIENT)?.command(&["INCR", "n"]).is_err());
    assert_eq!(scene.n_in_redis()?, None);
    scene.proxy.set(Mode::Pass);
    assert_eq!(scene.client()?.command(&["INCR", "n"])?, Reply::Int(1));
    Ok(())
}

#[test]
fn a_cut_closes_what_is_there_and_nothing_else() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut old = scene.client()?;
    for cut in [
        |proxy: &FlakyProxy| proxy.cut(),
        |proxy: &FlakyProxy| {
            proxy.set(Mode::Refuse);
            proxy.set(Mode::Pass);
        },
    ] {
        cut(&scene.proxy);
        let mut new = scene.client()?;
        assert!(old.command(&["PING"]).is_err());
        assert_eq!(new.command(&["PING"])?.text(), Some("PONG"));
        old = new;
    }
    Ok(())
}

#[test]
fn a_black_hole_holds_everything_until_it_ends() -> io::Result<()> {
    let scene = Scene::new()?;
    let (mut old, mut hasty) = (scene.client()?, scene.client()?);
    scene.proxy.set(Mode::Blackhole);
    let mut new = RespClient::connect(scene.proxy.addr(), PATIENT)?;
    old.send(&["INCR", "n"])?;
    new.send(&["INCR", "n"])?;
    hasty.set_patience(HASTY)?;
    assert!(hasty.command(&["PING"]).is_err());
    assert_eq!(scene.n_in_redis()?, None);
    scene.proxy.set(Mode::Pass);
    old.receive()?;
    new.receive()?;
    assert_eq!(scene.n_in_redis()?, Some(2));
    Ok(())
}

#[test]
fn every_reply_is_delayed_by_the_same_time_and_their_order_is_kept() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut client = scene.client()?;
    let delay = Duration::from_millis(60);
    scene.proxy.set(Mode::Delay(delay));
    let sent = Instant::now();
    client.send(&["INCR", "n"])?;
    std::thread::sleep(delay / 3);
    client.send(&["INCR", "n"])?;
    assert_eq!(client.receive()?, Reply::Int(1));
    assert!(sent.elapsed() >= delay);
    assert_eq!(client.receive()?, Reply::Int(2));
    assert!(sent.elapsed() >= delay + delay / 3);
    client.send(&["INCR", "n"])?;
    while scene.n_in_redis()? != Some(3) {}
    scene.proxy.set(Mode::Pass);
    client.send(&["INCR", "n"])?;
    assert_eq!((client.receive()?, client.receive()?), (Reply::Int(3), Reply::Int(4)));
    Ok(())
}

#[test]
fn requests_and_replies_are_delayed_apart() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut client = scene.client()?;
    let (request, reply) = (Duration::from_millis(40), Duration::from_millis(60));
    scene.proxy.set(Mode::DelayBothWays { request, reply });
    let (before, sent) = (scene.proxy.requests(), Instant::now());
    client.send(&["INCR", "n"])?;
    while scene.n_in_redis()? != Some(1) {}
    assert!(sent.elapsed() >= request);
    assert_eq!(scene.proxy.requests(), before + 1);
    assert_eq!(client.receive()?, Reply::Int(1));
    assert!(sent.elapsed() >= request + reply);
    client.send(&["INCR", "n"])?;
    scene.proxy.set(Mode::DelayBothWays { request, reply: Duration::ZERO });
    client.send(&["INCR", "n"])?;
    scene.proxy.set(Mode::Pass);
    client.send(&["INCR", "n"])?;
    assert_eq!(
        (client.receive()?, client.receive()?, client.receive()?),
        (Reply::Int(2), Reply::Int(3), Reply::Int(4))
    );
    Ok(())
}

#[test]
fn every_reply_is_delayed_by_a_time_of_its_own_and_their_order_is_kept() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut client = scene.client()?;
    let (from, to) = (Duration::from_millis(10), Duration::from_millis(50));
    scene.proxy.set(Mode::Jitter { from, to });
    let mut took = Vec::new();
    for _ in 0..16 {
        let sent = Instant::now();
        client.command(&["INCR", "n"])?;
        took.push(sent.elapsed());
    }
    took.sort_unstable();
    let (least, most) = (took[0], took[took.len() - 1]);
    // That sixteen draws lie within a quarter of the range happens once in fifty million times.
    assert!(least >= from && most > least + to.saturating_sub(from) / 4, "{took:?}");
    for sent in 17..=32 {
        client.send(&["INCR", "n"])?;
        // Once it has left Redis, the next is on its way by itself.
        while scene.n_in_redis()? != Some(sent) {}
    }
    scene.proxy.set(Mode::Pass);
    client.send(&["INCR", "n"])?;
    for n in 17..=33 {
        assert_eq!(client.receive()?, Reply::Int(n));
    }
    Ok(())
}

#[test]
fn a_client_is_cut_off_when_redis_is_down_and_served_when_it_is_back() -> io::Result<()> {
    let scene = Scene::new()?;
    let mut old = scene.client()?;
    scene.redis.stop();
    assert!(old.command(&["PING"]).is_err());
    assert!(scene.client().is_err());
    scene.redis.restart()?;
    assert_eq!(scene.client()?.command(&["PING"])?.text(), Some("PONG"));
    Ok(())
}
