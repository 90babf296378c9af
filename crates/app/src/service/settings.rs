//! What is set of the target itself: where it listens, and what its controllers tell hosts.

use std::io;
use std::net::SocketAddr;

use flashyard_time::Duration;

use super::fault::{InUse, Unavailable};
use super::work::Work;
use super::{Fault, Stack};
use crate::control::{TargetView, View};
use crate::cores::CoreState;
use crate::spec::TargetSettings;

/// How long a port that is in use is tried again, and how often.
const PORT_PATIENCE: Duration = Duration::from_secs(3);
const PORT_RETRY: Duration = Duration::from_ms(50);

/// A place where the target listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// What was asked for; port 0 is any.
    asked: SocketAddr,
    /// With its real port.
    real: SocketAddr,
}

/// Who wants something set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A configuration file: where `serve --listen` was given, that stays.
    File,
    /// A command.
    Command,
}

impl Work<'_> {
    /// Listens for the first time.
    pub(super) fn listen(&mut self, instead: &[SocketAddr]) -> Result<Vec<SocketAddr>, Fault> {
        let set = self.settings.effective().listen.unwrap_or_default();
        let addresses = if instead.is_empty() { &set } else { instead };
        let (listeners, _) = self.listen_as_well(addresses)?;
        self.edit(|stack| {
            stack.listens_instead = !instead.is_empty();
            stack.listeners = listeners;
        });
        self.tell_listeners();
        Ok(self.real_addresses())
    }

    /// What a file wants to be otherwise than it is.
    pub(super) fn settings_to_change(&self, wanted: &TargetSettings) -> Option<TargetSettings> {
        let now = self.settings.effective();
        let differs = TargetSettings {
            listen: wanted
                .listen
                .clone()
                .filter(|it| Some(it) != now.listen.as_ref()),
            max_transfer: wanted
                .max_transfer
                .filter(|it| Some(*it) != now.max_transfer),
            io_queues: wanted.io_queues.filter(|it| Some(*it) != now.io_queues),
            queue_depth: wanted.queue_depth.filter(|it| Some(*it) != now.queue_depth),
            in_capsule: wanted.in_capsule.filter(|it| Some(*it) != now.in_capsule),
        };
        (differs != TargetSettings::default()).then_some(differs)
    }

    /// Sets what is given. New addresses are listened at before anything else changes, so that one
    /// that cannot be had changes nothing.
    pub(super) fn set_target(&mut self, change: TargetSettings, by: By) -> Result<View, Fault> {
        change.check()?;
        let at_once = !self.listeners.is_empty() && (by == By::Command || !self.listens_instead);
        let listen = change.listen.clone().filter(|_| at_once);
        let settings = self.settings.with(change);
        let (listeners, new) = match &listen {
            Some(addresses) => self.listen_as_well(addresses)?,
            None => (self.listeners.clone(), Vec::new()),
        };
        let noted = self.commit(|state, _| {
            state.put_settings(&settings)?;
            let settings = settings.clone();
            Ok(|stack: &mut Stack| stack.settings = settings)
        });
        if let Err(fault) = noted {
            self.unlisten(&new);
            return Err(fault);
        }
        self.target.set_controller_limits(settings.limits());
        if listen.is_some() {
            let before = self.edit(|stack| {
                stack.listens_instead = false;
                std::mem::replace(&mut stack.listeners, listeners)
            });
            let gone: Vec<Listener> = before
                .into_iter()
                .filter(|old| !self.listeners.contains(old))
                .collect();
            self.unlisten(&gone);
            self.tell_listeners();
        }
        Ok(self.view_target())
    }

    /// The target's own settings.
    pub(super) fn view_target(&self) -> View {
        let config = self.target.config();
        View::Target(TargetView {
            listen: self.real_addresses(),
            nqn_prefix: config.nqn_prefix.clone(),
            cores: config.cores,
            limits: self.view_limits(),
        })
    }

    /// Where the target is to listen, in the order asked for, listening there already; and which of
    /// it is new.
    fn listen_as_well(
        &self,
        addresses: &[SocketAddr],
    ) -> Result<(Vec<Listener>, Vec<Listener>), Fault> {
        let (mut all, mut new) = (Vec::new(), Vec::new());
        let mut present = self.listeners.clone();
        for &asked in addresses {
            if let Some(at) = present.iter().position(|listener| listener.asked == asked) {
                all.push(present.swap_remove(at));
                continue;
            }
            let listening = self
                .cores
                .call(0, move |core| async move { listen(&core, asked).await });
            match listening {
                Ok(real) => {
                    all.push(Listener { asked, real });
                    new.push(Listener { asked, real });
                }
                Err(error) => {
                    self.unlisten(&new);
                    return Err(self.listen_fault(asked, error));
                }
            }
        }
        Ok((all, new))
    }

    fn unlisten(&self, listeners: &[Listener]) {
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.real).collect();
        self.cores.call(0, move |core| async move {
            for address in addresses {
                core.engine.unlisten(address);
            }
        });
    }

    fn tell_listeners(&self) {
        self.target.set_listeners(self.real_addresses());
    }

    fn real_addresses(&self) -> Vec<SocketAddr> {
        self.listeners
            .iter()
            .map(|listener| listener.real)
            .collect()
    }

    fn listen_fault(&self, address: SocketAddr, error: io::Error) -> Fault {
        let own = self
            .listeners
            .iter()
            .find(|own| own.real.port() == address.port());
        match (error.kind(), own) {
            (io::ErrorKind::AddrInUse, Some(own)) => InUse::OwnPort(address, own.real).into(),
            (io::ErrorKind::AddrInUse, None) => InUse::Port(address).into(),
            _ => Unavailable::Listen(address, error).into(),
        }
    }
}

/// Listens. After `kill -9` the kernel may hold the sockets of the target before us a moment
/// longer, and those of a listener that was removed.
async fn listen(core: &CoreState, address: SocketAddr) -> io::Result<SocketAddr> {
    let deadline = core.rt.now() + PORT_PATIENCE;
    loop {
        match flashyard_tcp::listen(&core.engine, address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && core.rt.now() < deadline => {
                core.rt.sleep(PORT_RETRY).await;
            }
            outcome => return outcome,
        }
    }
}
