//! A client of a model.

use std::error::Error;
use std::time::Duration;

use outgate::{Passage, Throttle};
use reqwest::{Response, StatusCode, redirect, retry};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

use crate::answer::{self, Kind};
use crate::limits::{self, TOKENS};
use crate::manner::Manner;

/// Asks a model, no more than it allows.
#[derive(Clone)]
pub(crate) struct Client {
    http: ClientWithMiddleware,
    model: String,
    manner: Manner,
}

impl Client {
    pub(crate) fn new(model: String, minute: Duration, manner: Manner) -> Result<Self, Box<dyn Error>> {
        let throttle = Throttle::builder().upstream(limits::upstream(&model, minute, manner)).build()?;
        // Every call has to come past the throttle: what reqwest would repeat or redirect by itself does not.
        let http = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).retry(retry::never());
        let http = ClientBuilder::new(http.build()?).with(throttle.middleware()).build();
        Ok(Self { http, model, manner })
    }

    /// Asks a question, reads the answer as it comes, and says what it used when it is over.
    pub(crate) async fn ask(&self, question: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
        let url = format!("http://{}{}", self.model, answer::path(question));
        let response = self.http.post(url).with_extension(self.manner.call(Kind::of(question))).send().await?;
        // A call that was refused used nothing.
        let is_refused = response.status() == StatusCode::TOO_MANY_REQUESTS;
        let passage = response.extensions().get::<Passage>().cloned();
        let used = if is_refused { Some(0) } else { read(response).await? };
        if let (Some(passage), Some(used), true) = (passage, used, self.manner.settles()) {
            passage.settle(TOKENS, used);
        }
        Ok(())
    }
}

/// Reads an answer to its end, and finds what it used. An answer that breaks off may have used anything: nothing is settled then.
async fn read(mut response: Response) -> reqwest::Result<Option<u64>> {
    let (mut rest, mut used) = (Vec::new(), None);
    while let Some(chunk) = response.chunk().await? {
        rest.extend_from_slice(&chunk);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            used = answer::used(&String::from_utf8_lossy(&line)).or(used);
        }
    }
    Ok(used)
}
