//! The end of a target: what is in flight is finished, within a bound, and what is left then is
//! named. Ending before is as safe as a power cut: hosts repeat what was not acknowledged.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::Service;
use crate::cores;
use crate::graph::NodeId;
use crate::state::Kind;

/// What was not finished in time.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Devices, with how many I/Os are at each.
    devices: Vec<(String, usize)>,
    /// Cores that do not answer.
    silent: Vec<usize>,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices = self.devices.iter();
        let devices = devices.map(|(name, ios)| match ios {
            1 => format!("1 I/O at device {name}"),
            ios => format!("{ios} I/Os at device {name}"),
        });
        let silent = self.silent.iter();
        let silent = silent.map(|core| format!("core {core} does not answer"));
        let all: Vec<String> = devices.chain(silent).collect();
        match all.is_empty() {
            true => f.write_str("devices that are not closed yet"),
            false => f.write_str(&all.join(", ")),
        }
    }
}

impl Service {
    /// Ends serving, as [`Service::stop`] does. What is not finished after `most` is not waited
    /// for; then the process has to end, for threads are left that wait.
    pub fn stop_within(self: &Arc<Self>, most: Duration) -> Result<(), Unfinished> {
        let (done, ended) = mpsc::channel();
        let service = Arc::clone(self);
        thread::spawn(move || {
            service.stop();
            // The other end is gone if it took too long.
            let _ = done.send(());
        });
        match ended.recv_timeout(most) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.unfinished()),
        }
    }

    /// What is still to be waited for.
    fn unfinished(&self) -> Unfinished {
        let stack = self.stack();
        let until = cores::patience();
        let mut found = Unfinished::default();
        let homes = |core: usize| {
            let devices = stack.graph.all(Kind::Device).filter_map(|id| {
                let device = stack.graph.device(id).filter(|it| it.home == Some(core))?;
                Some((id, device.spec.name.clone()))
            });
            devices.collect::<Vec<(NodeId, String)>>()
        };
        for core in 0..self.cores.count() {
            let devices = homes(core);
            let asked = self.cores.try_send(core, move |state| async move {
                let at_device = |(id, name): (NodeId, String)| {
                    let ios = state.nodes.known_switch(id)?.at_device();
                    (ios > 0).then_some((name, ios))
                };
                devices
                    .into_iter()
                    .filter_map(at_device)
                    .collect::<Vec<_>>()
            });
            // A core that has ended has finished.
            match asked.map(|reply| reply.wait_until(until)) {
                Some(Some(devices)) => found.devices.extend(devices),
                Some(None) => found.silent.push(core),
                None => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_named() {
        let mut left = Unfinished::default();
        assert_eq!(left.to_string(), "devices that are not closed yet");
        left.devices = vec![("a".into(), 1), ("b".into(), 7)];
        left.silent = vec![2];
        assert_eq!(
            left.to_string(),
            "1 I/O at device a, 7 I/Os at device b, core 2 does not answer"
        );
    }
}
