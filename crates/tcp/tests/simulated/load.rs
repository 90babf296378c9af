//! A host that keeps a queue busy and looks at everything that comes back: each command is answered
//! once, and each block holds what was written there last.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming};
use flashyard_time::{Duration, Rng, Time};

/// Blocks of the part of the volume that one command at a time works on.
const SPAN: usize = 16;

/// What a host does.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tenant: &'static str,
    /// Number of the host; also what its blocks are marked with.
    pub(crate) host: u8,
    /// Commands in flight.
    pub(crate) depth: usize,
    /// First of the blocks that it uses, 16 for each command in flight.
    pub(crate) first: u64,
    /// Command Dword 13 of all its commands.
    pub(crate) mark: u32,
    /// It may be refused, and ends then.
    pub(crate) may_go: bool,
}

/// How it gets on.
#[derive(Default)]
pub(crate) struct Progress {
    /// Commands sent, but for those that are to come again; and answered.
    pub(crate) sent: Cell<u64>,
    pub(crate) done: Cell<u64>,
    /// The longest wait for an answer.
    pub(crate) worst: Cell<Duration>,
    /// It was refused, or its connection closed.
    pub(crate) gone: Cell<bool>,
    stop: Cell<bool>,
}

impl Progress {
    /// Nothing more is sent.
    pub(crate) fn stop(&self) {
        self.stop.set(true);
    }
}

/// A host at work.
struct Host {
    load: Load,
    io: Client,
    rng: Rng,
    /// What each block of each span holds.
    content: Vec<[u64; SPAN]>,
    idle: Vec<usize>,
    /// What was sent and not answered, by command identifier.
    open: BTreeMap<u16, Open>,
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    span: usize,
    block: usize,
    blocks: usize,
    /// What is written, if anything is.
    version: Option<u64>,
    at: Time,
}

/// Works until it is stopped and everything has been answered.
pub(crate) async fn work(bench: Bench, load: Load, seed: u64, progress: Rc<Progress>) {
    let (_admin, io) = bench.connect(load.tenant, load.host).await;
    let mut host = Host {
        load,
        io,
        rng: Rng::new(seed * 256 + u64::from(load.host)),
        content: vec![[0; SPAN]; load.depth],
        idle: (0..load.depth).collect(),
        open: BTreeMap::new(),
        version: 0,
    };
    loop {
        while !progress.stop.get()
            && let Some(span) = host.idle.pop()
        {
            host.submit(span, bench.host_rt.now()).await;
            progress.sent.set(progress.sent.get() + 1);
        }
        if host.open.is_empty() {
            return;
        }
        match host.io.next().await {
            Incoming::R2t(r2t) => {
                let open = host.open[&r2t.cccid];
                let data = data(open.version.expect("it writes"), open.blocks);
                host.io.send_requested(&r2t, &data, 9000).await;
            }
            Incoming::Data { header, data, .. } => {
                host.look(header.cccid, &data);
                assert!(!header.success, "the completion carries the head pointer");
            }
            Incoming::Response(answer) if answer.status().is_success() => {
                let open = host.end(&answer);
                let waited = bench.host_rt.now().since(open.at);
                progress.worst.set(progress.worst.get().max(waited));
                progress.done.set(progress.done.get() + 1);
            }
            Incoming::Response(answer) if answer.status().is(Status::COMMAND_INTERRUPTED) => {
                host.come_again(&answer);
                progress.sent.set(progress.sent.get() - 1);
            }
            Incoming::Response(_) | Incoming::End if load.may_go => {
                progress.gone.set(true);
                return;
            }
            other => panic!("seed {seed}, host {}: {other:?}", load.host),
        }
    }
}

/// What blocks with this version hold.
fn data(version: u64, blocks: usize) -> Vec<u8> {
    let words = blocks * BLOCK as usize / size_of::<u64>();
    version.to_le_bytes().repeat(words)
}

impl Host {
    async fn submit(&mut self, span: usize, at: Time) {
        let (write, long) = (self.rng.below(2) == 1, self.rng.below(4) == 0);
        let block = if long {
            0
        } else {
            self.rng.below(SPAN as u64) as usize
        };
        let blocks = if long { SPAN } else { 1 };
        let range = LbaRange {
            slba: self.load.first + (span * SPAN + block) as u64,
            blocks: blocks as u32,
        };
        let length = BLOCK * blocks as u32;
        self.version += 1;
        let version = self.version << 8 | u64::from(self.load.host);
        let transport = Sgl::Transport { length };
        let (entry, data) = match (write, long) {
            (false, _) => (SubmissionQueueEntry::read(1, range, transport), Vec::new()),
            (true, true) => (SubmissionQueueEntry::write(1, range, transport), Vec::new()),
            (true, false) => {
                let here = Sgl::InCapsule { offset: 0, length };
                let entry = SubmissionQueueEntry::write(1, range, here);
                (entry, data(version, 1))
            }
        };
        let cid = self
            .io
            .submit(entry.with_cdw(13, self.load.mark), &data)
            .await;
        let open = Open {
            span,
            block,
            blocks,
            version: write.then_some(version),
            at,
        };
        assert!(self.open.insert(cid, open).is_none());
    }

    /// Data of a read have come: they are what was written last.
    fn look(&self, cid: u16, data: &[u8]) {
        let open = self.open.get(&cid).expect("it was asked for");
        let blocks = data.chunks(BLOCK as usize);
        assert!(open.version.is_none() && blocks.len() == open.blocks);
        let holds = &self.content[open.span][open.block..];
        for (block, version) in blocks.zip(holds) {
            let words = block.chunks(size_of::<u64>());
            let mut words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
            assert!(words.all(|word| word == *version), "{open:?} {version:x}");
        }
    }

    /// A command has waited too long to be done, and was not: what was written before stays.
    fn come_again(&mut self, answer: &CompletionQueueEntry) {
        assert!(!answer.status().dnr());
        let open = self.open.remove(&answer.cid());
        let open = open.expect("each command is answered once");
        self.idle.push(open.span);
    }

    /// A command has been answered.
    fn end(&mut self, answer: &CompletionQueueEntry) -> Open {
        let open = self.open.remove(&answer.cid());
        let open = open.expect("each command is answered once");
        if let Some(version) = open.version {
            self.content[open.span][open.block..][..open.blocks].fill(version);
        }
        self.idle.push(open.span);
        open
    }
}
