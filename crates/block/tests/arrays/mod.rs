//! What tests of arrays set up.
#![allow(dead_code, reason = "each test uses some of it")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::array::{Array, ArrayError, Layout, NewMember, Options};
use flashyard_block::fault::{FaultKind, FaultOn, FaultRule};
use flashyard_block::{
    Device, Done, Info, Io, IoError, IoFuture, Limits, MemoryDevice, SharedDevice, Tag,
};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Data, Rt};
use flashyard_testbed::cut::after_cut;
use flashyard_testbed::{Content, Event, apply, yields};
use flashyard_time::Rng;

/// The identity of arrays here.
pub const ARRAY: [u8; 16] = [0xaa; 16];

/// Runs a test in a simulated world.
pub fn in_world<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F) {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    world.run(&machine, main);
}

/// Devices in memory.
pub fn memories(count: usize, bytes: u64) -> Vec<SharedDevice> {
    let device = |_| Rc::new(MemoryDevice::new(4096, bytes).expect("a good size")) as SharedDevice;
    (0..count).map(device).collect()
}

/// A member of this name.
pub fn named(name: &str, device: &SharedDevice) -> NewMember {
    NewMember {
        name: name.into(),
        device: device.clone(),
    }
}

/// Members m0, m1 and so on.
pub fn new(devices: &[SharedDevice]) -> Vec<NewMember> {
    let devices = devices.iter().enumerate();
    devices
        .map(|(at, it)| named(&format!("m{at}"), it))
        .collect()
}

/// A new array without safe reads.
pub async fn plain(rt: &Rt, devices: &[SharedDevice], copies: usize) -> Array {
    let layout = Layout {
        copies,
        parity: 0,
        safe_read: false,
    };
    let array = Array::create(rt, new(devices), ARRAY, layout, Options::default(), false).await;
    array.expect("devices that hold nothing")
}

pub async fn open(rt: &Rt, devices: &[SharedDevice]) -> Result<Array, ArrayError> {
    Array::open(rt, new(devices), None, Options::default(), false).await
}

pub async fn open_degraded(rt: &Rt, devices: &[SharedDevice]) -> Result<Array, ArrayError> {
    Array::open(rt, new(devices), None, Options::default(), true).await
}

/// What happened at one of several drives, in one order for all of them.
pub type Log = Rc<RefCell<Vec<(usize, Event)>>>;

/// A drive with a volatile cache that writes down what happens, takes some polls for it, and may
/// die.
pub struct Drive {
    number: usize,
    content: Rc<RefCell<Content>>,
    log: Log,
    rng: RefCell<Rng>,
    pub dead: Cell<bool>,
    /// Dies when it has begun so many more I/Os.
    ios_left: Cell<u64>,
    blank: bool,
}

impl Drive {
    pub fn new(number: usize, content: Content, log: &Log, seed: u64) -> Rc<Self> {
        Rc::new(Self {
            number,
            blank: content.is_blank(),
            content: Rc::new(RefCell::new(content)),
            log: Rc::clone(log),
            rng: RefCell::new(Rng::new(seed)),
            dead: Cell::new(false),
            ios_left: Cell::new(u64::MAX),
        })
    }

    /// Dies when it has begun so many more I/Os.
    pub fn dies_after(&self, ios: u64) {
        self.ios_left.set(ios);
    }

    /// What is on it, its cache included.
    pub fn content(&self) -> Content {
        self.content.borrow().clone()
    }

    fn change(content: &RefCell<Content>, log: &Log, number: usize, event: Event) -> Done {
        apply(&mut content.borrow_mut(), &event);
        log.borrow_mut().push((number, event));
        Done::EMPTY
    }
}

impl Device for Drive {
    fn info(&self) -> Info {
        Info {
            block_size: 4096,
            blocks: self.content.borrow().size() as u64 / 4096,
            volatile_cache: true,
            read_only: false,
            deallocate: true,
            limits: Limits::default(),
        }
    }

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        let polls = self.rng.borrow_mut().below(4);
        let (content, log) = (Rc::clone(&self.content), Rc::clone(&self.log));
        match self.ios_left.get() {
            0 => self.dead.set(true),
            left => self.ios_left.set(left - 1),
        }
        let (dead, number) = (self.dead.get(), self.number);
        IoFuture::boxed(async move {
            yields(polls).await;
            if dead {
                return Err(IoError::NotReady);
            }
            let offset = io.lba() as usize * 4096;
            let len = io.blocks(4096)? as usize * 4096;
            if offset + len > content.borrow().size() {
                return Err(IoError::OutOfRange);
            }
            Ok(match io {
                Io::Read { mut into, .. } => {
                    content.borrow().read(offset, &mut into);
                    Data::Buf(into).into()
                }
                Io::Write { data, fua, .. } => {
                    let bytes = data[..].into();
                    let done = Self::change(&content, &log, number, Event::Write { offset, bytes });
                    match fua {
                        true => Self::change(&content, &log, number, Event::Flush),
                        false => done,
                    }
                }
                Io::Zero { .. } => {
                    Self::change(&content, &log, number, Event::Zero { offset, len })
                }
                Io::Flush => Self::change(&content, &log, number, Event::Flush),
                Io::CompareAndWrite(_) => return Err(IoError::Unsupported),
            })
        })
    }

    fn is_blank(&self) -> bool {
        self.blank
            && self
                .log
                .borrow()
                .iter()
                .all(|(number, _)| *number != self.number)
    }
}

