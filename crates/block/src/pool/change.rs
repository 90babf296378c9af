//! Changes that run to their end.

use flashyard_runtime::Rt;
use flashyard_runtime::sync::oneshot;

use super::error::PoolError;
use crate::IoError;

/// Runs a change of a pool to its end even if the caller goes away.
pub(super) async fn run_on<T: 'static>(
    rt: &Rt,
    change: impl Future<Output = Result<T, PoolError>> + 'static,
) -> Result<T, PoolError> {
    let (sender, receiver) = oneshot::channel();
    // The caller may have gone; the change stands nevertheless.
    rt.spawn(async move { drop(sender.send(change.await)) })
        .detach();
    let ended = || PoolError::Device {
        action: "changing the pool",
        error: IoError::Aborted,
    };
    receiver.await.unwrap_or_else(|| Err(ended()))
}
