//! The socket of a function: one client at a time, and its messages, which are answered in their
//! order.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net;
use std::rc::Rc;

use flashyard_engine::Core;
use flashyard_nvme::vfio_user::pci::{INTX, IRQS, MSIX, REGIONS};
use flashyard_nvme::vfio_user::{
    Capabilities, Command, DEVICE_PCI, DEVICE_RESET, DeviceInfo, Header, IRQ_EVENTFD, IRQ_NORESIZE,
    IrqInfo, Reply, Request, Version,
};
use flashyard_runtime::Task;
use flashyard_runtime::unix::{Descriptors, UnixListener, UnixStream};
use flashyard_time::Duration;

use crate::function::{FunctionSpec, State};
use crate::memory::{MOST_REGIONS, MapError};
use crate::regions;

const EINVAL: u32 = 22;
const ENOENT: u32 = 2;
const ENOMEM: u32 = 12;
/// What a client is offered, as far as it proposes it.
const CAPABILITIES: Capabilities = Capabilities {
    descriptors: Some(16),
    data: Some(1 << 20),
    maps: Some(MOST_REGIONS as u64),
    page_sizes: Some(4096),
};
/// A message that was longer gives its memory back.
const KEPT_MESSAGE: usize = 64 << 10;
/// Messages in one turn: a client that always has another one does not hold up the core.
const MESSAGES: u32 = 16;
/// Before accepting is tried again when there is no descriptor.
const ACCEPT_RETRY: Duration = Duration::from_ms(100);

/// A function that is offered. Dropping it ends it: its client loses the connection, and nobody
/// listens any more.
pub struct Function {
    state: Rc<State>,
    _tasks: (Task<()>, [Task<()>; 2]),
}

/// What a function does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionReport {
    /// A client is connected.
    pub connected: bool,
    /// CSTS.RDY: the guest uses the controller.
    pub ready: bool,
    /// CSTS.CFS: the controller has failed, and waits for the guest to reset it.
    pub failed: bool,
    /// I/O queues of the guest.
    pub io_queues: usize,
}

/// Offers a function on `core`, to clients that connect to `listener`.
///
/// # Errors
/// There are no descriptors left.
pub fn offer(
    core: &Rc<Core>,
    spec: FunctionSpec,
    listener: net::UnixListener,
) -> io::Result<Function> {
    let listener = UnixListener::new(core.rt(), listener)?;
    let state = State::new(core, spec)?;
    let rt = core.rt();
    let tasks = (
        rt.spawn(accept(state.clone(), listener)),
        state.worker.tasks(),
    );
    Ok(Function {
        state,
        _tasks: tasks,
    })
}

impl Function {
    /// What it does now.
    pub fn report(&self) -> FunctionReport {
        let registers = self.state.registers.borrow();
        FunctionReport {
            connected: self.state.connected.get(),
            ready: registers.is_ready(),
            failed: registers.is_fatal(),
            io_queues: self.state.queues.borrow().submissions(),
        }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.state.forget_client();
    }
}

/// Accepts clients; one that comes while another is connected is let go at once.
async fn accept(state: Rc<State>, listener: UnixListener) {
    let rt = state.core.rt().clone();
    // Dropped with this task.
    let mut client: Option<Task<()>> = None;
    loop {
        let Ok(stream) = listener.accept().await else {
            rt.sleep(ACCEPT_RETRY).await;
            continue;
        };
        if state.connected.replace(true) {
            continue;
        }
        drop(client.take());
        let state = state.clone();
        client = Some(rt.spawn(async move {
            // However it ended, the client is gone.
            let _ = converse(&state, &stream).await;
            state.forget_client();
            state.connected.set(false);
        }));
    }
}

