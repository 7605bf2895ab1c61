use std::sync::{Arc, Mutex, PoisonError};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use reqwest::{Method, Request};

use super::*;

const HOSTS: &[&str] = &[
    "a.com",
    "A.com.",
    "a.com:8080",
    "a.com:443",
    "b.a.com",
    "c.b.a.com:8080",
    "*.a.com",
    "*.a.com:8080",
    "*.b.a.com",
    "*.com",
    "com",
    "127.0.0.1",
    "[::1]",
];
const PATHS: &[&str] = &["/", "/v1", "/v1/", "/v1//", "/v1/users", "/v1/users/7", "/v2", "/%c3%bc", "/\u{fc}/x"];

/// What is said of an upstream, and what its closure answers.
type Said = (Vec<&'static str>, Vec<&'static str>, Vec<Method>, Option<bool>);

fn said() -> impl Strategy<Value = Said> {
    let hosts = subsequence(HOSTS.to_vec(), 0..4);
    let paths = subsequence(PATHS.to_vec(), 0..3);
    (hosts, paths, subsequence(vec![Method::GET, Method::POST], 0..2), option::weighted(0.3, any::<bool>()))
}

fn request() -> impl Strategy<Value = Request> {
    let host = select(vec!["a.com", "b.a.com", "c.b.a.com.", "d.c.b.a.com", "x.com", "com", "127.0.0.1", "[::1]", "o"]);
    let path =
        select(vec!["", "/v1", "/v1/", "/v1/users", "/v1//users", "/v1/users/7/8", "/v10", "/%C3%bc/x", "/z?v1"]);
    let origin = (select(vec!["http", "https"]), host, select(vec!["", ":8080", ":443"]));
    (origin, path, select(vec![Method::GET, Method::POST])).prop_map(|((scheme, host, port), path, method)| {
        Request::new(method, format!("{scheme}://{host}{port}{path}").parse().unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_table_finds_what_a_search_through_all_finds(all in vec(said(), 0..12), requests in vec(request(), 1..8)) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let upstreams = all.into_iter().enumerate().map(|(index, (hosts, paths, methods, answer))| {
            let mut upstream = Upstream::new(format!("up{index}"));
            upstream = hosts.into_iter().fold(upstream, Upstream::host);
            upstream = paths.into_iter().fold(upstream, Upstream::path);
            upstream = methods.into_iter().fold(upstream, Upstream::method);
            let Some(answer) = answer else { return upstream };
            let asked = Arc::clone(&asked);
            upstream.matching(move |_| {
                asked.lock().unwrap_or_else(PoisonError::into_inner).push(index);
                answer
            })
        });
        let upstreams: Vec<_> = upstreams.collect();
        let take = || std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        let table = Table::new(&upstreams);
        let all: Vec<_> = upstreams.iter().collect();
        let hidden: Vec<_> = (0..all.len()).map(|index| table.hidden_by(index, &all)).collect();
        for request in requests {
            let head = RequestHead::from(&request);
            let searched = (upstreams.iter().position(|upstream| upstream.matches(&head)), take());
            let found = (table.find(&head, |index| upstreams[index].accepts(&head)), take());
            prop_assert!(found.0.is_none_or(|found| hidden[found].is_none()), "{hidden:?}");
            prop_assert_eq!(found, searched, "{} {}: which, and whose closures were asked", request.method(), request.url());
        }
    }
}

#[test]
fn a_host_of_countless_labels_and_a_path_of_countless_parts_cost_no_more_than_their_length() {
    let upstreams = [Upstream::new("up").host("*.a.com").path("/v1/users")];
    let table = Table::new(&upstreams);
    let url = format!("http://{}a.com/v1/users{}", "a.".repeat(100_000), "/x".repeat(100_000));
    let request = Request::new(Method::GET, url.parse().unwrap());
    let since = std::time::Instant::now();
    assert_eq!(table.find(&(&request).into(), |_| true), Some(0));
    // A look at each of its 100,000 beginnings would be one at 10 GB.
    assert!(since.elapsed() < std::time::Duration::from_secs(1), "{:?}", since.elapsed());
}

#[test]
fn an_upstream_is_hidden_whose_requests_all_belong_to_others_before_it() {
    let up = || Upstream::new("up");
    let at = |host: &str| up().host(host);
    let get = |host: &str| at(host).method(Method::GET);
    let cases = [
        (vec![at("a.com")], at("a.com"), Some(0)),
        (vec![at("a.com")], at("a.com:80").path("/v1").method(Method::GET), Some(0)),
        (vec![at("b.com"), at("*.a.com")], at("b.a.com"), Some(1)),
        (vec![at("*.com")], at("*.a.com"), Some(0)),
        (vec![at("a.com"), at("b.com")], at("a.com").host("b.com"), Some(0)),
        (vec![up().path("/v1")], at("a.com").path("/v1/users"), Some(0)),
        (vec![up().path("/v1")], up().path("/v1/users"), Some(0)),
        (vec![get("a.com").method(Method::PUT)], get("a.com"), Some(0)),
        (vec![up().matching(|_| true)], at("a.com"), None),
        (vec![at("a.com:80")], at("a.com"), None),
        (vec![at("a.com").path("/v1")], at("a.com"), None),
        (vec![at("a.com")], at("a.com").host("b.com"), None),
        (vec![at("b.a.com")], at("*.a.com"), None),
        (vec![get("a.com")], at("a.com"), None),
        (vec![get("a.com"), at("a.com").method(Method::PUT)], at("a.com"), None),
        (vec![up()], up(), None),
        (vec![at("a.com")], up(), None),
    ];
    for (mut all, last, expected) in cases {
        let hidden = all.len();
        all.push(last);
        let table = Table::new(&all);
        assert_eq!(table.hidden_by(hidden, &all.iter().collect::<Vec<_>>()), expected, "{all:?}");
        assert!((0..hidden).all(|first| table.hidden_by(first, &all.iter().collect::<Vec<_>>()).is_none()), "{all:?}");
    }
}
