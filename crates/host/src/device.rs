//! A remote namespace as a block device, so that devices here can stack on another target.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

use flashyard_block::{Device, Done, Info, Io, IoError, IoFuture, Limits, Pair, Tag};
use flashyard_nvme::command::{LbaRange, Status};
use flashyard_nvme::identify::{IdentifyController, IdentifyNamespace};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::{Buf, Data, Parts, Rt, Shared};

use crate::association::{ConnectError, Options};
use crate::payload::{Payload, ReadInto};
use crate::queue::HostError;
use crate::remote::{Namespace, Persistence, Remote};

/// Most blocks of one command.
const MAX_BLOCKS: u64 = 1 << 16;
/// The queue sets the descriptor.
const NO_DATA: Sgl = Sgl::Transport { length: 0 };

/// A namespace of a remote target. It grows when the target says so.
///
/// What is longer than a command becomes several, which are in flight at the same time.
///
/// I/O waits while the target is away, and fails with [`IoError::NotReady`] when it is away for
/// longer than [`Persistence::io_timeout`].
#[derive(Debug)]
pub struct RemoteDevice {
    remote: Rc<Remote>,
}

impl RemoteDevice {
    /// Connects to namespace `nsid` of the subsystem in `options`.
    pub async fn open(
        rt: &Rt,
        addr: SocketAddr,
        options: Options,
        nsid: u32,
        persistence: Persistence,
    ) -> Result<Self, ConnectError> {
        if options.queues == 0 {
            return Err(ConnectError::Option("a device needs an I/O queue"));
        }
        let remote = Remote::connect(rt, addr, options, nsid, persistence).await?;
        Ok(Self {
            remote: Rc::new(remote),
        })
    }

    /// The connection.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The blocks of an I/O, if they are on the device; none of a flush.
    fn blocks(&self, io: &Io) -> Result<Blocks, IoError> {
        let namespace = self.remote.namespace();
        let (lba, count) = (io.lba(), io.blocks(namespace.block_size)?);
        let block_size = namespace.block_size as usize;
        let is_there = lba <= namespace.identify.nsze && count <= namespace.identify.nsze - lba;
        let bytes = usize::try_from(count).ok();
        let bytes = bytes.and_then(|count| count.checked_mul(block_size));
        if !is_there || bytes.is_none_or(|bytes| bytes == 0 && !matches!(io, Io::Flush)) {
            return Err(IoError::OutOfRange);
        }
        let most = (namespace.max_transfer / block_size) as u64;
        Ok(Blocks {
            lba,
            count,
            at_once: most.clamp(1, MAX_BLOCKS),
            block_size,
        })
    }
}

/// A checked range, and how it has to be cut.
#[derive(Clone, Copy)]
struct Blocks {
    lba: u64,
    count: u64,
    at_once: u64,
    block_size: usize,
}

impl Blocks {
    /// Pieces that fit a command each, with their place in the buffer.
    fn pieces(self) -> impl Iterator<Item = (LbaRange, Range<usize>)> {
        (0..self.count)
            .step_by(self.at_once as usize)
            .map(move |first| {
                let blocks = self.at_once.min(self.count - first);
                let at = first as usize * self.block_size;
                let range = LbaRange {
                    slba: self.lba + first,
                    blocks: blocks as u32,
                };
                (range, at..at + blocks as usize * self.block_size)
            })
    }

    /// All of them, which fit a command.
    fn range(self) -> LbaRange {
        LbaRange {
            slba: self.lba,
            blocks: self.count as u32,
        }
    }

    fn is_one_command(self) -> bool {
        self.count <= self.at_once
    }
}

impl Device for RemoteDevice {
    fn info(&self) -> Info {
        info(&self.remote.namespace())
    }

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        let remote = Rc::clone(&self.remote);
        let blocks = match self.blocks(&io) {
            Ok(blocks) => blocks,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        match io {
            Io::Read { into, .. } => read(&remote, blocks, into),
            Io::Write { data, fua, .. } => write(&remote, blocks, data, fua),
            // Dataset Management alone promises nothing about what is read afterwards.
            Io::Zero { how, .. } => zero(&remote, blocks, how.frees()),
            Io::Flush => IoFuture::boxed(flush(remote)),
            Io::CompareAndWrite(_) if !can_compare(&self.remote.namespace(), blocks) => {
                IoFuture::ready(Err(IoError::Unsupported))
            }
            Io::CompareAndWrite(pair) => IoFuture::boxed(compare_and_write(remote, blocks, pair)),
        }
    }
}

fn read(remote: &Rc<Remote>, blocks: Blocks, into: Buf) -> IoFuture {
    if blocks.is_one_command() {
        return IoFuture::boxed(read_once(remote.clone(), blocks.range(), into));
    }
    let (mut all, mut parts) = (IoFuture::all(remote.rt()), Parts::of(into));
    for (range, place) in blocks.pieces() {
        let part = parts.cut(place.len());
        all.push(IoFuture::boxed(read_once(remote.clone(), range, part)));
    }
    all.read_into(parts)
}