/// What a power cut leaves of each drive.
pub fn cut(start: &[Content], events: &[(usize, Event)], rng: &mut Rng) -> Vec<Content> {
    let left = start.iter().enumerate().map(|(number, start)| {
        let own = events.iter().filter(|(of, _)| *of == number);
        let seed = rng.below(u64::MAX);
        after_cut(start, own.map(|(_, event)| event), seed)
    });
    left.collect()
}

/// A fault that always happens.
pub fn always(kind: FaultKind, on: FaultOn) -> FaultRule {
    FaultRule::new(kind).on(on).always()
}

type Which = Box<dyn FnMut(&Io) -> bool>;

/// A device that refuses some I/Os for now.
pub struct Moody {
    below: SharedDevice,
    refused: RefCell<(IoError, Which)>,
}

impl Moody {
    pub fn new(below: SharedDevice) -> Rc<Self> {
        let refused = RefCell::new((IoError::Busy, Box::new(|_: &Io| false) as _));
        Rc::new(Self { below, refused })
    }

    /// Which I/Os get [`IoError::Busy`] from now on: there is no memory for them.
    pub fn busy_for(&self, which: impl FnMut(&Io) -> bool + 'static) {
        *self.refused.borrow_mut() = (IoError::Busy, Box::new(which));
    }

    /// Which writes get [`IoError::WriteProtected`] from now on.
    pub fn protect(&self, mut which: impl FnMut(&Io) -> bool + 'static) {
        let is_write = |io: &Io| !matches!(io, Io::Read { .. } | Io::Flush);
        let which = move |io: &Io| is_write(io) && which(io);
        *self.refused.borrow_mut() = (IoError::WriteProtected, Box::new(which));
    }
}

impl Device for Moody {
    fn info(&self) -> Info {
        self.below.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let (error, which) = &mut *self.refused.borrow_mut();
        match which(&io) {
            true => IoFuture::ready(Err(*error)),
            false => self.below.submit(tag, io),
        }
    }

    fn is_blank(&self) -> bool {
        self.below.is_blank()
    }
}

/// `FLASHYARD_ROUNDS` makes it a search.
pub fn rounds() -> u64 {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    rounds.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// What lives of a test with a member that lies have covered together. How much a single one does
/// depends on its seed: on a wide array the same load takes fewer segments.
#[derive(Clone, Default)]
pub struct Covered {
    /// Segments that were collected.
    pub victims: u64,
    /// What was wrong and written anew.
    pub healed: u64,
    /// By the number of its rule.
    injected: Vec<u64>,
}

impl Covered {
    /// Adds what a layer has injected, and says so, for who adds it up.
    pub fn add_injected(&mut self, layer: &flashyard_block::fault::FaultDevice) {
        let counts = layer.counts();
        self.injected.resize(counts.len(), 0);
        for (sum, (_, counts)) in self.injected.iter_mut().zip(&counts) {
            *sum += counts.injected;
        }
        let injected: u64 = counts.iter().map(|(_, it)| it.injected).sum();
        eprintln!("injected {injected}");
    }

    /// The same of others as well.
    pub fn add(&mut self, others: &Self) {
        self.victims += others.victims;
        self.healed += others.healed;
        self.injected.resize(others.injected.len(), 0);
        for (sum, injected) in self.injected.iter_mut().zip(&others.injected) {
            *sum += injected;
        }
    }

    /// Lives of each shape of array have covered something of everything, and all together enough
    /// for so many lives.
    pub fn check_shapes(shapes: &[Self], lives: u64) {
        let mut all = Self::default();
        for (shape, covered) in shapes.iter().enumerate() {
            let (victims, healed) = (covered.victims, covered.healed);
            let place = format!("shape {shape}: {victims} victims, {healed} healed");
            assert!(victims > 0 && healed > 0, "{place}");
            let injected = covered.injected.iter();
            assert!(injected.min() > Some(&0), "{place}: {:?}", covered.injected);
            all.add(covered);
        }
        all.check(lives);
    }

    /// Every kind of fault was injected, and what it did was noticed and put right.
    fn check(&self, lives: u64) {
        for (rule, injected) in self.injected.iter().enumerate() {
            assert!(
                *injected >= lives,
                "rule {rule}: {injected} in {lives} lives"
            );
        }
        let (victims, healed) = (self.victims, self.healed);
        assert!(victims > 10 * lives, "{victims} in {lives} lives");
        assert!(healed > 20 * lives, "{healed} in {lives} lives");
    }
}
