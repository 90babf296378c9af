//! The receiving end of an I/O queue: from bytes to commands. Nothing in here waits but
//! [`Session::run`]; what has to be waited for (input, memory, room in the outbox) is said by a
//! [`Pause`].

use std::ops::Range;
use std::rc::Rc;

use flashyard_engine::front::{Command, Failure, HostData, Work, start};
use flashyard_nvme::command::Fuse;
use flashyard_nvme::tcp::{CapsuleCmd, Event, Framer, H2CData, Header, Violation};
use flashyard_nvme::{Status, SubmissionQueueEntry};
use flashyard_time::Time;

use crate::capsule::{Duplicate, Payload};
use crate::connection::End;
use crate::fused::{self, Half};
use crate::input::Input;
use crate::io::{self, IoQueue};
use flashyard_controller::fused::{Arrival, FAILED_FUSED, FusedPairs, MISSING_FUSED};
use flashyard_controller::io::check;

/// Write data of at least this length are received straight to where they belong.
const DIRECT: u32 = 8 << 10;

/// The state between two pieces of input.
pub(crate) struct Session<P> {
    queue: Rc<IoQueue>,
    pool: P,
    pairs: FusedPairs<Half>,
    sink: Sink,
    /// When the first byte of the next PDU was seen, if it has been.
    begun: Time,
    /// Commands to take in one turn while others are latency-sensitive.
    piece: u32,
}

/// What has been received, and where it is looked at.
struct Source<'a, 'i> {
    framer: &'a mut Framer,
    bytes: &'a mut &'i [u8],
    /// When it came.
    at: Time,
}

impl<'i> Source<'_, 'i> {
    #[inline]
    fn next(&mut self) -> Result<Option<Event<'i>>, Violation> {
        self.framer.next(self.bytes)
    }
}

/// Where the data of the current PDU go.
enum Sink {
    /// There is none.
    None,
    /// Nowhere: their command has been answered, or does not need them.
    Discard,
    /// To the command that brings them.
    Capsule(Capsule),
    /// To a command whose R2T asked for them; `at` is where the next piece belongs.
    Transfer { ttag: u16, at: usize },
}

/// A command whose data come in its capsule, and were not all there at once or find no memory. What
/// there is of them is the connection's own, at most `Limits::in_capsule_bytes`: only when all have
/// come is there memory to be taken that others may wait for, and then it does not depend on the
/// host any more for how long.
struct Capsule {
    owner: Owner,
    /// Which bytes of the capsule's data are wanted.
    range: Range<usize>,
    /// The first of them all.
    front: Vec<u8>,
    ended: Option<Ended>,
    data: Option<HostData>,
}

/// The end of a capsule's data.
#[derive(Clone, Copy)]
struct Ended {
    digest_ok: bool,
    at: Time,
}

enum Owner {
    Command(Command),
    /// Half of a fused pair: checked when both are there.
    Half(SubmissionQueueEntry),
}

impl Owner {
    fn cid(&self) -> u16 {
        match self {
            Self::Command(command) => command.cid(),
            Self::Half(entry) => entry.cid(),
        }
    }
}

/// What the session waits for.
enum Pause {
    /// More bytes.
    Input,
    /// The next turn: others are latency-sensitive.
    Turn,
    /// A buffer of this many bytes for the data of a capsule.
    Buffer(usize),
    /// Room in the outbox.
    Room,
    /// Nothing: the host has given up.
    Nothing,
}

impl<P: Fn(Work)> Session<P> {
    /// A session that gives commands which have to wait to `pool`.
    pub(crate) fn new(queue: Rc<IoQueue>, pool: P) -> Self {
        let piece = queue
            .core()
            .target()
            .config()
            .limits
            .throughput_batch
            .max(1);
        Self {
            queue,
            pool,
            pairs: FusedPairs::default(),
            sink: Sink::None,
            begun: Time::ZERO,
            piece,
        }
    }

    /// Takes commands until the connection ends.
    pub(crate) async fn run(&mut self, input: &mut Input) -> End {
        loop {
            if let Err(end) = self.step(input).await {
                return end;
            }
        }
    }

