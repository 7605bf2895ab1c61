//! Several messages at once.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Waits until all have an outcome: with the first error, if there is any.
pub(crate) async fn all<E, F: Future<Output = Result<(), E>>>(parts: impl Iterator<Item = F>) -> Result<(), E> {
    let mut parts: Vec<Pin<Box<F>>> = parts.map(Box::pin).collect();
    let mut all = Ok(());
    poll_fn(|cx| {
        parts.retain_mut(|part| {
            let Poll::Ready(outcome) = part.as_mut().poll(cx) else { return true };
            if all.is_ok() {
                all = outcome;
            }
            false
        });
        if parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_go_at_once_and_all_are_waited_for_even_if_one_fails() {
        let begin = Instant::now();
        let part = |secs| async move {
            sleep(Duration::from_secs(secs)).await;
            if secs == 2 { Err(secs) } else { Ok(()) }
        };
        assert_eq!(all([3, 2, 1].into_iter().map(part)).await, Err(2));
        assert_eq!(begin.elapsed().as_secs(), 3);
        assert_eq!(all([1, 3].into_iter().map(part)).await, Ok(()));
        assert_eq!(all([0; 0].into_iter().map(part)).await, Ok(()));
    }
}
