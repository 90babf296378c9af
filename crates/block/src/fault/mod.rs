//! Faults on purpose: a layer before any device that does to its I/O what bad drives do, by seed,
//! and counts it. For tests of hosts and of what stands on devices; never for data that matter.
//!
//! [`FaultRule`] is what is said of a fault, `injector.rs` decides which I/O is hit, and this does
//! it. An I/O that is not hit goes to the device as it came. What the layer keeps in its own memory
//! is bounded: 16 MiB of former content for [`FaultKind::Stale`] (the oldest goes first), and 16
//! MiB of writes that are not on the medium for [`FaultKind::LyingFlush`] (what does not fit goes
//! to the device).
//!
//! Compare and Write and what makes blocks zero are never changed or left out, only failed, held up
//! or delayed: space is cleaned before it is given away, and stays clean.

mod injector;
mod kept;
mod rule;
mod volatile;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Data, Rt, Shared};
use flashyard_time::Duration;

pub use injector::FaultCounts;
use injector::{Decision, Effect, Injector, RuleId, SECTOR, Seen};
use kept::Kept;
pub use rule::{FaultKind, FaultOn, FaultRule, Frequency, PARTS};
use volatile::{Volatile, into_buf, lasting, patch, promises};

use crate::io::Done;
use crate::range::locate_io;
use crate::{Device, Health, Info, Io, IoError, IoFuture, SharedDevice, Tag, Turns};

/// Bytes of former content that are kept at most.
const MOST_FORMER: usize = 16 << 20;

/// See the module.
pub struct FaultDevice(Rc<Layer>);

struct Layer {
    rt: Rt,
    below: Rc<Volatile>,
    block_size: u32,
    injector: RefCell<Injector>,
    /// What blocks held before they were written last.
    former: RefCell<Kept>,
    /// Nothing can happen: I/O goes to the device without a look at it.
    idle: Cell<bool>,
    /// Faults have been taken away, or what hangs is released.
    changed: Notify,
    /// Nothing hangs or is delayed any more.
    released: Cell<bool>,
}

impl FaultDevice {
    /// A layer before `device` with these faults. The same I/O with the same seed meets the same
    /// faults.
    pub fn new(rt: &Rt, device: SharedDevice, seed: u64, rules: Vec<FaultRule>) -> Self {
        let block_size = device.info().block_size;
        let layer = Self(Rc::new(Layer {
            rt: rt.clone(),
            below: Volatile::new(rt, device),
            block_size,
            injector: RefCell::new(Injector::new(seed, block_size)),
            former: RefCell::new(Kept::new(block_size, MOST_FORMER)),
            idle: Cell::new(true),
            changed: Notify::new(),
            released: Cell::new(false),
        }));
        layer.set(rules);
        layer
    }

    /// These faults from now on. One that was there already goes on with what it has counted. What
    /// hangs because of a fault that has gone goes on, and what is delayed when there is no latency
    /// any more; what a flush has lied about goes to the device.
    pub fn set(&self, rules: Vec<FaultRule>) {
        let layer = &self.0;
        let mut injector = layer.injector.borrow_mut();
        injector.set(rules);
        let has = |kind| injector.has_kind(|it| it == kind);
        if !has(FaultKind::Stale) {
            layer.former.borrow_mut().clear();
        }
        layer.below.set(has(FaultKind::LyingFlush));
        layer.idle.set(false);
        drop(injector);
        layer.changed.notify_all();
        let (layer, rt) = (Rc::clone(layer), layer.rt.clone());
        if layer.below.is_idle() || layer.below.bytes() == 0 {
            return layer.rest();
        }
        if layer.has(|kind| kind == FaultKind::LyingFlush) {
            return;
        }
        rt.spawn(async move {
            // What could not be written stays where it is, and the next flush tries again.
            let _ = layer.below.submit(Tag::default(), Io::Flush).await;
            layer.rest();
        })
        .detach();
    }

    /// Each fault with what it has done.
    pub fn counts(&self) -> Vec<(FaultRule, FaultCounts)> {
        let injector = self.0.injector.borrow();
        let counts = injector.counts();
        counts
            .map(|(rule, counts)| (rule.clone(), counts))
            .collect()
    }

    /// Bytes that were acknowledged as on the medium, or need a flush, and are in memory only.
    pub fn unflushed_bytes(&self) -> u64 {
        self.0.below.bytes()
    }

    /// What hangs fails with [`IoError::NotReady`], what is delayed goes on, and nothing hangs or
    /// is delayed any more.
    pub fn release(&self) {
        self.0.released.set(true);
        self.0.changed.notify_all();
    }

    /// The end: nothing hangs or is delayed any more, and what is not on the medium is lost.
    pub fn close(&self) {
        self.release();
        self.0.below.lose();
    }
}

impl Device for FaultDevice {
    fn info(&self) -> Info {
        self.0.below.device.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        match self.0.idle.get() {
            true => self.0.below.device.submit(tag, io),
            false => self.0.submit(tag, io),
        }
    }