    async fn step(&mut self, input: &mut Input) -> Result<(), End> {
        let r2t_sent = matches!(self.sink, Sink::Transfer { .. });
        let received = input.receive(r2t_sent).await?;
        self.queue.on_traffic();
        let at = input.at();
        if input.framer.at_pdu_boundary() || !matches!(self.sink, Sink::None) {
            self.begun = at;
        }
        let mut bytes = received.bytes();
        let pause = self.take(&mut Source {
            framer: &mut input.framer,
            bytes: &mut bytes,
            at,
        })?;
        let rest = bytes.len();
        input.keep(received, rest);
        match pause {
            Pause::Input => self.receive_direct(input).await,
            Pause::Nothing => Err(End::Closed),
            Pause::Turn => {
                self.queue.core().rt().turn_end().await;
                Ok(())
            }
            Pause::Room => {
                self.queue.front().outbox().room().await;
                Ok(())
            }
            Pause::Buffer(len) => {
                self.wait_for_memory(len).await;
                self.finish_capsule();
                Ok(())
            }
        }
    }

    /// Waits for memory for the data of a capsule, unless its command is taken back meanwhile.
    async fn wait_for_memory(&mut self, len: usize) {
        let queue = self.queue.clone();
        let Sink::Capsule(capsule) = &mut self.sink else {
            return;
        };
        let memory = HostData::wait(queue.front().capsule_share(), len);
        let cid = capsule.owner.cid();
        match queue.unless_withdrawn(cid, memory).await {
            Ok(Ok(data)) => capsule.data = Some(data),
            Ok(Err(error)) => self.give_up(error.into()),
            Err(failure) => self.give_up(failure),
        }
    }

    /// Answers a command whose data there is no memory for; they are forgotten.
    #[cold]
    fn give_up(&mut self, failure: Failure) {
        if let Sink::Capsule(capsule) = std::mem::replace(&mut self.sink, Sink::None) {
            match capsule.owner {
                Owner::Command(command) => command.fail(&self.queue, failure),
                Owner::Half(entry) => {
                    self.queue.refuse(&entry, failure.status());
                    // That this one failed is no fault of the host, which may try both halves
                    // again.
                    if let Some((first, status)) = self.pairs.refuse(entry.fuse()) {
                        self.queue.refuse(&first.entry, status);
                    }
                }
            }
        }
    }

    /// Receives what is left of a large data PDU into its buffer.
    async fn receive_direct(&mut self, input: &mut Input) -> Result<(), End> {
        let Sink::Transfer { ttag, at } = self.sink else {
            return Ok(());
        };
        let mut at = at;
        while input.framer.data_remaining() >= DIRECT {
            let len = input.framer.data_remaining() as usize;
            let Some(buf) = self.queue.front().transfers().lend(ttag) else {
                break;
            };
            let (received, buf) = input.receive_direct(buf, at, len).await;
            self.queue.front().transfers().take_back(ttag, buf);
            at += received?;
        }
        self.sink = Sink::Transfer { ttag, at };
        // The end of a PDU without a digest needs no more bytes.
        self.take(&mut Source {
            at: input.at(),
            framer: &mut input.framer,
            bytes: &mut &[][..],
        })?;
        Ok(())
    }

    /// Takes commands and data out of `source` until there is something to wait for.
    fn take(&mut self, source: &mut Source<'_, '_>) -> Result<Pause, Violation> {
        let mut commands = 0;
        loop {
            match &self.sink {
                Sink::None if commands >= self.piece && self.queue.gives_way() => {
                    return Ok(Pause::Turn);
                }
                Sink::None if self.queue.front().outbox().is_full() => return Ok(Pause::Room),
                Sink::Capsule(Capsule {
                    ended: Some(_),
                    range,
                    ..
                }) => {
                    return Ok(Pause::Buffer(range.end));
                }
                _ => {}
            }
            match source.next()? {
                None => return Ok(Pause::Input),
                Some(Event::Pdu(Header::CapsuleCmd(capsule))) => {
                    commands += 1;
                    self.on_command(&capsule, source)?
                }
                Some(Event::Pdu(Header::H2CData(pdu))) => self.on_transfer(&pdu)?,
                Some(Event::Pdu(_)) => return Ok(Pause::Nothing),
                Some(Event::Data(piece)) => self.on_data(piece),
                Some(Event::DataEnd { digest_ok }) => self.on_data_end(digest_ok, source.at),
            }
        }
    }

