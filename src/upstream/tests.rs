use super::*;

fn request(method: Method, url: &str) -> Request {
    Request::new(method, url.parse().unwrap())
}

#[test]
fn which_requests_belong_to_an_upstream() {
    let up = || Upstream::new("up");
    let get = |url| request(Method::GET, url);
    let cases = [
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
        assert_eq!(upstream.matches(&request), expected, "{hosts:?} {request:?}");
    }
}

#[test]
fn a_wrong_configuration_names_the_field() {
    let up = || Upstream::new("up").limit(Limit::per_second(1));
    let cases = [
        (Upstream::new("up"), "limit"),
        (Upstream::new("").limit(Limit::per_second(1)), "name"),
        (Upstream::new("a b").limit(Limit::per_second(1)), "name"),
        (Upstream::new("a}b").limit(Limit::per_second(1)), "name"),
        (Upstream::new("x".repeat(65)).limit(Limit::per_second(1)), "name"),
        (up().backoff(Backoff::new().min(Duration::ZERO)), "backoff"),
        (up().retries_per_thousand(1_001), "retries_per_thousand"),
        (up().recovery(Duration::from_secs(3_601)), "recovery"),
        (up().break_after_unauthorized(0), "break_after_unauthorized"),
        (up().host(""), "host"),
        (up().host("*."), "host"),
        (up().host("a.*.com"), "host"),
        (up().host("https://a.com"), "host"),
        (up().host("a.com/v1"), "host"),
        (up().host("a.com:99999"), "host"),
        (up().path("v1"), "path"),
    ];
    for (upstream, field) in cases {
        assert_eq!(upstream.check().unwrap_err().field(), field, "{upstream:?}");
    }
    assert!(up().host("*.a.com:8080").path("/v1").check().is_ok());
}
