//! The real machine: one io_uring per core.

use std::future::Future;
use std::io;

use flashyard_time::Duration;

use crate::Rt;

/// Settings of one core.
#[derive(Clone, Debug)]
pub struct Config {
    /// Core number given to [`Rt::core`].
    pub core: usize,
    /// Pin the thread to this processor.
    pub processor: Option<usize>,
    /// How long to go on polling after the last completion before sleeping.
    pub poll: Duration,
    /// Bound of the buffer pool of this thread, in bytes.
    pub buffer_bytes: usize,
    /// Receive ring: number of 16 KiB chunks.
    pub chunks: u16,
}

impl Default for Config {
    fn default() -> Self {
        Self { core: 0, processor: None, poll: Duration::from_us(60), buffer_bytes: 256 << 20, chunks: 128 }
    }
}

/// Runs `main` on this thread until it ends; its tasks are dropped then and their operations waited for.
pub fn run<F, M>(config: Config, main: M) -> io::Result<F::Output>
where
    M: FnOnce(Rt) -> F,
    F: Future + 'static,
{
    let _ = (config, main);
    unimplemented!()
}
