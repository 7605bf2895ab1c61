//! Upstreams that fail to answer, seen by a real HTTP client.

use std::{error::Error, time::Duration};

use outgate::testing::{Fault, FaultyUpstream};
use reqwest::Client;

/// What the client sees, how many connections it got, and how many requests the server read.
async fn failure(fault: Fault) -> Result<(&'static str, usize, usize), Box<dyn Error>> {
    let upstream = fault.start()?;
    let client = Client::builder().no_proxy().build()?;
    let call = client.post(upstream.url()).body("x".repeat(1_000_000)).send();
    let seen = tokio::select! {
        answer = call => match answer {
            Ok(_) => "an answer",
            Err(error) if error.is_connect() => "no connection",
            Err(_) => "a broken connection",
        },
        () = silence(&upstream) => "silence",
    };
    Ok((seen, upstream.connections(), upstream.requests()))
}

/// Some time without an answer after the request was read.
async fn silence(upstream: &FaultyUpstream) {
    while upstream.requests() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_refused_port_gets_no_connection() -> Result<(), Box<dyn Error>> {
    assert_eq!(failure(Fault::RefuseConnection).await?, ("no connection", 0, 0));
    Ok(())
}

#[tokio::test]
async fn closing_at_once_breaks_the_connection_with_nothing_read() -> Result<(), Box<dyn Error>> {
    let (seen, connections, requests) = failure(Fault::CloseAtOnce).await?;
    assert_eq!((seen, requests), ("a broken connection", 0));
    assert!(connections >= 1);
    Ok(())
}

#[tokio::test]
async fn closing_after_the_request_breaks_the_connection_with_all_of_it_read() -> Result<(), Box<dyn Error>> {
    assert_eq!(failure(Fault::CloseAfterRequest).await?, ("a broken connection", 1, 1));
    Ok(())
}

#[tokio::test]
async fn never_answering_leaves_the_caller_waiting() -> Result<(), Box<dyn Error>> {
    assert_eq!(failure(Fault::NeverAnswer).await?, ("silence", 1, 1));
    Ok(())
}