fn write(remote: &Rc<Remote>, blocks: Blocks, data: Shared, fua: bool) -> IoFuture {
    if blocks.is_one_command() {
        return IoFuture::boxed(write_once(remote.clone(), blocks.range(), data, fua));
    }
    let mut all = IoFuture::all(remote.rt());
    for (range, place) in blocks.pieces() {
        let part = data.slice(place);
        all.push(IoFuture::boxed(write_once(
            remote.clone(),
            range,
            part,
            fua,
        )));
    }
    all.into_io()
}

async fn write_once(
    remote: Rc<Remote>,
    range: LbaRange,
    data: Shared,
    fua: bool,
) -> Result<Done, IoError> {
    let entry = SubmissionQueueEntry::write(remote.nsid(), range, NO_DATA);
    let entry = if fua { entry.with_fua() } else { entry };
    let written = remote.repeatable(async |queue| {
        let payload = Payload::Shared(data.clone());
        queue.command(entry, payload).await.map(drop)
    });
    written.await.map_err(io_error)?;
    Ok(Done::EMPTY)
}

async fn flush(remote: Rc<Remote>) -> Result<Done, IoError> {
    let nsid = remote.nsid();
    let flushed = remote.repeatable(async |queue| queue.flush(nsid).await);
    flushed.await.map_err(io_error)?;
    Ok(Done::EMPTY)
}

fn zero(remote: &Rc<Remote>, blocks: Blocks, free: bool) -> IoFuture {
    let (has_command, most) = {
        let namespace = remote.namespace();
        let most = namespace.max_zeroes / u64::from(namespace.block_size);
        (has_write_zeroes(&namespace), most.clamp(1, MAX_BLOCKS))
    };
    // Without the command, zeroes have to be sent.
    let at_once = if has_command { most } else { blocks.at_once };
    let (blocks, rt, remote) = (Blocks { at_once, ..blocks }, remote.rt(), remote.clone());
    let command = has_command.then_some(free);
    let each = move |(range, place): (_, Range<usize>)| {
        IoFuture::boxed(zero_once(remote.clone(), range, place.len(), command))
    };
    let mut pieces = blocks.pieces().map(each);
    match blocks.is_one_command() {
        true => pieces.next().expect("there are some blocks"),
        false => IoFuture::in_batches(rt, pieces),
    }
}

/// `command`: whether there is Write Zeroes, and it may deallocate.
async fn zero_once(
    remote: Rc<Remote>,
    range: LbaRange,
    bytes: usize,
    command: Option<bool>,
) -> Result<Done, IoError> {
    let nsid = remote.nsid();
    let zeroed = remote.repeatable(async |queue| match command {
        Some(free) => queue.write_zeroes(nsid, range, free).await,
        None => queue.write(nsid, range, Data::Zeroes(bytes), false).await,
    });
    zeroed.await.map_err(io_error)?;
    Ok(Done::EMPTY)
}

/// Whether the target does a Compare and Write of so many blocks.
fn can_compare(namespace: &Namespace, blocks: Blocks) -> bool {
    namespace.controller.fuses & IdentifyController::FUSES_COMPARE_AND_WRITE != 0
        && blocks.count <= u64::from(compare_and_write_limit(namespace)) + 1
        && blocks.is_one_command()
}

/// Not repeated after a lost connection, since it may have been done: [`IoError::Internal`] then.
async fn compare_and_write(
    remote: Rc<Remote>,
    blocks: Blocks,
    pair: Box<Pair>,
) -> Result<Done, IoError> {
    let (nsid, fua) = (remote.nsid(), pair.fua());
    let (compare, write) = pair.into_halves();
    let done = remote.once(async |queue| {
        if queue.depth() < 2 {
            return Err(HostError::Status(Status::INVALID_OPCODE));
        }
        queue
            .compare_and_write(nsid, blocks.range(), compare, write, fua)
            .await
    });
    match done.await {
        Ok(()) => Ok(Done::EMPTY),
        Err(error) if error.is_path_failure() => Err(IoError::Internal),
        Err(error) => Err(io_error(error)),
    }
}

async fn read_once(remote: Rc<Remote>, range: LbaRange, buf: Buf) -> Result<Done, IoError> {
    let (nsid, len) = (remote.nsid(), buf.len());
    let mut first = Some(buf);
    let read = remote.repeatable(async |queue| {
        // The buffer of an attempt that failed is gone with it.
        let buf = first
            .take()
            .or_else(|| Buf::take(len))
            .ok_or(HostError::NoBuffer)?;
        queue.read(nsid, range, ReadInto::Buf(buf)).await
    });
    let read = read.await.map_err(io_error)?;
    Ok(Data::Buf(read.into_buf().ok_or(IoError::Busy)?).into())
}

