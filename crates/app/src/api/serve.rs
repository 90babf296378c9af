//! What both ends of the API agree on, and who carries requests out behind it.

use crate::control::{Asker, Request};

/// Longest body of a request: a configuration file of thousands of entries fits.
pub(super) const BODY_BYTES_MAX: usize = 16 << 20;

/// Name of the socket in the state directory.
pub(super) const SOCKET: &str = "api.sock";

/// Before the path of every operation: a change that clients would not survive gets another one.
pub(super) const PREFIX: &str = "/api/v1";

/// Who carries requests out. A request may take long: each has a thread of its own.
pub trait Serve<T, E>: Fn(Request, &dyn Asker) -> Result<T, E> + Send + Sync + 'static {}

impl<T, E, S> Serve<T, E> for S where
    S: Fn(Request, &dyn Asker) -> Result<T, E> + Send + Sync + 'static
{
}
