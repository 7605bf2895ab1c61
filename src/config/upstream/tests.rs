use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use reqwest::Request;

use super::*;
use crate::Throttle;
use crate::client::router::Table;
use crate::config::host;
use crate::config::path::canonical;
use crate::config::plan::Registered;

impl Upstream {
    /// Whether a request belongs to this upstream, by everything that is said of it: what routing must agree with.
    pub(crate) fn matches(&self, request: &RequestHead<'_>) -> bool {
        let url = request.url();
        let (name, port, path) = (host::name(url).unwrap(), url.port_or_known_default(), canonical(url.path()));
        let is_host = |host: &HostPattern| {
            let is_below = || name.strip_suffix(&*host.name).is_some_and(|rest| rest.ends_with('.'));
            (if host.is_wildcard { is_below() } else { name == &*host.name })
                && (host.port.is_none() || host.port == port)
        };
        let is_below = |prefix: &PathPrefix| {
            path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.is_routed()
            && (self.hosts.is_empty() || self.hosts.iter().any(is_host))
            && (self.paths.is_empty() || self.paths.iter().any(is_below))
            && self.accepts(request)
    }
}

fn request(method: Method, url: &str) -> Request {
    Request::new(method, url.parse().unwrap())
}

#[test]
fn which_requests_belong_to_an_upstream() {
    let up = || Upstream::new("up");
    let get = |url| request(Method::GET, url);
    let cases = vec![
        (up(), get("http://a.com/"), false),
        (up().host("a.com"), get("https://A.com/x"), true),
        (up().host("A.com"), get("https://a.com:8443/x"), true),
        (up().host("a.com"), get("https://b.a.com/"), false),
        (up().host("a.com").host("b.com"), get("https://b.com/"), true),
        (up().host("*.a.com"), get("https://b.a.com/"), true),
        (up().host("*.a.com"), get("https://c.b.a.com/"), true),
        (up().host("*.a.com"), get("https://a.com/"), false),
        (up().host("*.a.com"), get("https://ba.com/"), false),
        (up().host("a.com:443"), get("https://a.com/"), true),
        (up().host("a.com:80"), get("https://a.com/"), false),
        (up().host("[::1]"), get("http://[::1]:9/"), true),
        (up().host("[::1]:9"), get("http://[::1]:9/"), true),
        (up().host("[::1]:8"), get("http://[::1]:9/"), false),
        (up().host("b\u{fc}cher.com"), get("http://b\u{fc}cher.com/"), true),
        (up().host("127.1:9"), get("http://127.0.0.1:9/"), true),
        (up().host("localhost"), get("http://localhost.:9/"), true),
        (up().host("localhost."), get("http://localhost/"), true),
        (up().host("[0:0::1]"), get("http://[::1]/"), true),
        (up().host("a.com").path("/v1"), get("http://a.com/v1"), true),
        (up().host("a.com").path("/v1"), get("http://a.com/v1/x"), true),
        (up().host("a.com").path("/v1/"), get("http://a.com/v1/x"), true),
        (up().host("a.com").path("/v1"), get("http://a.com/v10"), false),
        (up().host("a.com").path("/"), get("http://a.com/anything"), true),
        (up().method(Method::POST), get("http://a.com/"), false),
        (up().method(Method::POST).method(Method::GET), get("http://a.com/"), true),
        (up().matching(|request| request.url().query().is_some()), get("http://a.com/?q"), true),
        (up().host("a.com").matching(|_| false), get("http://a.com/"), false),
    ];
    for (upstream, request, expected) in cases {
        let hosts = (&upstream.hosts, &upstream.paths);
        let head = RequestHead::from(&request);
        assert_eq!(upstream.matches(&head), expected, "{hosts:?} {request:?}");
        let routed = Table::new([&upstream]).find(&head, |_| upstream.accepts(&head));
        assert_eq!(routed.is_some(), expected, "{hosts:?} {request:?}");
    }
}

#[test]
fn a_wrong_configuration_names_the_field() {
    let up = || Upstream::new("up").limit(Limit::per_second(1));
    let seats_of_each = || Limit::in_flight(5).each(Scope::bearer_token());
    let cases = [
        (Upstream::new("up"), "limit"),
        (up().limit(Limit::in_flight(1)).limit(Limit::in_flight(2)), "limit.in_flight"),
        (up().limit(Limit::in_flight(25).until_headers()).limit(seats_of_each()), "limit.until_headers"),
        (up().limit(seats_of_each()).limit(Limit::in_flight(25).lease(Duration::from_secs(600))), "limit.lease"),
        (Upstream::new("").limit(Limit::per_second(1)), "name"),
        (Upstream::new("a b").limit(Limit::per_second(1)), "name"),
        (Upstream::new("a}b").limit(Limit::per_second(1)), "name"),
        (Upstream::new("x".repeat(65)).limit(Limit::per_second(1)), "name"),
        (up().backoff(Backoff::new().min(Duration::ZERO)), "backoff"),
        (up().retries_per_thousand(1_001), "retries_per_thousand"),
        (up().estimates_per_thousand(990), "estimates_per_thousand"),
        (up().shares("account", []), "shares"),
        (up().recovery(Duration::from_secs(3_601)), "recovery"),
        (up().break_after_unauthorized(0), "break_after_unauthorized"),
        (up().host(""), "host"),
        (up().host("*."), "host"),
        (up().host("a.*.com"), "host"),
        (up().host("https://a.com"), "host"),
        (up().host("a.com/v1"), "host"),
        (up().host("a.com:99999"), "host"),
        (up().method("get".parse().unwrap()), "method"),
        (up().path("v1"), "path"),
    ];
    for (upstream, field) in cases {
        assert_eq!(Registered::new(0, upstream.clone()).unwrap_err().field(), field, "{upstream:?}");
    }
    assert!(up().host("*.a.com:8080").path("/v1").check(0).is_ok());
}

#[test]
fn a_path_is_read_as_the_path_of_a_url_is() {
    let cases = [
        ("/a b", "/a b/c", true),
        ("/a b", "/a%20b", true),
        ("/\u{fc}", "/\u{fc}", true),
        ("/\u{fc}", "/%c3%bc/x", true),
        ("/%c3%bc", "/\u{fc}", true),
        ("/a\\b", "/a\\b", true),
        ("/a/../b", "/b", true),
        ("/a", "/A", false),
        ("/100%ab", "/100%AB", true),
        ("/100%zz", "/100%ZZ", false),
    ];
    for (path, requested, expected) in cases {
        let found = built_matches(Upstream::new("up").path(path), &format!("http://a.com{requested}"));
        assert_eq!(found, Some(expected), "{path} {requested}");
    }
}

#[test]
fn a_host_or_path_that_can_match_nothing_is_an_error_that_names_upstream_and_field() {
    let up = || Upstream::new("up").limit(Limit::per_second(1));
    let hosts =
        ["h:", "h:65536", ".a.com", "a..com", "*.127.0.0.1", "*.[::1]", "a b.com", "a.com\n", "user:pass@b.com"];
    let paths = ["/v1?q", "/v1#f", "/users/{id}", "/users/*", "/v1 ", "/a\tb"];
    let hosts = hosts.map(|host| (up().host("a.com").host(host), "host"));
    for (upstream, field) in hosts.into_iter().chain(paths.map(|path| (up().path("/a").path(path), "path"))) {
        let error = upstream.check(0).unwrap_err();
        assert_eq!((error.upstream(), error.field()), ("up", field), "{error}");
    }
}

/// What is hard to read, to write or to tell apart in a URL.
const NASTY: &[&str] = &[
    "a",
    "B",
    "x.com",
    "1",
    "127.0.0.1",
    "0x7f",
    "[::1]",
    "::",
    "xn--",
    "-",
    "_",
    ".",
    "..",
    "*",
    "*.",
    ":",
    ":80",
    ":99999",
    "/",
    "//",
    "\\",
    "?",
    "#",
    "@",
    "%",
    "%2e",
    "%2E%2e",
    "%2f",
    "%c3%bc",
    "%C3",
    "%zz",
    "{",
    "}",
    "{id}",
    " ",
    "\t",
    "\n",
    "\0",
    "\u{7f}",
    "\u{a0}",
    "\u{ad}",
    "\u{fc}",
    "\u{df}",
    "\u{3002}",
    "\u{ff0a}",
    "\u{ff0f}",
    "\u{200d}",
    "\u{5d0}",
    "\u{1f600}",
    "~",
    "'",
    "\"",
    "`",
    "|",
    "^",
    "<",
    ">",
    "[",
    "]",
    ";",
    "=",
    "&",
    "+",
    ",",
    "$",
    "!",
    "(",
];

fn nasty() -> impl Strategy<Value = String> {
    vec(select(NASTY), 0..5).prop_map(|parts| parts.concat())
}

/// Whether a throttle is built with this upstream; if so, whether a request for the URL belongs to it.
fn built_matches(upstream: Upstream, url: &str) -> Option<bool> {
    let throttle = Throttle::builder().upstream(upstream.limit(Limit::per_second(1))).build().ok()?;
    let url = url.parse().ok();
    Some(url.is_some_and(|url| {
        throttle.route(&(&Request::new(Method::GET, url)).into(), None).is_ok_and(|route| route.is_some())
    }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_host_that_is_accepted_matches_the_url_made_from_it(host in prop_oneof![nasty(), nasty().prop_map(|host| format!("*.{host}"))]) {
        let below = host.strip_prefix("*.").map(|domain| format!("x.{domain}"));
        let url = format!("http://{}/", below.as_ref().unwrap_or(&host));
        prop_assert_ne!(built_matches(Upstream::new("up").host(&*host), &url), Some(false), "{:?}", host);
    }

    #[test]
    fn a_path_that_is_accepted_matches_the_url_made_from_it_and_what_lies_below(path in nasty().prop_map(|path| format!("/{path}"))) {
        for url in [format!("http://h{path}"), format!("http://h{path}/below"), format!("http://h{path}?q#f")] {
            prop_assert_ne!(built_matches(Upstream::new("up").path(&*path), &url), Some(false), "{:?} {}", path, url);
        }
    }
}