    fn take_turns(&self, turns: &Rc<dyn Turns>) {
        self.0.below.device.take_turns(turns);
    }

    fn health(&self) -> Health {
        self.0.below.device.health()
    }

    fn take_growth(&self) -> Result<(), IoError> {
        self.0.below.device.take_growth()
    }

    fn moved(&self) -> Option<u64> {
        self.0.below.device.moved()
    }

    fn read_for(&self, at: u64, bytes: u64) -> u64 {
        self.0.below.device.read_for(at, bytes)
    }

    fn written_for(&self, at: u64, bytes: u64) -> u64 {
        self.0.below.device.written_for(at, bytes)
    }

    fn is_blank(&self) -> bool {
        self.0.below.device.is_blank() && self.0.below.bytes() == 0
    }

    fn is_page_cached(&self) -> bool {
        self.0.below.device.is_page_cached()
    }
}

impl Layer {
    /// Finds out whether anything can happen.
    fn rest(&self) {
        let idle = self.injector.borrow().is_empty() && self.below.is_idle();
        self.idle.set(idle);
    }

    fn has(&self, is_it: impl Fn(FaultKind) -> bool) -> bool {
        self.injector.borrow().has_kind(is_it)
    }

    fn submit(self: &Rc<Self>, tag: Tag, io: Io) -> IoFuture {
        let info = self.below.device.info();
        let protected = info.read_only && !matches!(io, Io::Read { .. });
        if protected || locate_io(&info, &io).is_err() {
            // The device says what is wrong with it.
            return self.below.device.submit(tag, io);
        }
        let seen = Seen {
            op: io.op(),
            blocks: self.blocks(&io),
            promises: promises(&info, &io),
        };
        let Decision { delay, hit } = self.injector.borrow_mut().decide(&seen, info.blocks);
        if delay == Duration::ZERO && hit.is_none() {
            return self.pass(tag, io);
        }
        let layer = Rc::clone(self);
        IoFuture::boxed(async move {
            layer.delay(delay).await;
            match hit {
                Some((rule, effect)) => layer.suffer(tag, io, rule, effect).await,
                None => layer.pass(tag, io).await,
            }
        })
    }

    fn blocks(&self, io: &Io) -> Range<u64> {
        let blocks = io.blocks(self.block_size).unwrap_or(0);
        io.lba()..io.lba().saturating_add(blocks)
    }

    /// Does an I/O as it came; what a write replaces is remembered where that may be read again.
    fn pass(self: &Rc<Self>, tag: Tag, io: Io) -> IoFuture {
        let blocks = self.blocks(&io);
        let remembered = match io {
            Io::Write { .. } => self.remembered(blocks),
            _ => Vec::new(),
        };
        if remembered.is_empty() {
            return self.below.submit(tag, io);
        }
        let layer = Rc::clone(self);
        lasting(&self.rt, async move {
            let mut former = Vec::new();
            for blocks in remembered {
                let read = layer.read(tag, blocks.clone()).await;
                former.extend(read.map(|data| (blocks.start, data)));
            }
            let done = layer.below.submit(tag, io).await?;
            for (lba, data) in former {
                let mut kept = layer.former.borrow_mut();
                let blocks = data.chunks_exact(layer.block_size as usize);
                (lba..)
                    .zip(blocks)
                    .for_each(|(lba, block)| kept.put_newest(lba, block));
            }
            Ok(done)
        })
    }

    /// Of these blocks those whose former content a fault may want.
    fn remembered(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let injector = self.injector.borrow();
        let stale = injector.of_kind(|kind| kind == FaultKind::Stale);
        let touched = stale.map(|rule| match &rule.range {
            Some(range) => range.start.max(blocks.start)..range.end.min(blocks.end),
            None => blocks.clone(),
        });
        touched.filter(|range| !range.is_empty()).collect()
    }

    async fn read(self: &Rc<Self>, tag: Tag, blocks: Range<u64>) -> Result<Buf, IoError> {
        let bytes = (blocks.end - blocks.start) as usize * self.block_size as usize;
        let into = Buf::take(bytes).ok_or(IoError::Busy)?;
        let (lba, below) = (blocks.start, &self.below);
        let done = below.submit(tag, Io::Read { lba, into }).await?;
        into_buf(done.data)
    }

    /// Waits for so long; less if latency is no fault any more, or the target ends.
    async fn delay(&self, span: Duration) {
        let no_more = async {
            while self.has(|kind| matches!(kind, FaultKind::Latency { .. })) && !self.released.get()
            {
                self.changed.notified().await;
            }
        };
        if span > Duration::ZERO {
            self.rt.timeout(span, no_more).await;
        }
    }

    /// Waits until this fault is gone.
    async fn hang(&self, rule: RuleId) -> Result<(), IoError> {
        self.count(rule, true, 1);
        while self.injector.borrow().has(rule) {
            if self.released.get() {
                return Err(IoError::NotReady);
            }
            self.changed.notified().await;
        }
        Ok(())
    }

    fn count(&self, rule: RuleId, done: bool, times: u64) {
        self.injector.borrow_mut().count(rule, done, times);
    }

