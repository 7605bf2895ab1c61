//! What would be fair, and what would be best.

use std::time::Duration;

use outgate::Limit;
use outgate::ledger::{SlidingLog, Stamp, Term};
use outgate::testing::oracle;

use crate::call::Call;

/// When each call of a scope would start if all processes stood in one queue before a store that takes no time; nothing for
/// those that would be refused. Calls come in the order in which they were wanted.
pub(crate) fn one_queue(calls: &[&Call], limit: &Limit, max_wait: Duration) -> Vec<Option<Duration>> {
    let terms = [Term::new(limit.quota(), micros(limit.window() + limit.guard_or_default()))];
    let mut log = SlidingLog::new();
    let start = |call: &&Call| {
        let wanted = Stamp::from_micros(micros(call.wanted));
        let start = log.earliest(wanted, &terms, 1);
        let wait = start.since(wanted);
        (wait <= max_wait).then(|| {
            log.append(start, 1, terms[0].span);
            call.wanted + wait
        })
    };
    calls.iter().map(start).collect()
}

/// Jain's index of what each process got, measured against its fair share: as much as it wants, or an equal part of what
/// those leave who want less.
pub(crate) fn index(wanted: &[f64], got: &[f64]) -> f64 {
    let fair = shares(wanted, got.iter().sum());
    let relative: Vec<f64> =
        got.iter().zip(&fair).filter(|(_, fair)| **fair > 0.0).map(|(got, fair)| got / fair).collect();
    oracle::jain(&relative)
}

fn shares(wanted: &[f64], total: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&one, &other| wanted[one].total_cmp(&wanted[other]));
    let mut shares = vec![0.0; wanted.len()];
    let (mut left, mut parties): (f64, f64) = (total, wanted.iter().map(|_| 1.0).sum());
    for process in order {
        shares[process] = wanted[process].min(left / parties);
        left -= shares[process];
        parties -= 1.0;
    }
    shares
}

pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::End;

    #[test]
    fn who_wants_little_gets_it_and_the_others_share_the_rest() {
        assert_eq!(shares(&[1.0, 9.0, 5.0], 9.0), [1.0, 4.0, 4.0]);
        assert_eq!(shares(&[1.0, 2.0], 3.0), [1.0, 2.0]);
        assert!((index(&[1.0, 9.0, 5.0], &[1.0, 4.0, 4.0]) - 1.0).abs() < f64::EPSILON);
        assert!(index(&[1.0, 9.0, 5.0], &[1.0, 7.0, 1.0]) < 0.8);
    }

    #[test]
    fn one_queue_fills_every_window_and_refuses_who_would_wait_too_long() {
        let at = Duration::from_millis;
        let call = |ms| Call { process: 0, scope: 0, wanted: at(ms), end: End::Waiting };
        let calls = [call(0), call(10), call(20), call(30), call(40)];
        let calls: Vec<&Call> = calls.iter().collect();
        let starts = one_queue(&calls, &Limit::per_second(2), at(1_035));
        assert_eq!(starts, [Some(at(0)), Some(at(10)), Some(at(1_050)), Some(at(1_060)), None]);
    }
}
