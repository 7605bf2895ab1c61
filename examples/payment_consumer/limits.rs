//! What the gateways allow, as the throttle is told.

use std::time::Duration;

use outgate::{Limit, Scope, Upstream};

/// The gateways, each with limits of its own.
pub(crate) const GATEWAYS: [&str; 2] = ["north", "south"];
/// Calls a second at one gateway.
pub(crate) const OF_ALL: u32 = 50;
/// Calls a second of one merchant, at one gateway.
pub(crate) const OF_MERCHANT: u32 = 10;
/// Calls in flight at one gateway.
pub(crate) const SEATS: u32 = 25;
/// The header that names the merchant.
pub(crate) const MERCHANT: &str = "x-merchant";

/// Longer than by default: consumers, gateways and Redis share one machine, which may be busy.
const GUARD: Duration = Duration::from_millis(100);
/// For so long the seats of a killed consumer are not free. No call lasts so long.
const LEASE: Duration = Duration::from_secs(3);
/// So long a refund waits for payments at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// A gateway: so many calls a second of all together and of each merchant, and so many in flight.
pub(crate) fn upstream(name: &str, host: &str) -> Upstream {
    Upstream::new(name)
        .host(host)
        .limit(Limit::per_second(OF_ALL).guard(GUARD))
        .limit(Limit::per_second(OF_MERCHANT).guard(GUARD).each(Scope::header(MERCHANT)))
        .limit(Limit::in_flight(SEATS).lease(LEASE))
        .promote_low_after(PATIENCE)
}
