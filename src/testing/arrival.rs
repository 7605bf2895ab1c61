use http::Method;

/// A call as it reached a [`StrictUpstream`](super::StrictUpstream), refused or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// When it was judged, in µs since the upstream started. Never before the arrival recorded
    /// before it.
    pub at: i64,
    /// Whether it was within the limits.
    pub admitted: bool,
    /// How many units it cost.
    pub cost: u64,
    /// Who called, as the request header `x-caller` says.
    pub caller: Option<String>,
    /// The method of the request.
    pub method: Method,
    /// The path of the request, with its query.
    pub path: String,
    /// When its response was ready, body and all, or its caller had gone; `None` while it is in flight.
    pub left: Option<i64>,
}
