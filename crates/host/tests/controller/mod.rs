//! A controller small enough to misbehave in any way a test wants: one namespace in memory,
//! commands answered in order. It speaks raw PDUs, shares nothing with the host but the wire types,
//! and never checks what it gets.

#![allow(dead_code)]

mod commands;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_host::Options;
use flashyard_nvme::command::{Fuse, IoOpcode, LbaRange, Status};
use flashyard_nvme::identify::NamespaceDescriptors;
use flashyard_nvme::tcp::{
    C2HData, CapsuleResp, Digests, Event, Framer, Header, ICResp, Limits, MAX_HEADER, Negotiated,
    Offer, Outgoing, R2T, Role, answer_request,
};
use flashyard_nvme::{CompletionQueueEntry, Nqn, SubmissionQueueEntry};

use self::commands::sgl_length;
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Gather, Rt, TcpStream};
use flashyard_time::{Duration, Time};

pub(crate) const BLOCK: usize = 512;
pub(crate) const BLOCKS: usize = 4096;
/// Longer than any test takes, in virtual time.
const PATIENCE: Duration = Duration::from_secs(100);
const CNTLID: u16 = 7;

/// What the controller does wrong, or unusually, with I/O commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mischief {
    None,
    /// Answers reads with C2HData that carries SUCCESS.
    SuccessFlag,
    /// Sends the data of a read in PDUs of this size.
    DataInPieces(u32),
    /// Asks for the data of a write in R2Ts of this size.
    TransferInPieces(u32),
    /// Flips a bit in the data of a read, leaving its digest as it was.
    DamageData,
    /// Flips a bit in the header digest of an answer.
    DamageHeader,
    /// Data that begin elsewhere than the command's data do.
    DataBeyondStart,
    /// More data than was asked for.
    TooMuchData,
    /// Data for a command that does not exist.
    UnknownCid,
    /// Success without data.
    NoData,
    /// Data for a write.
    DataForWrite,
    /// R2T for a read.
    TransferForRead,
    /// R2T beyond the end of the data.
    TransferBeyondEnd,
    /// The same answer twice.
    AnswerTwice,
    /// Nothing at all, until the command is aborted.
    NoAnswer,
    /// Nothing at all, not even for Abort.
    Dead,
    /// Closes the connection in the middle of an answer.
    HalfAnswer,
    /// A PDU that only a host sends.
    WrongDirection,
    /// A length that no PDU has.
    BadLength,
    /// Answers with this status (bits as in the completion, without the phase).
    Refuse(u16),
}

/// By what a host knows the namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) descriptors: NamespaceDescriptors,
    /// Those of Identify Namespace.
    pub(crate) nguid: [u8; 16],
    pub(crate) eui64: [u8; 8],
    /// More than so many bytes are in a block: two to this and nine.
    pub(crate) larger_blocks: u8,
}

/// The controller, shared by its connections.
pub(crate) struct Controller {
    pub(crate) mischief: Cell<Mischief>,
    /// Mischief during IC and Connect.
    pub(crate) offer: Cell<Offer>,
    pub(crate) connect_status: Cell<Option<(Status, u32)>>,
    pub(crate) storage: RefCell<Vec<u8>>,
    pub(crate) blocks: Cell<u64>,
    pub(crate) identity: RefCell<Identity>,
    /// Command Retry Delays 1 to 3, in units of 100 ms.
    pub(crate) retry_delays: Cell<[u16; 3]>,
    /// For so many more I/O commands it does something wrong.
    pub(crate) mischiefs_left: Cell<u32>,
    /// Termination requests received: FES and FEI.
    pub(crate) terminations: RefCell<Vec<(u16, u32)>>,
    /// Opcodes of all I/O commands, in order of arrival.
    pub(crate) seen: RefCell<Vec<(IoOpcode, Fuse)>>,
    /// The same with all that they say.
    pub(crate) entries: RefCell<Vec<SubmissionQueueEntry>>,
    pub(crate) aborts: Cell<u32>,
    pub(crate) keep_alives: Cell<u32>,
    pub(crate) connections: Cell<u32>,
    /// When each of them was made.
    pub(crate) connected_at: RefCell<Vec<Time>>,
    pub(crate) ioccsz: Cell<u32>,
    pub(crate) mqes: Cell<u16>,
    streams: RefCell<Vec<Rc<TcpStream>>>,
    event: RefCell<Option<(Rc<Connection>, u16)>>,
    changed: RefCell<Vec<u32>>,
}

