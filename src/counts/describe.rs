//! What each metric is, in the recorder's own words.

use metrics::Unit;

/// Says what each metric is.
pub(super) fn describe() {
    let (seconds, count) = (Unit::Seconds, Unit::Count);
    metrics::describe_counter!("outgate_calls_total", count, "Calls, by what became of them");
    metrics::describe_histogram!("outgate_wait_seconds", seconds, "How long calls waited in a queue for their permits");
    metrics::describe_histogram!("outgate_late_seconds", seconds, "How long after their slots permits were given");
    metrics::describe_gauge!("outgate_callers_waiting", count, "Calls that wait in a queue");
    metrics::describe_gauge!("outgate_oldest_wait_seconds", seconds, "How long the longest has waited that waits");
    metrics::describe_counter!("outgate_retries_total", count, "Refused calls that were sent again");
    metrics::describe_counter!("outgate_pauses_total", count, "Times that a queue fell silent");
    metrics::describe_gauge!("outgate_pause_seconds", seconds, "For how long yet a queue is silent");
    metrics::describe_counter!("outgate_units_estimated_total", count, "Units that calls reserved by estimates");
    metrics::describe_counter!("outgate_units_settled_total", count, "Units that calls were settled at");
    metrics::describe_gauge!("outgate_quota_used", count, "Units used of a limit, when usage was last asked for");
    metrics::describe_gauge!(
        "outgate_outside_use",
        count,
        "Units that others use of a limit, when usage was last asked for"
    );
    metrics::describe_histogram!("outgate_store_seconds", seconds, "How long messages to the store took");
    metrics::describe_counter!("outgate_store_failures_total", count, "Messages that the store did not answer");
}
