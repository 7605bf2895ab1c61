//! gRPC: a response says in its trailers how the call ended.

use futures_core::Stream;
use http::HeaderName;
use outgate::Priority;

use super::*;

/// A gRPC server that says in trailers alone that a quota is spent, and for how long; or that a message is too large.
async fn exhausted(
    request: Request<()>,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let mut trailers = HeaderMap::new();
    if request.uri().query() == Some("large") {
        let message = "grpc: received message larger than max (5000000 vs. 4194304)";
        trailers.insert("grpc-message", HeaderValue::from_static(message));
    }
    trailers.insert("grpc-status", HeaderValue::from_static("8"));
    trailers.insert("grpc-retry-pushback-ms", HeaderValue::from_static("1500"));
    let frames = vec![Ok(Frame::data(Bytes::from_static(b"message"))), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(Frames(frames.into_iter())));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// Frames that are there already.
struct Frames(std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>);

impl Stream for Frames {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_the_trailers_of_a_grpc_call_pauses_everybody() -> Outcome {
    let throttle = throttle(Limit::per_second(100))?;
    let client = throttle.layer().layer(service_fn(exhausted));
    let large = client.clone().oneshot(get("https://api.example.com/package.Service/Method?large")?).await?;
    large.into_body().collect().await?;
    assert!(throttle.try_acquire("up").await.is_ok(), "too large a message says nothing of a quota");
    let response = client.oneshot(get("https://api.example.com/package.Service/Method")?).await?;
    assert!(throttle.try_acquire("up").await.is_ok(), "nothing is known yet");
    response.into_body().collect().await?;
    let paused = throttle.try_acquire("up").await;
    let wait = paused.as_ref().err().and_then(outgate::Error::retry_after);
    assert!(wait >= Some(SECOND) && wait <= Some(2 * SECOND), "{paused:?}");
    Ok(())
}

/// As the probe of a breaker: of gRPC-Web the trailers are in the body, and others may never come.
#[tokio::test(start_paused = true)]
async fn a_grpc_call_without_trailers_is_judged_by_its_head() -> Outcome {
    for kind in ["application/grpc-web+proto", "application/grpc"] {
        let calls = Arc::new(AtomicU32::new(0));
        let answers = service_fn(move |_: Request<()>| {
            let status = if calls.fetch_add(1, Ordering::Relaxed) == 0 { 401 } else { 200 };
            let response = Response::builder().status(status).header("content-type", kind);
            std::future::ready(Ok::<_, Infallible>(response.body(Full::<Bytes>::from("a body")).unwrap_or_default()))
        });
        let up = Upstream::new("up").host("api.example.com").limit(Limit::per_second(9)).break_after_unauthorized(1);
        let throttle = Throttle::builder().upstream(up).build()?;
        let client = throttle.layer().layer(answers);
        let call = async || client.clone().oneshot(get("https://api.example.com/package.Service/Method")?).await;
        drop(call().await?);
        let Err(barred) = call().await else { return Err("it went".into()) };
        let wait = outgate::Error::find(&*barred).and_then(outgate::Error::retry_after).unwrap_or_default();
        tokio::time::sleep(wait).await;
        drop(call().await?);
        let (one, another) = (call().await?, call().await?);
        drop((one, another));
    }
    Ok(())
}

/// Answers the first call with 401, and each later one with a gRPC stream that never ends.
fn streams(calls: &AtomicU32) -> Ready<Result<Response<Endless>, Infallible>> {
    let mut response = Response::new(Endless);
    if calls.fetch_add(1, Ordering::Relaxed) == 0 {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    } else {
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    }
    ready(Ok(response))
}

/// A body that sends nothing, and never ends.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_stream_that_is_the_probe_of_a_breaker_lets_the_others_through_when_its_head_comes() -> Outcome {
    let calls = Arc::new(AtomicU32::new(0));
    let up = Upstream::new("up").host("api.example.com").limit(Limit::per_second(9)).break_after_unauthorized(1);
    let throttle = Throttle::builder().upstream(up).build()?;
    let client = throttle.layer().layer(service_fn(move |_: Request<()>| streams(&calls)));
    let call = async || client.clone().oneshot(get("https://api.example.com/package.Service/Method")?).await;
    drop(call().await?);
    tokio::time::sleep(5 * SECOND).await;
    let probe = call().await?;
    let other = call().await?;
    drop((probe, other));
    Ok(())
}

/// A memory store a millisecond away, which hears only after a while that a pause is over.
#[derive(Clone, Debug, Default)]
struct HearsLate(MemoryStore);

impl Store for HearsLate {
    fn apply<'a>(&'a self, message: &'a Message) -> Applying<'a> {
        let late = if matches!(message.body, Body::Release { .. }) { 20 } else { 1 };
        Applying::pending(async move {
            tokio::time::sleep(Duration::from_millis(late)).await;
            self.0.apply(message).await
        })
    }
}

/// A throttle that a 429 has paused, and what the call is answered that looks after 2 s whether that holds: each by `answer`.
async fn looking<B: http_body::Body + Send + 'static>(
    answer: impl Fn(StatusCode) -> Response<B> + Clone + Send + 'static,
) -> Result<(Throttle, Response<ThrottledBody<B>>), Box<dyn Error + Send + Sync>> {
    let calls = Arc::new(AtomicU32::new(0));
    let up = Upstream::new("up").host("api.example.com").limit(Limit::per_second(9)).max_pause(2 * SECOND);
    let throttle = Throttle::builder().store(HearsLate::default()).upstream(up).build()?;
    let client = throttle.layer().layer(service_fn(move |_: Request<()>| {
        let refuses = calls.fetch_add(1, Ordering::Relaxed) == 0;
        ready(Ok::<_, Infallible>(answer(if refuses { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK })))
    }));
    let call = async || client.clone().oneshot(get("https://api.example.com/package.Service/Method")?).await;
    drop(call().await?);
    let looks = call().await?;
    Ok((throttle, looks))
}