/// Answers the messages of a client until it goes, or sends what cannot be read on.
async fn converse(state: &Rc<State>, stream: &UnixStream) -> io::Result<()> {
    let mut message = Vec::new();
    let mut agreed = false;
    let mut messages = 0u32;
    while let Some(fds) = stream
        .recv_message(&mut message, Header::message_len)
        .await?
    {
        messages = messages.wrapping_add(1);
        if messages.is_multiple_of(MESSAGES) {
            state.core.rt().turn_end().await;
        }
        let (head, payload) = message
            .split_first_chunk()
            .ok_or(io::ErrorKind::InvalidData)?;
        let header = Header::decode(head).map_err(|_| io::ErrorKind::InvalidData)?;
        if header.reply {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut beside = None;
        let reply = match Request::decode(&header, payload, fds.len()) {
            Ok(Request::Version(version)) if !agreed => {
                let reply = agree(&version);
                agreed = reply.is_ok();
                reply.map(|text| encode_version(header.id, &text))
            }
            Ok(Request::Version(_)) => Err(EINVAL),
            Ok(Request::RegionInfo { argsz, index }) if agreed => {
                let info = region_info(state, argsz, index);
                info.map(|(reply, file)| {
                    beside = file;
                    reply.encode(header.id)
                })
            }
            Ok(request) if agreed => handle(state, &header, request, fds).await,
            Ok(_) => Err(EINVAL),
            Err(malformed) => Err(malformed.errno()),
        };
        let reply = reply.unwrap_or_else(|errno| refuse(&header, errno));
        if !header.no_reply {
            // Commands that a doorbell has announced come first: sending takes a while.
            state.core.rt().turn_end().await;
            let beside = beside.as_ref().map(AsFd::as_fd);
            stream.send(&reply, beside.as_slice()).await?;
        }
        if !agreed {
            return Ok(());
        }
        if message.capacity() > KEPT_MESSAGE {
            message = Vec::new();
        }
    }
    Ok(())
}

fn refuse(header: &Header, errno: u32) -> Vec<u8> {
    Reply::Error(header.command, errno).encode(header.id)
}

/// The text of the version that both speak: 0.0 is the only one.
fn agree(version: &Version<'_>) -> Result<String, u32> {
    if version.major != 0 {
        return Err(EINVAL);
    }
    Ok(CAPABILITIES
        .agreed(&Capabilities::read(version.text))
        .text())
}

fn encode_version(id: u16, text: &str) -> Vec<u8> {
    let version = Version {
        major: 0,
        minor: 0,
        text,
    };
    Reply::Version(version).encode(id)
}

/// Does what a request asks for; the reply, if one is wanted, or `errno`.
async fn handle(
    state: &Rc<State>,
    header: &Header,
    request: Request<'_>,
    mut fds: Descriptors,
) -> Result<Vec<u8>, u32> {
    let reply = match request {
        Request::Version(_) | Request::RegionInfo { .. } => return Err(EINVAL),
        Request::DmaMap(map) => {
            let mapped = state.map(&map, fds.as_slice().first()).await;
            mapped.map_err(MapError::errno)?;
            // The mapping holds the file, so this closes at once.
            drop(fds.take());
            Reply::Done(Command::DMA_MAP)
        }
        Request::DmaUnmap(unmap) => {
            state.unmap(&unmap).await.then_some(()).ok_or(ENOENT)?;
            Reply::DmaUnmap(unmap)
        }
        Request::DeviceInfo => Reply::Device(DeviceInfo {
            flags: DEVICE_RESET | DEVICE_PCI,
            regions: REGIONS,
            irqs: IRQS,
        }),
        Request::IrqInfo { index } => Reply::Irq(describe_irq(state, index)?),
        Request::SetIrqs(set) => {
            let done = state.set_irqs(&set, &mut fds).await;
            done.map_err(|_| EINVAL)?;
            Reply::Done(Command::SET_IRQS)
        }
        Request::RegionRead(access) => {
            let data = regions::read(state, access).map_err(|_| EINVAL)?;
            return Ok(Reply::RegionRead(access, &data).encode(header.id));
        }
        Request::RegionWrite(access, data) => {
            // A reset of the function is complete with the answer.
            if regions::write(state, access, data).map_err(|_| EINVAL)? {
                state.until_stopped().await;
            }
            state.gate_taken().await;
            Reply::RegionWrite(access)
        }
        Request::Reset => {
            state.reset();
            state.until_stopped().await;
            state.gate_taken().await;
            Reply::Done(Command::RESET)
        }
    };
    // Doorbells, as QEMU rings them, want none.
    Ok(match header.no_reply {
        true => Vec::new(),
        false => reply.encode(header.id),
    })
}

/// What a region is; the file of one that can be mapped goes beside the whole of it.
fn region_info(
    state: &State,
    argsz: u32,
    index: u32,
) -> Result<(Reply<'static>, Option<OwnedFd>), u32> {
    let doorbells = state.worker.doorbells.borrow();
    let info = regions::describe(index, doorbells.are_mappable()).ok_or(EINVAL)?;
    let info = info.within(argsz);
    let file = match info.areas.is_empty() {
        true => None,
        false => doorbells.file().map_err(|_| ENOMEM)?,
    };
    Ok((Reply::Region(info), file))
}

fn describe_irq(state: &State, index: u32) -> Result<IrqInfo, u32> {
    let flags = match index {
        // Maskable and automasked, as a level has to be.
        INTX => IRQ_EVENTFD | 2 | 4,
        MSIX => IRQ_EVENTFD | IRQ_NORESIZE,
        other if other < IRQS => 0,
        _ => return Err(EINVAL),
    };
    Ok(IrqInfo {
        flags,
        index,
        count: state.worker.interrupts.borrow().count(index),
    })
}
