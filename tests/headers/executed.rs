//! What was executed is not sent again.

use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use hyper::body::Bytes;
use outgate::testing::StrictUpstream;
use outgate::{Feedback, Limit, Throttle, Upstream};
use reqwest_middleware::ClientBuilder;

use super::entry::{Entry, corpus};

/// Statuses that stand beside spent quotas and waits in the wild.
const STATUSES: [u16; 15] = [200, 202, 303, 400, 401, 403, 418, 423, 430, 477, 500, 502, 503, 509, 529];

/// Whether an entry names throttling as the cause of its error.
fn names_throttling(headers: &HeaderMap) -> bool {
    let named = |name: &str| headers.get_all(name).iter().any(|value| value.to_str().unwrap_or("").contains("Throttl"));
    named("x-amzn-errortype") || named("x-amzn-error-type")
}

#[test]
fn of_every_response_only_a_429_a_420_or_a_named_throttling_says_that_the_call_was_not_executed() {
    for entry in corpus() {
        let headers = entry.headers();
        for status in STATUSES.into_iter().chain([420, 429, entry.status()]) {
            let feedback = Feedback::read(StatusCode::from_u16(status).unwrap(), &headers, entry.now());
            let says = matches!(status, 420 | 429) || (status >= 400 && names_throttling(&headers));
            assert_eq!(feedback.not_executed(), says, "{status} {}", entry.id());
        }
    }
}

/// Upstreams that answer every call alike: `/3/503` as the fourth does, under status 503.
struct Answers {
    server: StrictUpstream,
    plain: reqwest::Client,
}

impl Answers {
    fn start(answers: Vec<HeaderMap>) -> Self {
        let answer = move |request: &http::Request<()>| {
            let path: Vec<_> = request.uri().path().split('/').collect();
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = path[2].parse().unwrap();
            response.headers_mut().extend(answers[path[1].parse::<usize>().unwrap()].clone());
            // How long the body is, the server knows better.
            response.headers_mut().remove("content-length");
            response.headers_mut().remove("transfer-encoding");
            response
        };
        let server = StrictUpstream::builder().handler(answer).start().unwrap();
        Self { server, plain: reqwest::Client::builder().no_proxy().build().unwrap() }
    }

    /// How often a payment is sent that may be sent again three times, at once: no pause lasts longer than a millisecond.
    async fn sent(&self, answer: usize, status: u16) -> usize {
        let up = Upstream::new("up").host("127.0.0.1").limit(Limit::per_second(100)).retry_refused(3);
        let up = up.max_pause(Duration::from_millis(1)).recovery(Duration::ZERO);
        let throttle = Throttle::builder().upstream(up).build().unwrap();
        let client = ClientBuilder::new(self.plain.clone()).with(throttle.middleware()).build();
        self.server.reset();
        let _ = client.post(format!("{}/{answer}/{status}", self.server.url())).body("100").send().await;
        self.server.arrivals().len()
    }
}

#[tokio::test]
async fn a_payment_is_sent_once_whatever_stands_beside_a_status_that_may_mean_it_was_executed() {
    let corpus: Vec<_> = corpus().into_iter().filter(|entry| !names_throttling(&entry.headers())).collect();
    let answers = Answers::start(corpus.iter().map(Entry::headers).collect());
    for (answer, entry) in corpus.iter().enumerate() {
        let own = if matches!(entry.status(), 420 | 429) { 400 } else { entry.status() };
        for status in [own, 503, 403] {
            assert_eq!(answers.sent(answer, status).await, 1, "{status} {}: {}", entry.id(), entry.upstream());
        }
    }
}

#[tokio::test]
async fn a_payment_that_was_not_executed_is_sent_again() {
    let headers =
        |name: &'static str, value: &str| HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())]);
    let answers = Answers::start(vec![
        headers("retry-after", "1"),
        headers("x-amzn-errortype", "ThrottlingException:http://example.com/"),
        headers("x-amzn-errortype", "InternalFailure"),
    ]);
    for (answer, status, sent) in [(0, 429, 4), (0, 420, 4), (1, 400, 4), (1, 503, 4), (2, 400, 1), (2, 503, 1)] {
        assert_eq!(answers.sent(answer, status).await, sent, "{answer} {status}");
    }
}