    #[inline]
    fn on_command(
        &mut self,
        capsule: &CapsuleCmd,
        source: &mut Source<'_, '_>,
    ) -> Result<(), Violation> {
        let entry = &capsule.entry;
        let began = std::mem::replace(&mut self.begun, source.at);
        if let Err(Duplicate) = self.queue.front().pair().begin(entry.cid())? {
            io::refuse_duplicate(&self.queue, entry.cid());
            self.discard(capsule);
            return Ok(());
        }
        if entry.fuse() != Fuse::Normal || !self.pairs.is_empty() {
            self.on_fused(capsule, began, source)
        } else {
            self.on_single(capsule, began, source)
        }
    }

    #[inline]
    fn on_single(
        &mut self,
        capsule: &CapsuleCmd,
        began: Time,
        source: &mut Source<'_, '_>,
    ) -> Result<(), Violation> {
        let entry = &capsule.entry;
        let namespace = self.queue.namespace(entry.nsid());
        let most = self.queue.limits().transfer_bytes;
        let info = namespace.as_ref().map(|namespace| &namespace.info);
        let checked = check(entry, info, most).and_then(|request| {
            let payload = Payload::locate(request.transfer, entry, capsule.data_len)?;
            Ok((request.op, payload))
        });
        let (op, payload) = match checked {
            Ok(checked) => checked,
            Err(status) => {
                self.refuse(capsule, status);
                return Ok(());
            }
        };
        let Some(namespace) = namespace else {
            self.refuse(capsule, Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
            return Ok(());
        };
        let others = self.others();
        let checked = (op, payload.bytes());
        let came = (began, source.at);
        let command = Command::new(&self.queue, entry, namespace, checked, others, came);
        match payload {
            Payload::InCapsule { offset, bytes } if bytes > 0 => {
                let range = offset as usize..(offset + bytes) as usize;
                self.collect(Owner::Command(command), range, source)
            }
            _ => {
                self.start(command);
                self.discard(capsule);
                Ok(())
            }
        }
    }

    #[inline]
    fn start(&self, command: Command) {
        if let Some(rest) = start(&self.queue, command) {
            (self.pool)(rest);
        }
    }

    /// A half of a fused pair, or what came instead of the second one.
    #[cold]
    fn on_fused(
        &mut self,
        capsule: &CapsuleCmd,
        began: Time,
        source: &mut Source<'_, '_>,
    ) -> Result<(), Violation> {
        let entry = &capsule.entry;
        match entry.fuse() {
            Fuse::Normal => {
                self.refuse_lone();
                return self.on_single(capsule, began, source);
            }
            Fuse::Reserved => {
                self.refuse_lone();
                self.refuse(capsule, Status::INVALID_FIELD.with_dnr());
            }
            Fuse::First | Fuse::Second if capsule.data_len > 0 => {
                return self.collect(Owner::Half(*entry), 0..capsule.data_len as usize, source);
            }
            Fuse::First | Fuse::Second => self.on_half(*entry, None, true),
        }
        Ok(())
    }

    fn on_half(&mut self, entry: SubmissionQueueEntry, data: Option<HostData>, digest_ok: bool) {
        let half = Half {
            entry,
            data,
            digest_ok,
        };
        let (lone, arrival) = self.pairs.arrive(entry.fuse(), half);
        if let Some(lone) = lone {
            self.refuse_half(&lone);
        }
        match arrival {
            Arrival::Kept => {}
            Arrival::Pair { first, second } => self.start_pair([first, second]),
            Arrival::Failed(second) => self.queue.refuse(&second.entry, FAILED_FUSED),
            Arrival::Unpaired(half) | Arrival::Alone(half) => self.refuse_half(&half),
        }
    }

    fn start_pair(&self, halves: [Half; 2]) {
        let entries = [halves[0].entry, halves[1].entry];
        match fused::check(&self.queue, halves, self.others()) {
            Ok(pair) => (self.pool)(pair.into()),
            Err(refused) => {
                self.queue.refuse(&entries[0], refused.first);
                self.queue.refuse(&entries[1], refused.second);
            }
        }
    }

    /// Commands outstanding beside the one that has just come.
    #[inline]
    fn others(&self) -> u16 {
        self.queue.front().pair().outstanding() - 1
    }

    fn refuse_lone(&mut self) {
        if let Some(lone) = self.pairs.take() {
            self.refuse_half(&lone);
        }
    }

    fn refuse_half(&self, half: &Half) {
        self.queue.refuse(&half.entry, MISSING_FUSED);
    }

    #[cold]
    fn refuse(&mut self, capsule: &CapsuleCmd, status: Status) {
        self.queue.refuse(&capsule.entry, status);
        self.discard(capsule);
    }

    fn discard(&mut self, capsule: &CapsuleCmd) {
        if capsule.data_len > 0 {
            self.sink = Sink::Discard;
        }
    }

    /// Takes the data of a capsule, of which those of `range` are wanted. Mostly all of them are
    /// here already; otherwise they go to the sink.
    #[inline]
    fn collect(
        &mut self,
        owner: Owner,
        range: Range<usize>,
        source: &mut Source<'_, '_>,
    ) -> Result<(), Violation> {
        let mut front: &[u8] = &[];
        let mut ended = None;
        if let Some(Event::Data(piece)) = source.next()? {
            front = &piece[..piece.len().min(range.end)];
            if let Some(Event::DataEnd { digest_ok }) = source.next()? {
                let at = source.at;
                let end = Ended { digest_ok, at };
                if let Some(data) = self.memory(range.end) {
                    self.on_capsule(owner, data.filled(front), range, end);
                    return Ok(());
                }
                ended = Some(end);
            }
        }
        self.keep_capsule(owner, range, front, ended);
        Ok(())
    }

    #[cold]
    fn keep_capsule(
        &mut self,
        owner: Owner,
        range: Range<usize>,
        piece: &[u8],
        ended: Option<Ended>,
    ) {
        let mut front = Vec::with_capacity(range.end);
        front.extend_from_slice(piece);
        self.sink = Sink::Capsule(Capsule {
            owner,
            range,
            front,
            ended,
            data: None,
        });
    }

    /// Memory for the data of a capsule, if it is to be had now.
    #[inline]
    fn memory(&self, len: usize) -> Option<HostData> {
        HostData::now(self.queue.front().capsule_share(), len)
    }

    /// Goes on with a capsule that has all its data and memory for them.
    fn finish_capsule(&mut self) {
        match std::mem::replace(&mut self.sink, Sink::None) {
            Sink::Capsule(Capsule {
                owner,
                range,
                front,
                ended: Some(end),
                data: Some(data),
            }) => self.on_capsule(owner, data.filled(&front), range, end),
            other => self.sink = other,
        }
    }

    fn on_transfer(&mut self, pdu: &H2CData) -> Result<(), Violation> {
        self.queue.front().transfers().accept(pdu)?;
        self.sink = Sink::Transfer {
            ttag: pdu.ttag,
            at: pdu.datao as usize,
        };
        Ok(())
    }

    #[inline]
    fn on_data(&mut self, piece: &[u8]) {
        match &mut self.sink {
            Sink::Capsule(Capsule { range, front, .. }) => {
                let wanted = range.end - front.len();
                front.extend_from_slice(&piece[..piece.len().min(wanted)]);
            }
            Sink::Transfer { ttag, at } => {
                self.queue.front().transfers().put(*ttag, *at, piece);
                *at += piece.len();
            }
            Sink::None | Sink::Discard => {}
        }
    }

    #[inline]
    fn on_data_end(&mut self, digest_ok: bool, at: Time) {
        if let Sink::Capsule(Capsule { range, .. }) = &self.sink {
            let len = range.end;
            let memory = self.memory(len);
            if let Sink::Capsule(Capsule { ended, data, .. }) = &mut self.sink {
                *ended = Some(Ended { digest_ok, at });
                *data = memory;
            }
            return self.finish_capsule();
        }
        if let Sink::Transfer { ttag, .. } = std::mem::replace(&mut self.sink, Sink::None) {
            self.queue.front().transfers().end_pdu(ttag, digest_ok);
        }
    }

    /// All data of a capsule are in `data`; its command wants those of `range`.
    #[inline]
    fn on_capsule(&mut self, owner: Owner, mut data: HostData, range: Range<usize>, end: Ended) {
        match owner {
            Owner::Half(entry) => self.on_half(entry, Some(data), end.digest_ok),
            Owner::Command(command) if !end.digest_ok => {
                command.fail(&self.queue, Status::TRANSIENT_TRANSPORT_ERROR.into());
            }
            Owner::Command(mut command) => {
                data.cut(range);
                command.set_data(data, end.at);
                self.start(command);
            }
        }
    }
}
