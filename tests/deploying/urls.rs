//! What a URL says: the user, the password, the database, the socket.

use outgate::RedisStore;
use outgate::testing::{RedisServer, Reply};

use crate::{Failure, Outcome, told, used};

/// How many keys each database holds, as the server says it.
fn databases(server: &RedisServer) -> Result<Vec<String>, Failure> {
    let report = told(server, &["INFO", "keyspace"])?;
    let lines = report.text().ok_or("no report")?.lines();
    Ok(lines.filter_map(|line| line.split_once(":keys=")).map(|(name, _)| name.to_owned()).collect())
}

#[tokio::test]
async fn a_database_by_its_number() -> Outcome {
    let server = RedisServer::start()?;
    used(RedisStore::connect(&format!("{}/3", server.url())).await?).await?;
    assert_eq!(databases(&server)?, ["db3"]);
    let error = RedisStore::connect(&format!("{}/99", server.url())).await.err().ok_or("connected")?;
    assert!(error.to_string().contains("out of range"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_user_and_a_password_with_characters_of_urls() -> Outcome {
    let server = RedisServer::start()?;
    told(&server, &["ACL", "SETUSER", "bill@ing", "on", ">p/w:d?#&%", "~*", "+@all"])?;
    told(&server, &["ACL", "SETUSER", "open", "on", "nopass", "~*", "+@all"])?;
    told(&server, &["CONFIG", "SET", "requirepass", "secret"])?;
    for user in ["bill%40ing:p%2Fw%3Ad%3F%23%26%25", ":secret", "default:secret", "open:any"] {
        used(RedisStore::connect(&format!("redis://{user}@{}", server.addr())).await?).await?;
    }
    for user in ["bill%40ing:secret@", "nobody:secret@", ":p%2Fw@", ""] {
        let error = RedisStore::connect(&format!("redis://{user}{}", server.addr())).await.err().ok_or("connected")?;
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn a_socket_of_this_machine() -> Outcome {
    let server = RedisServer::start()?;
    let Reply::Array(dir) = told(&server, &["CONFIG", "GET", "dir"])? else { return Err("no directory".into()) };
    let socket = format!("{}/socket", dir.get(1).and_then(Reply::text).ok_or("no directory")?);
    let server = RedisServer::start_with(&["--unixsocket", &socket])?;
    told(&server, &["ACL", "SETUSER", "billing", "on", ">secret", "~*", "+@all"])?;
    told(&server, &["CONFIG", "SET", "requirepass", "other"])?;
    for scheme in ["unix", "redis+unix"] {
        used(RedisStore::connect(&format!("{scheme}://{socket}?db=2&user=billing&pass=secret")).await?).await?;
    }
    let mut client = server.client()?;
    client.command(&["AUTH", "other"])?;
    assert!(
        client.command(&["INFO", "keyspace"])?.text().is_some_and(|text| text.contains("db2") && !text.contains("db0"))
    );
    let error = RedisStore::connect(&format!("unix://{socket}?pass=wrong")).await.err().ok_or("connected")?;
    assert!(!error.to_string().contains("wrong:"), "{error}");
    let error = RedisStore::connect(&format!("unix://{socket}.none")).await.err().ok_or("connected")?;
    assert!(error.to_string().contains("cannot be connected to"), "{error}");
    Ok(())
}
