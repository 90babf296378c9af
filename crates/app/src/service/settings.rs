//! What is set of the target itself: where it listens, and what its controllers tell hosts.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::fault::{InUse, Unavailable};
use super::work::Work;
use super::{Fault, Stack};
use crate::control::{TargetView, View};
use crate::listening::Purpose;
use crate::spec::{Address, TargetSettings};

/// How long a port that is in use is tried again, and how often.
const PORT_PATIENCE: Duration = Duration::from_secs(3);
const PORT_RETRY: Duration = Duration::from_millis(50);

/// A place where the target listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// What was asked for, as it was written.
    written: Address,
    /// What that stands for; port 0 is any.
    asked: SocketAddr,
    /// With its real port.
    real: SocketAddr,
}

impl Listener {
    /// As it was written if that is a name, else the address with its real port.
    fn shown(&self) -> Address {
        match self.written == self.asked.into() {
            true => self.real.into(),
            false => self.written.clone(),
        }
    }
}

impl Work<'_> {
    /// Listens for the first time.
    pub(super) fn listen(&mut self, instead: &[Address]) -> Result<Vec<SocketAddr>, Fault> {
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

    /// Sets what is given.
    pub(super) fn set_target(&mut self, change: TargetSettings) -> Result<View, Fault> {
        let listens_elsewhere = change.listen.is_some();
        let settings = self.settings.with(change);
        self.put_target(settings, listens_elsewhere)?;
        Ok(self.view_target())
    }

    /// Has the settings of a file. Where `serve --listen` was given, that stays.
    pub(super) fn put_target_of_file(&mut self, settings: TargetSettings) -> Result<(), Fault> {
        let (now, then) = (self.settings.effective(), settings.effective());
        let listens_elsewhere = now.listen != then.listen && !self.listens_instead;
        self.put_target(settings, listens_elsewhere)
    }

    /// Has other settings. New addresses are listened at before anything else changes, so that one
    /// that cannot be had changes nothing.
    fn put_target(
        &mut self,
        settings: TargetSettings,
        listens_elsewhere: bool,
    ) -> Result<(), Fault> {
        settings.check_table()?;
        let listen = settings.effective().listen;
        let listen = listen.filter(|_| listens_elsewhere && !self.listeners.is_empty());
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
            let stays = |old: &Listener| self.listeners.iter().any(|it| it.real == old.real);
            let gone: Vec<Listener> = before.into_iter().filter(|old| !stays(old)).collect();
            self.unlisten(&gone);
            self.tell_listeners();
        }
        Ok(())
    }

    /// The target's own settings.
    pub(super) fn view_target(&self) -> View {
        let config = self.target.config();
        let mut written: Vec<Address> = self.listeners.iter().map(Listener::shown).collect();
        written.dedup();
        View::Target(TargetView {
            listen: written,
            addresses: self.real_addresses(),
            nqn_prefix: self.settings.prefix().to_owned(),
            cores: config.cores,
            limits: self.view_limits(),
            socket_folder: self.settings.socket_folder.clone(),
        })
    }

    /// Where the target is to listen, in the order asked for, listening there already; and which of
    /// it is new.
    fn listen_as_well(
        &self,
        addresses: &[Address],
    ) -> Result<(Vec<Listener>, Vec<Listener>), Fault> {
        let (mut all, mut new) = (Vec::new(), Vec::new());
        for written in addresses {
            let added = self.listen_at(written, &mut all, &mut new);
            if let Err(fault) = added {
                self.unlisten(&new);
                return Err(fault);
            }
        }
        Ok((all, new))
    }

    /// Listens at all that a name stands for. Names may stand for addresses that this machine has
    /// not, as `localhost` does where there is no IPv6; one it has to have.
    fn listen_at(
        &self,
        written: &Address,
        all: &mut Vec<Listener>,
        new: &mut Vec<Listener>,
    ) -> Result<(), Fault> {
        let unknown = |error| Unavailable::Unknown(written.clone(), error);
        let mut absent = None;
        let before = all.len();
        for asked in written.resolve().map_err(unknown)? {
            let listener = |real| Listener {
                written: written.clone(),
                asked,
                real,
            };
            // Port 0 is another one each time.
            if asked.port() != 0 && all.iter().any(|it| it.asked == asked) {
                continue;
            }
            let free = |it: &&Listener| !all.iter().any(|other| other.real == it.real);
            let mut present = self.listeners.iter().filter(|it| it.asked == asked);
            if let Some(present) = present.find(free) {
                all.push(listener(present.real));
                continue;
            }
            match self.listen_on(asked) {
                Ok(real) => {
                    all.push(listener(real));
                    new.push(listener(real));
                }
                Err(error) if is_absent(&error) => absent = Some((asked, error)),
                Err(error) => return Err(self.listen_fault(asked, error)),
            }
        }
        match absent {
            Some((asked, error)) if all.len() == before => Err(self.listen_fault(asked, error)),
            _ => Ok(()),
        }
    }

    /// Has the first core listen. After `kill -9` the kernel may hold the sockets of the target
    /// before us a moment longer, and those of a listener that was removed.
    fn listen_on(&self, asked: SocketAddr) -> io::Result<SocketAddr> {
        let deadline = Instant::now() + PORT_PATIENCE;
        let listener = loop {
            match self.service.listening.open(Purpose::Hosts, asked) {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline =>
                {
                    thread::sleep(PORT_RETRY);
                }
                opened => break opened?,
            }
        };
        let real = listener.local_addr()?;
        let listens = self.cores.call(0, move |core| async move {
            flashyard_tcp::listen_on(&core.engine, listener)
        });
        listens.inspect_err(|_| self.service.listening.close(Purpose::Hosts, real))
    }

    fn unlisten(&self, listeners: &[Listener]) {
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.real).collect();
        for address in &addresses {
            self.service.listening.close(Purpose::Hosts, *address);
        }
        self.cores.call(0, move |core| async move {
            for address in addresses {
                core.engine.unlisten(address);
            }
        });
    }

    /// Tells hosts where there is something new to connect to, and keeps it for the process that
    /// comes next.
    fn tell_listeners(&self) {
        self.target.set_listeners(self.real_addresses());
        self.service.listening.change();
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

/// Whether this machine has no such address.
pub fn is_absent(error: &io::Error) -> bool {
    let unsupported = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(unsupported)
}
