//! A Redis of one's own, from start to end.

use std::{io, net::TcpStream, path::Path, time::Duration};

use outgate::testing::{RedisServer, Reply, RespClient};

const OK: &str = "OK";

#[test]
fn it_answers_and_is_empty() -> io::Result<()> {
    let server = RedisServer::start()?;
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(server.command(&["DBSIZE"])?, Reply::Int(0));
    Ok(())
}

#[test]
fn two_servers_do_not_share_anything() -> io::Result<()> {
    let (one, two) = (RedisServer::start()?, RedisServer::start()?);
    one.command(&["SET", "key", "value"])?;
    assert_eq!(one.command(&["GET", "key"])?, Reply::Bulk(b"value".to_vec()));
    assert_eq!(two.command(&["GET", "key"])?, Reply::Nil);
    Ok(())
}

#[test]
fn every_kind_of_reply_is_understood() -> io::Result<()> {
    let server = RedisServer::start_with(&["--maxmemory", "100mb"])?;
    let mut client = server.client()?;
    let array = |items: &[&str]| Reply::Array(items.iter().map(|item| Reply::Bulk(item.as_bytes().to_vec())).collect());
    for (words, reply) in [
        (&["PING"][..], Reply::Simple("PONG".into())),
        (&["RPUSH", "log", "1", "", "a\r\nb"], Reply::Int(3)),
        (&["LRANGE", "log", "0", "-1"], array(&["1", "", "a\r\nb"])),
        (&["LRANGE", "none", "0", "-1"], array(&[])),
        (&["BLPOP", "none", "0.001"], Reply::Nil),
        (&["GET", "none"], Reply::Nil),
        (&["EVAL", "return redis.error_reply('MINE why')", "0"], Reply::Error("MINE why".into())),
        (&["EVAL", "return {-1, {'a'}}", "0"], Reply::Array(vec![Reply::Int(-1), array(&["a"])])),
        (&["CONFIG", "GET", "maxmemory"], array(&["maxmemory", "104857600"])),
        (&["SCRIPT", "FLUSH"], Reply::Simple(OK.into())),
        (&["DEBUG", "SLEEP", "0"], Reply::Simple(OK.into())),
    ] {
        assert_eq!(client.command(words)?, reply, "{words:?}");
    }
    assert_eq!(server.command(&["INCR", "n"])?.int(), Some(1));
    assert_eq!(server.command(&["GET", "n"])?.text(), Some("1"));
    Ok(())
}

#[test]
fn one_that_asks_for_a_password_is_told_it() -> io::Result<()> {
    let server = RedisServer::start_with(&["--requirepass", "word"])?;
    for _ in 0..2 {
        assert_eq!(server.command(&["DBSIZE"])?, Reply::Int(0));
        let mut stranger = RespClient::connect(server.addr(), Duration::from_secs(5))?;
        assert!(stranger.command(&["DBSIZE"])?.text().is_some_and(|refusal| refusal.starts_with("NOAUTH")));
        server.restart()?;
    }
    server.command(&["CONFIG", "SET", "requirepass", ""])?;
    assert_eq!(server.command(&["DBSIZE"])?, Reply::Int(0));
    Ok(())
}

#[test]
fn it_is_refused_while_stopped_and_comes_back_empty_on_the_same_port() -> io::Result<()> {
    let server = RedisServer::start()?;
    let (port, pid) = (server.port(), server.pid());
    server.command(&["SET", "key", "value"])?;
    let mut client = server.client()?;
    server.stop();
    server.stop();
    assert!(client.command(&["PING"]).is_err());
    assert_eq!(
        TcpStream::connect(server.addr()).map_err(|error| error.kind()).err(),
        Some(io::ErrorKind::ConnectionRefused)
    );
    assert_eq!(server.pid(), None);
    assert!(server.pause().is_err());
    server.restart()?;
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command(&["GET", "key"])?, Reply::Nil);
    server.command(&["SET", "key", "value"])?;
    server.restart()?;
    assert_eq!(server.command(&["GET", "key"])?, Reply::Nil);
    Ok(())
}

#[test]
fn it_answers_after_a_pause_what_was_sent_during_it() -> io::Result<()> {
    let server = RedisServer::start()?;
    let mut client = server.client()?;
    let mut hasty = RespClient::connect(server.addr(), Duration::from_millis(30))?;
    server.pause()?;
    client.send(&["INCR", "n"])?;
    assert!(hasty.command(&["PING"]).is_err());
    server.resume()?;
    assert_eq!(client.receive()?, Reply::Int(1));
    Ok(())
}

#[test]
fn a_paused_server_can_be_stopped() -> io::Result<()> {
    let server = RedisServer::start()?;
    server.pause()?;
    server.stop();
    server.restart()?;
    assert_eq!(server.command(&["PING"])?.text(), Some("PONG"));
    Ok(())
}

#[test]
fn a_replica_follows_at_once() -> io::Result<()> {
    let (first, replica) = (RedisServer::start()?, RedisServer::start()?);
    replica.command(&["REPLICAOF", "127.0.0.1", &first.port().to_string()])?;
    // WAIT counts replicas that have confirmed this write; a replica that is still attaching will
    // confirm it, too.
    let mut client = first.client()?;
    client.command(&["SET", "key", "value"])?;
    assert_eq!(client.command(&["WAIT", "1", "4000"])?, Reply::Int(1));
    assert_eq!(replica.command(&["GET", "key"])?.text(), Some("value"));
    Ok(())
}

#[test]
fn nothing_is_left_of_it_once_dropped() -> io::Result<()> {
    let server = RedisServer::start()?;
    let addr = server.addr();
    let dir = server.command(&["CONFIG", "GET", "dir"])?;
    let Reply::Array(dir) = dir else {
        return Err(io::Error::other(format!("{dir:?}")));
    };
    let dir = dir[1].text().map(Path::new);
    assert!(dir.is_some_and(Path::exists));
    drop(server);
    assert!(!dir.is_some_and(Path::exists));
    assert!(TcpStream::connect(addr).is_err());
    Ok(())
}

#[test]
fn a_server_that_does_not_come_up_says_why() {
    let error = RedisServer::start_with(&["--no-such-option", "1"])
        .map(|server| server.port())
        .map_err(|error| error.to_string());
    assert!(error.as_ref().is_err_and(|text| text.contains("no-such-option")), "{error:?}");
}
