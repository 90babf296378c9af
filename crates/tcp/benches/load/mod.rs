//! The host: blocking sockets, one queue for each tenant, in turns.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::tcp::{CapsuleCmd, H2CData, ICReq, MAX_HEADER, Outgoing};
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};

use super::{BLOCK, PREFIX, tenant_name};

/// Length of a response, and of an R2T.
const RESPONSE: usize = 24;
const INITIALIZE: usize = 128;
/// PDU type of an R2T.
const R2T: u8 = 0x09;
/// Blocks of a write that the target takes in a capsule.
const IN_CAPSULE: u32 = 2;

/// What the host does.
pub(crate) struct Load {
    pub(crate) write: bool,
    /// Commands in flight of each queue.
    pub(crate) depth: usize,
    /// I/Os in all.
    pub(crate) count: usize,
    /// Blocks of an I/O.
    pub(crate) blocks: u32,
    pub(crate) tenants: usize,
    /// Time between answers and the next commands.
    pub(crate) pause: Duration,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            write: false,
            depth: 128,
            count: 100_000,
            blocks: 1,
            tenants: 1,
            pause: Duration::ZERO,
        }
    }
}

impl Load {
    /// Connects, and does it.
    pub(crate) fn run(&self, port: u16) {
        let mut tenants: Vec<_> = (0..self.tenants)
            .map(|number| Tenant::join(port, number, self))
            .collect();
        let begun = Instant::now();
        while tenants.iter().any(|tenant| !tenant.is_done()) {
            for tenant in &mut tenants {
                tenant.ask(self);
            }
            for tenant in &mut tenants {
                tenant.take_answers(self);
            }
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let count = self.count;
        println!(
            "{count} in {seconds:.3} s: {:.0} per second",
            count as f64 / seconds
        );
    }

    /// Bytes of data of an I/O.
    fn bytes(&self) -> usize {
        (self.blocks * BLOCK) as usize
    }

    /// Whether the target invites the data.
    fn is_invited(&self) -> bool {
        self.write && self.blocks > IN_CAPSULE
    }

    /// Bytes of an answer.
    fn answer(&self) -> usize {
        RESPONSE + if self.write { 0 } else { self.bytes() }
    }

    fn push(&self, batch: &mut Vec<u8>, number: usize) {
        let blocks = self.blocks;
        let range = LbaRange {
            slba: number as u64 % 1_000_000 * u64::from(blocks),
            blocks,
        };
        let length = blocks * BLOCK;
        let (entry, data_len) = if !self.write || self.is_invited() {
            let sgl = Sgl::Transport { length };
            let entry = match self.write {
                true => SubmissionQueueEntry::write(1, range, sgl),
                false => SubmissionQueueEntry::read(1, range, sgl),
            };
            (entry, 0)
        } else {
            let sgl = Sgl::InCapsule { offset: 0, length };
            (SubmissionQueueEntry::write(1, range, sgl), length)
        };
        let mut header = [0; MAX_HEADER];
        let len = CapsuleCmd {
            entry: entry.with_cid((number % self.depth) as u16),
            data_len,
        }
        .encode(Outgoing::default(), &mut header);
        batch.extend_from_slice(&header[..len]);
        batch.resize(batch.len() + data_len as usize, 0x5a);
    }
}

/// One host of one tenant, with one I/O queue. A null device answers in order, so counting bytes is
/// enough where no R2T is sent.
struct Tenant {
    _admin: TcpStream,
    io: TcpStream,
    count: usize,
    sent: usize,
    done: usize,
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that are the beginning of an answer, or their number alone.
    rest: usize,
    batch: Vec<u8>,
}

impl Tenant {
    fn join(port: u16, number: usize, load: &Load) -> Self {
        let subsystem = format!("{PREFIX}:{}", tenant_name(number));
        let mut admin = connect(port);
        let connect_admin = Connect {
            sqsize: 31,
            ..Connect::default()
        };
        let cntlid = join(&mut admin, connect_admin, ConnectData::DYNAMIC, &subsystem);
        command(
            &mut admin,
            &SubmissionQueueEntry::property_set(0x14, false, 0x0046_0001),
            &[],
        );
        let mut io = connect(port);
        let connect_io = Connect {
            qid: 1,
            sqsize: u16::try_from(load.depth).expect("a queue depth"),
            cattr: Connect::CATTR_DISABLE_SQ_FLOW_CONTROL,
            ..Connect::default()
        };
        join(&mut io, connect_io, cntlid, &subsystem);
        let extra = usize::from(number < load.count % load.tenants);
        Self {
            _admin: admin,
            io,
            count: load.count / load.tenants + extra,
            sent: 0,
            done: 0,
            buffer: vec![0; 1 << 20],
            rest: 0,
            batch: Vec::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.done == self.count
    }

    /// Sends as many commands as may be in flight.
    fn ask(&mut self, load: &Load) {
        self.batch.clear();
        while self.sent < self.count.min(self.done + load.depth) {
            load.push(&mut self.batch, self.sent);
            self.sent += 1;
        }
        self.io
            .write_all(&self.batch)
            .expect("the target takes commands");
    }

    /// Waits for a command to end.
    fn take_answers(&mut self, load: &Load) {
        let before = self.done;
        while self.done == before && !self.is_done() {
            let from = if load.is_invited() { self.rest } else { 0 };
            let n = self
                .io
                .read(&mut self.buffer[from..])
                .expect("the target answers");
            assert!(n > 0, "the target closed");
            self.rest += n;
            if load.is_invited() {
                self.take_responses();
            } else {
                self.done += self.rest / load.answer();
                self.rest %= load.answer();
            }
        }
    }

    /// Responses end commands, and R2Ts want data.
    fn take_responses(&mut self) {
        self.batch.clear();
        let whole = self.rest - self.rest % RESPONSE;
        for pdu in self.buffer[..whole].chunks(RESPONSE) {
            if pdu[0] == R2T {
                push_data(&mut self.batch, pdu);
            } else {
                self.done += 1;
            }
        }
        self.buffer.copy_within(whole..self.rest, 0);
        self.rest -= whole;
        self.io
            .write_all(&self.batch)
            .expect("the target takes data");
    }
}

/// The data that an R2T asks for, in one PDU.
fn push_data(batch: &mut Vec<u8>, r2t: &[u8]) {
    let word = |at: usize| u16::from_le_bytes([r2t[at], r2t[at + 1]]);
    let double = |at: usize| u32::from(word(at)) | u32::from(word(at + 2)) << 16;
    let pdu = H2CData {
        cccid: word(8),
        ttag: word(10),
        datao: double(12),
        datal: double(16),
        last: true,
    };
    let mut header = [0; MAX_HEADER];
    let len = pdu.encode(Outgoing::default(), &mut header);
    batch.extend_from_slice(&header[..len]);
    batch.resize(batch.len() + pdu.datal as usize, 0x5a);
}

fn connect(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the target listens");
    stream.set_nodelay(true).expect("a socket");
    stream
        .write_all(&ICReq::default().encode())
        .expect("an open connection");
    stream.read_exact(&mut [0; INITIALIZE]).expect("an ICResp");
    stream
}

fn join(stream: &mut TcpStream, connect: Connect, cntlid: u16, subsystem: &str) -> u16 {
    let hostnqn = Nqn::new("nqn.2014-08.org.nvmexpress:uuid:bench").expect("a good name");
    let subnqn = Nqn::new(subsystem).expect("a good name");
    let data = ConnectData {
        hostid: [1; 16],
        cntlid,
        subnqn,
        hostnqn,
    };
    let response = command(
        stream,
        &SubmissionQueueEntry::connect(connect),
        &data.encode(),
    );
    u16::from_le_bytes([response[8], response[9]])
}

fn command(stream: &mut TcpStream, entry: &SubmissionQueueEntry, data: &[u8]) -> [u8; RESPONSE] {
    let mut header = [0; MAX_HEADER];
    let capsule = CapsuleCmd {
        entry: *entry,
        data_len: data.len() as u32,
    };
    let len = capsule.encode(Outgoing::default(), &mut header);
    stream
        .write_all(&header[..len])
        .expect("an open connection");
    stream.write_all(data).expect("an open connection");
    let mut response = [0; RESPONSE];
    stream.read_exact(&mut response).expect("a response");
    assert!(
        response[22] & 0xfe == 0 && response[23] == 0,
        "success: {response:?}"
    );
    response
}