impl Controller {
    /// Listens and serves until the world ends.
    pub(crate) fn start(rt: &Rt, addr: SocketAddr) -> (Rc<Self>, SocketAddr) {
        let digests = Digests {
            header: true,
            data: true,
        };
        let controller = Rc::new(Self {
            mischief: Cell::new(Mischief::None),
            offer: Cell::new(Offer {
                digests,
                cpda: 0,
                maxh2cdata: 131_072,
            }),
            connect_status: Cell::new(None),
            storage: RefCell::new(
                (0..BLOCK * BLOCKS)
                    .map(|at| (at / 7 + at / 512) as u8)
                    .collect(),
            ),
            blocks: Cell::new(BLOCKS as u64),
            identity: RefCell::default(),
            retry_delays: Cell::default(),
            mischiefs_left: Cell::new(u32::MAX),
            terminations: RefCell::default(),
            seen: RefCell::default(),
            entries: RefCell::default(),
            aborts: Cell::new(0),
            keep_alives: Cell::new(0),
            connections: Cell::new(0),
            connected_at: RefCell::default(),
            ioccsz: Cell::new((64 + 8192) / 16),
            mqes: Cell::new(127),
            streams: RefCell::default(),
            event: RefCell::default(),
            changed: RefCell::default(),
        });
        let listener = rt.listen(addr).expect("the address is free");
        let addr = listener.local_addr();
        let (accepting, inner) = (rt.clone(), Rc::clone(&controller));
        rt.spawn(async move {
            while let Ok(stream) = listener.accept().await {
                let controller = Rc::clone(&inner);
                controller.connected_at.borrow_mut().push(accepting.now());
                accepting
                    .spawn(async move { serve(controller, stream).await })
                    .detach();
            }
        })
        .detach();
        (controller, addr)
    }

    /// Closes every connection there is.
    pub(crate) fn drop_connections(&self) {
        for stream in self.streams.borrow_mut().drain(..) {
            stream.shutdown();
        }
    }

    /// Tells the host that namespaces changed, as soon as it waits for events.
    pub(crate) async fn announce(&self, rt: &Rt, nsids: &[u32]) {
        while self.event.borrow().is_none() {
            rt.sleep(Duration::from_ms(1)).await;
        }
        self.changed.borrow_mut().extend(nsids);
        let event = self.event.borrow_mut().take();
        let (connection, cid) = event.expect("just seen");
        let notice = 0x04_00_02;
        connection
            .answer(CompletionQueueEntry::new(cid, Status::SUCCESS).with_dw0(notice))
            .await;
    }
}

pub(crate) struct Connection {
    stream: Rc<TcpStream>,
    how: Cell<Outgoing>,
    admin: Cell<bool>,
    /// R2T writes in flight: the command and the data so far.
    transfers: RefCell<Vec<(SubmissionQueueEntry, Vec<u8>)>>,
    /// The command that is being refused, so its data are thrown away.
    output: RefCell<Vec<u8>>,
}

async fn serve(controller: Rc<Controller>, stream: TcpStream) {
    let stream = Rc::new(stream);
    controller.connections.set(controller.connections.get() + 1);
    controller.streams.borrow_mut().push(Rc::clone(&stream));
    let connection = Rc::new(Connection {
        stream,
        how: Cell::default(),
        admin: Cell::new(true),
        transfers: RefCell::default(),
        output: RefCell::default(),
    });
    let mut framer = Framer::new(
        Role::Controller,
        Limits {
            in_capsule: 8192,
            c2h_data: 0,
        },
    );
    let mut pdu = None;
    let mut data = Vec::new();
    while let Ok(chunk) = connection.stream.recv().await {
        if chunk.is_empty() {
            break;
        }
        let mut input = &chunk[..];
        let mut alive = true;
        while alive {
            match framer.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Event::Pdu(header))) => {
                    data.clear();
                    pdu = Some(header);
                    if !has_data(&header) {
                        alive = connection.pdu(&controller, &mut framer, header, &[]);
                    }
                }
                Ok(Some(Event::Data(piece))) => data.extend_from_slice(piece),
                Ok(Some(Event::DataEnd { digest_ok })) => {
                    assert!(digest_ok, "the host's digests are right");
                    if let Some(header) = pdu.take() {
                        alive = connection.pdu(&controller, &mut framer, header, &data);
                    }
                }
                Err(violation) => panic!("the host broke the protocol: {violation}"),
            }
        }
        drop(chunk);
        connection.flush().await;
        if !alive {
            connection.stream.shutdown();
            break;
        }
    }
}

fn has_data(header: &Header) -> bool {
    match header {
        Header::CapsuleCmd(command) => command.data_len > 0,
        Header::H2CData(_) => true,
        _ => false,
    }
}

