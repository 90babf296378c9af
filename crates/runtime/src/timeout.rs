//! A timeout for a future.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use flashyard_time::{Duration, Time};

use crate::Rt;

impl Rt {
    /// What `future` gives, if that comes within `span`; else `None`, and the future is dropped.
    pub async fn timeout<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.timeout_at(self.now() + span, future).await
    }

    /// The same up to an instant. The future is asked first: what is there at the deadline counts.
    pub async fn timeout_at<T>(
        &self,
        deadline: Time,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut future, mut late) = (pin!(future), pin!(self.sleep_until(deadline)));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => late.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}