/// A call a moment later, which waits for no other look.
async fn soon(throttle: &Throttle) -> Result<Permit, outgate::Error> {
    tokio::time::sleep(SECOND / 10).await;
    throttle.acquire("up").max_wait(SECOND / 2).await
}

#[tokio::test(start_paused = true)]
async fn a_grpc_stream_that_looks_whether_a_pause_holds_says_so_by_its_first_message_and_when_it_ends() -> Outcome {
    for (grpc_status, is_over) in [("0", true), ("8", false)] {
        let (throttle, mut looks) = looking(move |status| stream(status, grpc_status)).await?;
        assert!(throttle.try_acquire("up").await.is_err(), "nobody knows yet");
        looks.body_mut().frame().await.ok_or("an empty frame")??;
        assert!(throttle.try_acquire("up").await.is_err(), "that is no message");
        looks.body_mut().frame().await.ok_or("a message")??;
        drop(soon(&throttle).await?);
        looks.into_body().collect().await?;
        let goes = soon(&throttle).await;
        assert_eq!(goes.is_ok(), is_over, "{grpc_status}: {goes:?}");
    }
    Ok(())
}

/// Nobody knows what its trailers would have said; but a message is no refusal.
#[tokio::test(start_paused = true)]
async fn a_grpc_call_that_is_dropped_before_its_first_message_ends_no_pause() -> Outcome {
    for has_message in [false, true] {
        let (throttle, mut looks) = looking(|status| stream(status, "8")).await?;
        for frame in if has_message { &["an empty frame", "a message"][..] } else { &["an empty frame"] } {
            looks.body_mut().frame().await.ok_or(*frame)??;
        }
        drop(looks);
        let goes = soon(&throttle).await;
        assert_eq!(goes.is_ok(), has_message, "{goes:?}");
    }
    Ok(())
}

/// A message or none, and then the connection breaks.
struct Breaks {
    has_message: bool,
}