    /// Does to an I/O what was decided; what it has begun runs to its end.
    fn suffer(self: &Rc<Self>, tag: Tag, io: Io, rule: RuleId, effect: Effect) -> IoFuture {
        let layer = Rc::clone(self);
        match (effect, io) {
            (Effect::Fail(error), _) => {
                self.count(rule, true, 1);
                IoFuture::ended(Err(error))
            }
            (Effect::Lost, _) => {
                self.count(rule, true, 1);
                IoFuture::ended(Ok(()))
            }
            (Effect::Misdirected(place), io) => {
                self.count(rule, true, 1);
                self.pass(tag, io.at(place))
            }
            (Effect::Lie, io) => self.lie(tag, io, rule),
            (Effect::Torn(written), Io::Write { lba, data, fua }) => {
                lasting(&self.rt, layer.tear(tag, (lba, data, fua), rule, written))
            }
            (Effect::Flip(bits), Io::Write { lba, data, fua }) => {
                let (data, done) = match flipped(data, &bits) {
                    Ok(data) => (data, true),
                    Err(data) => (data, false),
                };
                self.count(rule, done, bits.len() as u64);
                self.pass(tag, Io::Write { lba, data, fua })
            }
            (Effect::Flip(bits), io) => lasting(&self.rt, async move {
                let read = layer.below.submit(tag, io).await?.data;
                let len = read.len();
                let Ok(mut buf) = into_buf(read) else {
                    layer.count(rule, false, bits.len() as u64);
                    return Ok(Data::Zeroes(len).into());
                };
                flip(&mut buf, &bits);
                layer.count(rule, true, bits.len() as u64);
                Ok(Data::Buf(buf).into())
            }),
            (Effect::Stale(blocks), io) => lasting(&self.rt, layer.age(tag, io, rule, blocks)),
            (Effect::Hang, io) => IoFuture::boxed(async move {
                layer.hang(rule).await?;
                layer.pass(tag, io).await
            }),
            // Nothing but a write can be torn.
            (Effect::Torn(_), io) => self.pass(tag, io),
        }
    }

    /// Ends an I/O whose promise is not kept, if there is anything to be lost by that.
    fn lie(self: &Rc<Self>, tag: Tag, io: Io, rule: RuleId) -> IoFuture {
        let kept = match io {
            Io::Flush if self.below.bytes() > 0 => Ok(()),
            io => self.below.keep(io),
        };
        self.count(rule, kept.is_ok(), 1);
        match kept {
            Ok(()) => IoFuture::ended(Ok(())),
            Err(io) => self.pass(tag, io),
        }
    }

    /// Writes some sectors and leaves the others as they were.
    async fn tear(
        self: Rc<Self>,
        tag: Tag,
        (lba, data, fua): (u64, Shared, bool),
        rule: RuleId,
        written: Vec<bool>,
    ) -> Result<Done, IoError> {
        let blocks = (data.len() / self.block_size as usize) as u64;
        let Ok(mut present) = self.read(tag, lba..lba + blocks).await else {
            self.count(rule, false, 1);
            return self.pass(tag, Io::Write { lba, data, fua }).await;
        };
        let sectors = present.chunks_exact_mut(SECTOR as usize);
        let new = data.chunks_exact(SECTOR as usize);
        for ((sector, new), _) in sectors
            .zip(new)
            .zip(written)
            .filter(|(_, written)| *written)
        {
            sector.copy_from_slice(new);
        }
        self.count(rule, true, 1);
        let data = present.into();
        self.pass(tag, Io::Write { lba, data, fua }).await
    }

    /// Reads, and gives former content where it is known and another.
    async fn age(
        self: Rc<Self>,
        tag: Tag,
        io: Io,
        rule: RuleId,
        blocks: Range<u64>,
    ) -> Result<Done, IoError> {
        let lba = io.lba();
        let data = self.below.submit(tag, io).await?.data;
        let blocks = lba + blocks.start..lba + blocks.end;
        let mut former = self.former.borrow().range(blocks);
        former.retain(|(place, block)| match &data {
            Data::Buf(buf) => {
                let start = (place - lba) as usize * block.len();
                buf[start..start + block.len()] != **block
            }
            Data::Zeroes(_) => block.iter().any(|byte| *byte != 0),
        });
        self.count(rule, !former.is_empty(), 1);
        match former.is_empty() {
            true => Ok(data.into()),
            false => patch(data, lba, &former).map(Done::from),
        }
    }
}

/// The same data with these bits flipped; in place where there is no other holder. Given back when
/// there is no memory.
fn flipped(data: Shared, bits: &[u64]) -> Result<Shared, Shared> {
    let mut buf = match data.try_into_buf() {
        Ok(buf) => buf,
        Err(data) => match Buf::take(data.len()) {
            Some(mut buf) => {
                buf.copy_from_slice(&data);
                buf
            }
            None => return Err(data),
        },
    };
    flip(&mut buf, bits);
    Ok(buf.into())
}

fn flip(bytes: &mut [u8], bits: &[u64]) {
    for bit in bits {
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}
