//! Which faults were complained of lately, so that one that lasts is traced at once and then every minute. Pure: time is an
//! argument.

use std::time::Duration;

use tokio::time::Instant;

/// How long nothing more is said of a fault.
const PAUSE: Duration = Duration::from_secs(60);
/// Faults of one minute that are told apart; more of them are not worth a line each.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Complaints(Vec<Complaint>);

#[derive(Debug)]
struct Complaint {
    code: String,
    key: String,
    at: Instant,
}

impl Complaints {
    /// Whether this fault is to be traced now: what the server calls it, and the key that it is about, if any.
    pub(super) fn is_due(&mut self, code: &str, key: &str, now: Instant) -> bool {
        self.0.retain(|complaint| now.saturating_duration_since(complaint.at) < PAUSE);
        if self.0.len() == MOST || self.0.iter().any(|complaint| complaint.code == code && complaint.key == key) {
            return false;
        }
        self.0.push(Complaint { code: code.to_owned(), key: key.to_owned(), at: now });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_at_once_and_then_every_minute() {
        let (mut complaints, start) = (Complaints::default(), Instant::now());
        let told = |complaints: &mut Complaints, code, key, ms: u64| {
            complaints.is_due(code, key, start + Duration::from_millis(ms))
        };
        assert!(told(&mut complaints, "WRONGTYPE", "one", 0));
        assert!(!told(&mut complaints, "WRONGTYPE", "one", 59_999));
        assert!(told(&mut complaints, "WRONGTYPE", "another", 59_999), "another key");
        assert!(told(&mut complaints, "NOPERM", "one", 59_999), "another fault");
        assert!(told(&mut complaints, "WRONGTYPE", "one", 60_000));
        assert!(!told(&mut complaints, "WRONGTYPE", "one", 119_999));
    }

    #[test]
    fn many_faults_take_bounded_room_and_lines() {
        let (mut complaints, start) = (Complaints::default(), Instant::now());
        let keys: Vec<String> = (0..1_000).map(|key| format!("key {key}")).collect();
        let mut told = |now| keys.iter().filter(|key| complaints.is_due("WRONGTYPE", key, now)).count();
        assert_eq!((told(start), told(start), told(start + PAUSE)), (MOST, 0, MOST));
        assert!(complaints.0.len() <= MOST);
    }
}