impl http_body::Body for Breaks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let has_message = std::mem::take(&mut self.has_message);
        let broken = || std::io::Error::other("reset");
        Poll::Ready(Some(if has_message { Ok(Frame::data(Bytes::from_static(b"message"))) } else { Err(broken()) }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_whose_connection_breaks_before_its_first_message_ends_no_pause() -> Outcome {
    for has_message in [false, true] {
        let (throttle, looks) = looking(move |status| stream(status, "0").map(|_| Breaks { has_message })).await?;
        assert!(looks.into_body().collect().await.is_err());
        let goes = soon(&throttle).await;
        assert_eq!(goes.is_ok(), has_message, "nobody knows what its trailers would say: {goes:?}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_whose_trailers_refuse_it_ends_no_row_of_a_breaker() -> Outcome {
    let calls = Arc::new(AtomicU32::new(0));
    let up = Upstream::new("up").host("api.example.com").limit(Limit::per_second(9)).break_after_unauthorized(2);
    let throttle = Throttle::builder().upstream(up).build()?;
    let client = throttle.layer().layer(service_fn(move |_: Request<()>| {
        let is_refused = calls.fetch_add(1, Ordering::Relaxed) == 1;
        let status = if is_refused { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        ready(Ok::<_, Infallible>(stream(status, "8")))
    }));
    let call = async || client.clone().oneshot(get("https://api.example.com/package.Service/Method")?).await;
    for _ in 0..3 {
        call().await?.into_body().collect().await?;
    }
    let Err(error) = call().await else { return Err("it went".into()) };
    assert!(matches!(outgate::Error::find(&*error), Some(outgate::Error::Unauthorized { .. })), "{error}");
    Ok(())
}

/// An empty frame, a message, and trailers that say what became of the call; of gRPC where it was served at first.
fn stream(status: StatusCode, grpc_status: &'static str) -> Response<StreamBody<Frames>> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(grpc_status));
    let data = |data: &'static [u8]| Ok(Frame::data(Bytes::from_static(data)));
    let frames = vec![data(b""), data(b"message"), Ok(Frame::trailers(trailers))];
    let mut response = Response::new(StreamBody::new(Frames(frames.into_iter())));
    *response.status_mut() = status;
    let (name, value) = if status.is_success() { ("content-type", "application/grpc") } else { ("retry-after", "600") };
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

/// A stream whose head says that the call used 10 of the 100 tokens that it was charged, its message that it used 800, and its trailers that or
/// nothing new.
#[tokio::test(start_paused = true)]
async fn what_the_caller_of_a_grpc_stream_says_is_undone_by_nothing_that_was_said_before() -> Outcome {
    let (own, none) = (Some(800), None);
    for (settles, trailers, used) in
        [(own, None, 800), (own, Some("10"), 800), (own, Some("900"), 900), (none, None, 10), (none, Some("900"), 900)]
    {
        let (throttle, response) = charged("10", trailers, Duration::ZERO).await?;
        assert_eq!(tokens(&throttle).await?, 100, "its trailers may say more");
        let passage = response.extensions().get::<Passage>().cloned().ok_or("no passage")?;
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            if let Some(settles) = settles.filter(|_| frame.as_ref().is_ok_and(Frame::is_data)) {
                passage.settle("tokens", settles);
            }
        }
        drop(body);
        assert_eq!(tokens(&throttle).await?, used, "{settles:?} {trailers:?}");
    }
    Ok(())
}

/// It may have used more than that.
#[tokio::test(start_paused = true)]
async fn what_the_head_of_a_lost_grpc_stream_says_counts_where_it_is_more_than_was_charged() -> Outcome {
    for (head, used) in [("10", 100), ("500", 500)] {
        let (throttle, response) = charged(head, None, Duration::ZERO).await?;
        drop(response);
        assert_eq!(tokens(&throttle).await?, used, "dropped before its first message");
    }
    Ok(())
}

/// Its trailers name an instant by the upstream's clock, which its head told hours ago.
#[tokio::test(start_paused = true)]
async fn trailers_that_name_an_instant_count_from_when_they_come() -> Outcome {
    let (throttle, response) = charged("10", None, 6 * 3_600 * SECOND).await?;
    response.into_body().collect().await?;
    let wait = throttle.try_acquire("up").await.err().as_ref().and_then(outgate::Error::retry_after);
    assert!(wait.is_some_and(|wait| (28 * SECOND..40 * SECOND).contains(&wait)), "{wait:?}");
    Ok(())
}

/// The answer to a call that was charged 100 tokens: its head says what it used, and what time it is. Its trailers come after so long,
/// and say what it used; where they take long, that the quota is spent for 30 s from then.
async fn charged(
    head: &'static str,
    used: Option<&'static str>,
    after: Duration,
) -> Result<(Throttle, Response<ThrottledBody<StreamBody<Frames>>>), Box<dyn Error + Send + Sync>> {
    const NOON: u64 = 1_764_504_000;
    let up = Upstream::new("up").host("api.example.com").limit(Limit::per_hour(2_000).of("tokens"));
    // What a call of high priority uses counts in no log of the rest.
    let up = up
        .reserve(Priority::High, 10)
        .settle_by("tokens", |_, headers| headers.get("x-cost")?.to_str().ok()?.parse().ok());
    let throttle = Throttle::builder()
        .upstream(up.cost_by(|_| Call::new().cost_of("tokens", 100).priority(Priority::High)))
        .build()?;
    let mut trailers = HeaderMap::new();
    trailers.extend(used.map(|used| (HeaderName::from_static("x-cost"), HeaderValue::from_static(used))));
    if !after.is_zero() {
        trailers.insert("grpc-status", HeaderValue::from_static("8"));
        trailers.insert("x-ratelimit-remaining", HeaderValue::from_static("0"));
        trailers.insert("x-ratelimit-reset", (NOON + after.as_secs() + 30).into());
    }
    let client = throttle.layer().layer(service_fn(move |_: Request<()>| {
        let frames = vec![Ok(Frame::data(Bytes::from_static(b"message"))), Ok(Frame::trailers(trailers.clone()))];
        let mut response = Response::new(StreamBody::new(Frames(frames.into_iter())));
        let head = [("content-type", "application/grpc"), ("x-cost", head), ("date", "Sun, 30 Nov 2025 12:00:00 GMT")];
        for (name, value) in head {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        ready(Ok::<_, Infallible>(response))
    }));
    let response = client.oneshot(get("https://api.example.com/package.Service/Method")?).await?;
    tokio::time::sleep(after).await;
    Ok((throttle, response))
}

/// How many of the tokens of the last hour were used.
async fn tokens(throttle: &Throttle) -> Result<u32, Box<dyn Error + Send + Sync>> {
    tokio::time::sleep(SECOND).await;
    Ok(throttle.usage("up").await?.limits.first().ok_or("no limit")?.used)
}

/// That it shuts somebody out it says by a status of its own, beside a 200.
#[tokio::test(start_paused = true)]
async fn a_grpc_server_that_shuts_somebody_out_ends_no_pause_and_counts_for_a_breaker() -> Outcome {
    for (grpc_status, is_over) in [("0", true), ("5", true), ("1", false), ("3", false), ("7", false), ("16", false)] {
        let (throttle, looks) = looking(move |status| {
            let mut response = Response::new(Full::<Bytes>::default());
            if status.is_success() {
                response.headers_mut().insert("grpc-status", HeaderValue::from_static(grpc_status));
            }
            *response.status_mut() = status;
            if !status.is_success() {
                response.headers_mut().insert("retry-after", HeaderValue::from_static("600"));
            }
            response
        })
        .await?;
        drop(looks);
        let goes = soon(&throttle).await;
        assert_eq!(goes.is_ok(), is_over, "{grpc_status}: {goes:?}");
    }
    for (grpc_status, opens) in [("16", true), ("7", true), ("5", false)] {
        let up = Upstream::new("up").host("api.example.com").limit(Limit::per_second(9)).break_after_unauthorized(2);
        let throttle = Throttle::builder().upstream(up).build()?;
        let client = throttle
            .layer()
            .layer(service_fn(move |_: Request<()>| ready(Ok::<_, Infallible>(stream(StatusCode::OK, grpc_status)))));
        let call = async || client.clone().oneshot(get("https://api.example.com/package.Service/Method")?).await;
        for _ in 0..2 {
            call().await?.into_body().collect().await?;
        }
        assert_eq!(call().await.is_err(), opens, "{grpc_status}");
    }
    Ok(())
}
