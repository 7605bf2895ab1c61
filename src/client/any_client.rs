//! The path of a request for clients of which this crate knows nothing: route and ask, then settle by the response.

use http::{HeaderMap, StatusCode};

use crate::client::answer::Answer;
use crate::client::permit::Permit;
use crate::client::route::Route;
use crate::client::throttle::Throttle;
use crate::config::call::Call;
use crate::config::request_head::RequestHead;
use crate::error::Error;

impl Throttle {
    /// Waits until a request may be sent, whatever client sends it: routed, charged and queued as by the
    /// [middleware](Throttle::middleware). `None` where it belongs to no upstream, and may go at once.
    ///
    /// Send it without delay, then say by [`answered`](Throttle::answered) what came back. A permit that is dropped counts as a call
    /// made; [hand it back](Permit::hand_back) if nothing was sent.
    ///
    /// ```
    /// # use http::{HeaderMap, Method, Request, Response, StatusCode};
    /// # async fn transfer(_: Request<()>) -> Result<Response<()>, std::io::Error> { Ok(Response::new(())) }
    /// use outgate::{Call, RequestHead, Throttle};
    ///
    /// async fn send(throttle: &Throttle, request: Request<()>) -> Result<Response<()>, Box<dyn std::error::Error>> {
    ///     let url = request.uri().to_string().parse()?;
    ///     let call = request.extensions().get::<Call>().cloned().unwrap_or_default();
    ///     let head = RequestHead::new(request.method(), &url, request.headers());
    ///     let permit = throttle.acquire_for(&head, &call).await?;
    ///     let response = transfer(request).await?; // an error after this line may mean that the call was executed
    ///     if let Some(permit) = permit {
    ///         throttle.answered(&permit, response.status(), response.headers());
    ///     }
    ///     Ok(response)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use outgate::{Limit, Upstream};
    /// # let throttle = Throttle::builder().upstream(Upstream::new("up").host("api.example.com").limit(Limit::per_hour(1))).build()?;
    /// # let request = || Request::get("https://api.example.com/").body(());
    /// # assert_eq!(send(&throttle, request()?).await?.status(), 200);
    /// # let again = tokio::time::timeout(std::time::Duration::from_millis(20), send(&throttle, request()?)).await;
    /// # assert!(again.is_err(), "the second call waits for an hour");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Throttle::acquire`]; [`Error::Unmatched`] where the throttle refuses what belongs to no upstream.
    pub async fn acquire_for(&self, request: &RequestHead<'_>, call: &Call) -> Result<Option<Permit>, Error> {
        match self.route(request, Some(call))? {
            Some(mut route) => {
                let (since, anew) = (route.since, |registered| Route::of_request(registered, request, Some(call)));
                self.permit(&mut route, since, anew).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Takes note of the response to a permit's call, by its status and headers, as the [middleware](Throttle::middleware) does: a
    /// refusal pauses everybody, the quota it tells is learned where that is asked for, what it says that the call used is settled.
    ///
    /// Say nothing of a response that came by way of a redirect: another server may have made it. Returns at once; the store is told in
    /// the background.
    pub fn answered(&self, permit: &Permit, status: StatusCode, headers: &HeaderMap) {
        self.learn_from(permit, &Answer::direct(status, headers));
    }
}
