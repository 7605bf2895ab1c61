use super::*;
use crate::{Error, Limit, Throttle, Upstream};

/// All that an error says of an upstream.
fn said(upstream: Upstream) -> String {
    let error = Throttle::builder().upstream(upstream.limit(Limit::per_second(1))).build().unwrap_err();
    format!("{error}\n{error:?}\n{}\n{}", error.upstream(), error.reason())
}

fn assert_none_of(pieces: &[&str], text: &str, written: &str) {
    for piece in pieces {
        assert!(!text.contains(piece), "{written} gives {text}");
    }
}

#[test]
fn no_error_shows_a_secret_that_was_written_into_a_host() {
    let cases: &[(&str, &[&str])] = &[
        ("https://user:t0ken@api.example.com", &["user", "t0ken"]),
        ("https://user:t0ken@api.example.com/v1?q=s3cret#fr4gment", &["user", "t0ken", "v1", "s3cret", "fr4gment"]),
        ("user:t0ken@host", &["user", "t0ken"]),
        ("user:t0/ken@host", &["user", "t0", "ken"]),
        ("user:t0?ken@host", &["user", "t0", "ken"]),
        ("user:t0#ken@host", &["user", "t0", "ken"]),
        ("user:t0\\ken@host", &["user", "t0", "ken"]),
        ("user:t0:ken@host", &["user", "t0", "ken"]),
        ("https://user:t0/k3@n4@host", &["user", "t0", "k3", "n4"]),
        ("https://user:t0//ken@host", &["user", "t0", "ken"]),
        ("https://user:t0://ken@host", &["user", "t0", "ken"]),
        ("https://https://user:t0ken@host", &["user", "t0ken"]),
        ("https:user:t0ken@host", &["user", "t0ken"]),
        ("https:/user:t0ken@host", &["user", "t0ken"]),
        ("https://user:a1@b2@host", &["user", "a1", "b2"]),
        ("https://t0ken@host", &["t0ken"]),
        ("https://:t0ken@host", &["t0ken"]),
        ("https://user:t0ken@", &["user", "t0ken"]),
        ("https://user:t0ken@/", &["user", "t0ken"]),
        ("*.user:t0ken@host", &["user", "t0ken"]),
        ("user:t0ken@*.example.com", &["user", "t0ken"]),
        ("h:t0ken", &["t0ken"]),
        ("gh_t0ken:x-basic", &["t0ken", "x-basic"]),
        ("https://gh_t0ken:x-basic", &["t0ken", "x-basic"]),
        ("h:99912345", &["99912345"]),
        ("[::1]:t0ken", &["t0ken"]),
        ("[t0ken]", &["t0ken"]),
        ("[t0ken", &["t0ken"]),
        ("https://hooks.example.com/services/T111/B222/s3cret", &["services", "T111", "B222", "s3cret"]),
        ("https://hooks.example.com/services/T111/s3@cret", &["services", "T111", "s3", "cret"]),
        ("hooks.example.com/bot1:s3cret", &["bot1", "s3cret"]),
        ("hooks.example.com\\s3cret", &["s3cret"]),
        ("a.com?key=s3cret", &["key", "s3cret"]),
        ("a.com?key=s3/c4@e5", &["key", "s3", "c4", "e5"]),
        ("a.com#s3cret", &["s3cret"]),
        ("a.com Bearer s3cret", &["Bearer", "s3cret"]),
        ("a.com\ns3cret", &["s3cret"]),
        ("t0ken%40host\n", &["t0ken"]),
        ("user:t0ken\u{ff20}host", &["user", "t0ken"]),
        ("t0ken\u{ff20}host\u{ff0f}..", &["t0ken"]),
    ];
    for (written, pieces) in cases {
        assert_none_of(pieces, &said(Upstream::new("up").host(*written)), written);
    }
}

#[test]
fn no_error_shows_a_secret_that_was_written_into_a_path() {
    let cases: &[(&str, &[&str])] = &[
        ("/v1?key=s3cret", &["key", "s3cret"]),
        ("/v1?a=s3?cret#x", &["s3", "cret"]),
        ("/v1#s3cret", &["s3cret"]),
        ("/services/T111/B222/s3cret/{id}", &["T111", "B222", "s3cret"]),
        ("/bot1:s3cret/{method}", &["bot1", "s3cret"]),
        ("https://user:t0ken@host/v1", &["user", "t0ken"]),
        ("https://u5?e6:t0ken@host/v1", &["u5", "e6", "t0ken"]),
        ("//user:t0ken@host/v1?x", &["user", "t0ken"]),
        ("user:t0/ken@host", &["user:", "t0", "ken"]),
        ("hooks.example.com/services/s3cret", &["services", "s3cret"]),
        ("https://hooks.example.com/services/s3cret", &["services", "s3cret"]),
    ];
    for (written, pieces) in cases {
        assert_none_of(pieces, &said(Upstream::new("up").path(*written)), written);
    }
}

#[tokio::test]
async fn no_error_shows_what_was_written_for_a_name_and_can_be_none() {
    let long = "s3cret".repeat(20);
    for written in ["https://user:s3cret@host", "Bearer s3cret", &long, "s3cret@"] {
        let pieces = ["user", "Bearer", "s3cret", "host"];
        assert_none_of(&pieces, &said(Upstream::new(written)), written);
        let throttle = Throttle::builder().build().unwrap();
        let acquire = throttle.acquire(written);
        assert_none_of(&pieces, &format!("{acquire:?}"), written);
        let error = acquire.await.unwrap_err();
        assert!(matches!(error, Error::UnknownUpstream { .. }));
        assert_none_of(&pieces, &format!("{error} {error:?}"), written);
        let error = throttle.usage(written).await.unwrap_err();
        assert_none_of(&pieces, &format!("{error} {error:?}"), written);
    }
}

#[test]
fn an_error_says_which_setting_is_wrong_as_far_as_it_may() {
    let up = || Upstream::new("up");
    let cases = [
        (up().host("https://api.example.com/v1"), "the 1st host (\"api.example.com\") has a scheme"),
        (up().host("a.com").host("user:t0/ken@b.com"), "the 2nd host has an '@'"),
        (up().host("{region}.example.com"), "is a template"),
        (up().host("*.127.0.0.1"), "the 1st host (\"*.127.0.0.1\") is an IP address"),
        (up().host("::1"), "the 1st host (\"::1\") is an IPv6 address"),
        (up().host("a.com:99999"), "the 1st host (\"a.com\") has a port"),
        (up().path("v1/users"), "the 1st path (\"v1…\") does not begin"),
        (up().path("/a").path("/b").path("/v1/{id}"), "the 3rd path (\"/v1…\") has a '{'"),
        (up().path("/search?q=1"), "the 1st path (\"/search…\") has a '?'"),
        (up().path("/a/x").path("//u@h/?"), "the 2nd path has a '?'"),
        (Upstream::new("a b"), "the 1st upstream's name has ' '"),
        (Upstream::new("x".repeat(65)), "the 1st upstream's name has 65 characters"),
        (Upstream::new(""), "the 1st upstream's name is empty"),
    ];
    for (upstream, expected) in cases {
        let said = said(upstream);
        assert!(said.contains(expected), "{said} lacks {expected}");
    }
}

#[test]
fn places_are_counted_as_people_do() {
    let counted = [1, 2, 3, 4, 10, 11, 12, 13, 21, 22, 101, 111].map(ordinal);
    assert_eq!(counted.join(" "), "1st 2nd 3rd 4th 10th 11th 12th 13th 21st 22nd 101st 111th");
}
