//! A clock that leaps ahead, and is set right: what was told meanwhile.

use outgate::testing::RedisServer;

use crate::expiry::granted;
use crate::{Desk, Log, NOW, SECOND, must};

const HOUR: i64 = 3_600 * SECOND;

#[test]
fn a_pause_of_a_leap_that_is_taken_back_holds_nobody_up_and_is_no_other_when_it_would_have_begun() {
    let server = must(RedisServer::start());
    let logs: [Log<'_>; 2] = [("calls", &[(5, SECOND)]), ("m/calls", &[(5, SECOND)])];
    for (at, scope, looks_first) in [(0, None, true), (1, None, false), (2, Some("m"), true), (3, Some("m"), false)] {
        let name = format!("leap {at}");
        let mut desk = Desk::new(&server, &name, Some(NOW));
        (desk.horizon, desk.looks_first) = (SECOND, looks_first);
        let width = 1 + usize::from(scope.is_some());
        let asks = |desk: &mut Desk<'_>, latest: i64| {
            desk.latest = latest;
            granted(&desk.book(&logs[..width], &[(1, None, &[1, 1][..width])]))
        };
        assert_eq!(asks(&mut desk, 0), 1);
        desk.now = Some(NOW + HOUR);
        assert_eq!(desk.pause(scope, 100 * SECOND)[1], 100 * SECOND);
        assert_eq!(asks(&mut desk, 0), 0, "so far nobody knows better");
        assert_eq!(asks(&mut desk, NOW + SECOND), 1, "the clock had leapt");
        // The next, half an hour later, is none in a row with it.
        desk.now = Some(NOW + HOUR + HOUR / 2);
        desk.known = 0;
        assert_eq!(desk.pause(scope, 10 * SECOND)[1], 10 * SECOND);
        assert_eq!(asks(&mut desk, 0), 0, "a pause that has begun holds");
    }
}