impl Connection {
    /// Whether the connection lives on.
    fn pdu(
        self: &Rc<Self>,
        controller: &Controller,
        framer: &mut Framer,
        header: Header,
        data: &[u8],
    ) -> bool {
        match header {
            Header::ICReq(request) => {
                let (response, agreed) =
                    answer_request(&request, &controller.offer.get()).expect("a good request");
                self.initialize(&response, &agreed, framer);
                true
            }
            Header::CapsuleCmd(command) if command.entry.is_fabrics() => {
                self.fabrics(controller, &command.entry);
                true
            }
            Header::CapsuleCmd(command) if self.admin.get() => {
                self.admin_command(controller, &command.entry);
                true
            }
            Header::CapsuleCmd(command) => self.io(controller, &command, data),
            Header::H2CData(part) => {
                let mut transfers = self.transfers.borrow_mut();
                let at = transfers
                    .iter()
                    .position(|(entry, _)| entry.cid() == part.cccid)
                    .expect("asked for");
                assert_eq!(transfers[at].1.len(), part.datao as usize, "in order");
                transfers[at].1.extend_from_slice(data);
                let (entry, so_far) = &transfers[at];
                let total = sgl_length(entry) as usize;
                if so_far.len() < total {
                    if part.last {
                        let next = Self::next_transfer(controller, entry, so_far.len() as u32);
                        self.push(&next);
                    }
                    return true;
                }
                let (entry, whole) = transfers.remove(at);
                drop(transfers);
                self.store(controller, &entry, &whole);
                true
            }
            Header::TermReq(reason) => {
                controller
                    .terminations
                    .borrow_mut()
                    .push((reason.fes.0, reason.fei));
                false
            }
            other => panic!("a host does not send {other:?}"),
        }
    }

    fn initialize(&self, response: &ICResp, agreed: &Negotiated, framer: &mut Framer) {
        self.output
            .borrow_mut()
            .extend_from_slice(&response.encode());
        framer.negotiated(agreed);
        self.how.set(agreed.outgoing(Role::Controller));
    }

    fn next_transfer(controller: &Controller, entry: &SubmissionQueueEntry, from: u32) -> R2T {
        let rest = sgl_length(entry) - from;
        let r2tl = match controller.mischief.get() {
            Mischief::TransferInPieces(size) => rest.min(size),
            _ => rest,
        };
        R2T {
            cccid: entry.cid(),
            ttag: 0x5a5a,
            r2to: from,
            r2tl,
        }
    }

    fn push_read(&self, entry: &SubmissionQueueEntry, bytes: &[u8], success: bool) {
        if !bytes.is_empty() {
            let datal = bytes.len() as u32;
            self.push_data(
                C2HData {
                    cccid: entry.cid(),
                    datao: 0,
                    datal,
                    last: true,
                    success,
                },
                bytes,
            );
        }
    }

    fn push_data(&self, header: C2HData, bytes: &[u8]) {
        let mut output = self.output.borrow_mut();
        let mut head = [0; MAX_HEADER];
        let length = header.encode(self.how.get(), &mut head);
        output.extend_from_slice(&head[..length]);
        output.extend_from_slice(bytes);
        if self.how.get().digests.data {
            output.extend_from_slice(&flashyard_nvme::tcp::Crc32c::of(bytes));
        }
    }

    fn push(&self, r2t: &R2T) {
        let mut head = [0; MAX_HEADER];
        let length = r2t.encode(self.how.get(), &mut head);
        self.output.borrow_mut().extend_from_slice(&head[..length]);
    }

    fn push_answer(&self, entry: CompletionQueueEntry) {
        let mut head = [0; MAX_HEADER];
        let length = CapsuleResp { entry }.encode(self.how.get(), &mut head);
        self.output.borrow_mut().extend_from_slice(&head[..length]);
    }

    async fn answer(&self, entry: CompletionQueueEntry) {
        self.push_answer(entry);
        self.flush().await;
    }

    async fn flush(&self) {
        let output = std::mem::take(&mut *self.output.borrow_mut());
        if !output.is_empty() {
            let mut gather = Gather::new();
            gather.push_bytes(&output);
            let _ = self.stream.send(gather).await;
        }
    }
}

/// Runs `main` beside a controller that listens, in a calm simulated world and in a nasty one.
pub(crate) fn world<F: Future<Output = ()> + 'static>(
    main: impl Fn(Rt, Rc<Controller>, SocketAddr) -> F,
) {
    for config in [Config::calm(0), Config::stormy(2)] {
        eprintln!("in the world of seed {}", config.seed);
        let world = World::new(config);
        let (target, host) = (world.machine(1), world.machine(1));
        let addr = SocketAddr::new(target.ip(), 4420);
        let (controller, addr) = Controller::start(&target.rt(0), addr);
        world.run(&host, |rt| {
            let clock = rt.clone();
            let watchdog = async move {
                clock.sleep(PATIENCE).await;
                panic!("the test hangs");
            };
            rt.spawn(watchdog).detach();
            main(rt, controller, addr)
        });
    }
}

/// Options for the controller: no Keep Alive, one queue.
pub(crate) fn options() -> Options {
    let name = |name| Nqn::new(name).expect("a good name");
    Options {
        kato: Duration::ZERO,
        ..Options::new(
            name("nqn.2026-11.a:db"),
            name("nqn.2026-11.a:host"),
            [1; 16],
        )
    }
}

pub(crate) fn range(slba: u64, blocks: u32) -> LbaRange {
    LbaRange { slba, blocks }
}

pub(crate) fn pattern(len: usize, seed: u8) -> Buf {
    let mut buf = Buf::take(len).expect("memory");
    for (at, byte) in buf.iter_mut().enumerate() {
        *byte = (at / 3 + at / 1000) as u8 ^ seed;
    }
    buf
}
