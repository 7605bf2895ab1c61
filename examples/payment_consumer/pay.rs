//! A payment, made at its gateway.

use std::error::Error;

use outgate::{Call, Priority, RedisStore, Throttle};
use reqwest::{StatusCode, redirect, retry};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};

use crate::consumer::Args;
use crate::limits::{self, GATEWAYS, MERCHANT};
use crate::order::Order;

/// Makes payments, no faster than the gateways allow all consumers together.
pub(crate) struct Payer {
    client: ClientWithMiddleware,
    gateways: Vec<String>,
    name: String,
}

impl Payer {
    pub(crate) async fn new(args: &Args) -> Result<Self, Box<dyn Error>> {
        let upstreams = GATEWAYS.iter().zip(&args.gateways).map(|(name, host)| limits::upstream(name, host));
        let store = RedisStore::connect(&args.redis).await?;
        let throttle = Throttle::builder().upstreams(upstreams).store(store).build()?;
        // Every call has to come past the throttle: what reqwest would repeat or redirect by itself does not.
        let client = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).retry(retry::never());
        let client = ClientBuilder::new(client.build()?).with(throttle.middleware()).build();
        Ok(Self { client, gateways: args.gateways.clone(), name: args.name.clone() })
    }

    /// Makes an order, however often it is called with the same key: the gateway knows it by that.
    pub(crate) async fn pay(&self, order: &Order, key: &str) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
        let gateway = self.gateways.get(order.gateway).ok_or("no such gateway")?;
        let priority = if order.is_refund { Priority::Low } else { Priority::Normal };
        let request = self
            .client
            .post(format!("http://{gateway}{}", order.path()))
            .header("idempotency-key", key)
            .header(MERCHANT, &order.merchant)
            .header("x-caller", &self.name)
            .with_extension(Call::new().priority(priority));
        let response = request.send().await?;
        let status = response.status();
        // A call has its seat until its answer was read.
        response.bytes().await?;
        Ok(status)
    }
}