fn info(namespace: &Namespace) -> Info {
    let (identify, controller) = (&namespace.identify, &namespace.controller);
    let sizes_reported = identify.nsfeat & IdentifyNamespace::NSFEAT_OPTIMAL_SIZES != 0;
    let size = |zero_based: u16| {
        if sizes_reported {
            u32::from(zero_based) + 1
        } else {
            0
        }
    };
    let own_atomicity = identify.nsfeat & IdentifyNamespace::NSFEAT_ATOMICITY != 0;
    let atomic = if own_atomicity {
        identify.nawupf
    } else {
        controller.awupf
    };
    let deallocates = identify.dlfeat & IdentifyNamespace::DLFEAT_WRITE_ZEROES_DEALLOCATES != 0;
    Info {
        block_size: namespace.block_size,
        blocks: identify.nsze,
        volatile_cache: controller.vwc & 1 != 0,
        read_only: identify.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED != 0,
        deallocate: deallocates && has_write_zeroes(namespace),
        limits: Limits {
            write_granularity: size(identify.npwg),
            optimal_write: size(identify.nows),
            atomic_write: u32::from(atomic) + 1,
            deallocate_granularity: size(identify.npdg),
        },
    }
}

fn has_write_zeroes(namespace: &Namespace) -> bool {
    namespace.controller.oncs & IdentifyController::ONCS_WRITE_ZEROES != 0
}

/// Zero-based.
fn compare_and_write_limit(namespace: &Namespace) -> u16 {
    let own = namespace.identify.nsfeat & IdentifyNamespace::NSFEAT_ATOMICITY != 0;
    if own {
        namespace.identify.nacwu
    } else {
        namespace.controller.acwu
    }
}

/// Translates an I/O's failure for devices above.
fn io_error(error: HostError) -> IoError {
    const TABLE: [(Status, IoError); 20] = [
        (Status::LBA_OUT_OF_RANGE, IoError::OutOfRange),
        (Status::UNRECOVERED_READ_ERROR, IoError::Read),
        (Status::WRITE_FAULT, IoError::Write),
        (Status::GUARD_CHECK_ERROR, IoError::Integrity),
        (Status::APPLICATION_TAG_CHECK_ERROR, IoError::Integrity),
        (Status::REFERENCE_TAG_CHECK_ERROR, IoError::Integrity),
        (Status::CAPACITY_EXCEEDED, IoError::NoSpace),
        (Status::NAMESPACE_WRITE_PROTECTED, IoError::WriteProtected),
        (Status::WRITE_TO_READ_ONLY_RANGE, IoError::WriteProtected),
        (Status::ABORT_REQUESTED, IoError::Aborted),
        (Status::ABORTED_SQ_DELETION, IoError::Aborted),
        (Status::ABORTED_FAILED_FUSED, IoError::Aborted),
        (Status::ABORTED_MISSING_FUSED, IoError::Aborted),
        (Status::COMPARE_FAILURE, IoError::Miscompare),
        (Status::INVALID_OPCODE, IoError::Unsupported),
        (Status::INVALID_NAMESPACE_OR_FORMAT, IoError::NotReady),
        (Status::NAMESPACE_NOT_READY, IoError::NotReady),
        (Status::ANA_INACCESSIBLE, IoError::NotReady),
        (Status::ANA_TRANSITION, IoError::NotReady),
        (Status::COMMAND_INTERRUPTED, IoError::Busy),
    ];
    match error {
        HostError::Status(status) => {
            let known = TABLE.iter().find(|(known, _)| known.is(status));
            known.map_or(IoError::Internal, |(_, meaning)| *meaning)
        }
        HostError::NoBuffer => IoError::Busy,
        HostError::DataDigest => IoError::Internal,
        _ => IoError::NotReady,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_what_fits_a_command() {
        let blocks = Blocks {
            lba: 10,
            count: 600,
            at_once: 256,
            block_size: 512,
        };
        let pieces: Vec<_> = blocks
            .pieces()
            .map(|(range, place)| (range.slba, range.blocks, place))
            .collect();
        assert_eq!(
            pieces,
            [
                (10, 256, 0..131_072),
                (266, 256, 131_072..262_144),
                (522, 88, 262_144..307_200)
            ]
        );
        assert!(!blocks.is_one_command());
    }

    #[test]
    fn errors_say_who_must_act() {
        for (error, meaning) in [
            (
                HostError::Status(Status::LBA_OUT_OF_RANGE.with_dnr()),
                IoError::OutOfRange,
            ),
            (
                HostError::Status(Status::COMMAND_INTERRUPTED),
                IoError::Busy,
            ),
            (HostError::Status(Status::new(7, 0x42)), IoError::Internal),
            (HostError::Timeout, IoError::NotReady),
            (HostError::NoBuffer, IoError::Busy),
        ] {
            assert_eq!(io_error(error), meaning);
        }
    }
}
