//! Which interrupt goes out, and by which eventfd. Completions of one turn make one interrupt for
//! each vector; interrupt coalescing may make it wait.

use std::os::fd::{AsFd, OwnedFd};

use flashyard_controller::pcie::{InterruptCoalescing, Moderation, Msix};
use flashyard_nvme::vfio_user::pci::{INTX, MSIX};
use flashyard_nvme::vfio_user::{IrqAction, IrqData, SetIrqs};
use flashyard_runtime::Rt;
use flashyard_runtime::unix::{Descriptors, EventCounter};
use flashyard_time::Time;

/// SET_IRQS could not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InvalidIrqs;

/// Eventfds that another core gets, too: none for those that have gone.
pub(crate) struct EventFds(Vec<EventFd>);

type EventFd = (u32, u32, Option<OwnedFd>);

/// The interrupts of one function, as one core sends them. Completions of several cores make an
/// interrupt on each.
pub(crate) struct Interrupts {
    /// The table, and what is pending.
    pub(crate) msix: Msix,
    vectors: Vec<Option<EventCounter>>,
    intx: Option<EventCounter>,
    moderation: Moderation,
    /// Completions of this turn, by vector.
    posted: Vec<u32>,
    /// Vectors among them.
    waiting: Vec<u16>,
}

impl Interrupts {
    pub(crate) fn new(vectors: u16) -> Self {
        let count = usize::from(vectors);
        Self {
            msix: Msix::new(vectors),
            vectors: (0..count).map(|_| None).collect(),
            intx: None,
            moderation: Moderation::default(),
            posted: vec![0; count],
            waiting: Vec::new(),
        }
    }

    /// Interrupts of a kind; 0 if there is none.
    pub(crate) fn count(&self, index: u32) -> u32 {
        match index {
            INTX => 1,
            MSIX => self.vectors.len() as u32,
            _ => 0,
        }
    }

    /// Sets interrupts up as the client wants it.
    pub(crate) fn set(
        &mut self,
        rt: &Rt,
        set: &SetIrqs<'_>,
        fds: &mut Descriptors,
    ) -> Result<(), InvalidIrqs> {
        let known = self.count(set.index);
        if known == 0 || set.start + set.count > known {
            return Err(InvalidIrqs);
        }
        match (set.action, set.data) {
            (IrqAction::Trigger, IrqData::EventFds) => self.assign(rt, set, fds),
            (IrqAction::Trigger, IrqData::None) if set.count == 0 => {
                self.disable(set.index);
                Ok(())
            }
            (IrqAction::Trigger, data) => {
                for number in 0..set.count {
                    let wanted = match data {
                        IrqData::Bool(bools) => bools[number as usize] != 0,
                        _ => true,
                    };
                    if wanted {
                        self.signal(set.index, (set.start + number) as u16);
                    }
                }
                Ok(())
            }
            // The client masks by taking eventfds away; INTx is level triggered for it alone.
            (IrqAction::Mask | IrqAction::Unmask, _) => Ok(()),
        }
    }

    fn assign(
        &mut self,
        rt: &Rt,
        set: &SetIrqs<'_>,
        fds: &mut Descriptors,
    ) -> Result<(), InvalidIrqs> {
        let is_counter = |fd| EventCounter::is_one(fd).unwrap_or(false);
        if !fds.as_slice().iter().all(is_counter) {
            return Err(InvalidIrqs);
        }
        let counters = fds.take().into_iter().map(|fd| EventCounter::of(rt, fd));
        let counters: Result<Vec<_>, _> = counters.collect();
        let mut counters = counters.map_err(|_| InvalidIrqs)?.into_iter();
        for number in set.start..set.start + set.count {
            let counter = counters.next();
            if set.index == INTX {
                self.intx = counter;
                continue;
            }
            let given = counter.is_some();
            self.vectors[number as usize] = counter;
            if given && self.msix.take_pending(number as u16) {
                self.signal(MSIX, number as u16);
            }
        }
        Ok(())
    }

    fn disable(&mut self, index: u32) {
        if index == INTX {
            self.intx = None;
        } else {
            self.vectors.fill_with(|| None);
        }
    }

    /// A completion was posted in a queue of this vector.
    pub(crate) fn posted(&mut self, vector: u16) {
        let Some(count) = self.posted.get_mut(usize::from(vector)) else {
            return;
        };
        if *count == 0 {
            self.waiting.push(vector);
        }
        *count += 1;
    }

    /// Sends the interrupts of this turn; `coalescing` says how those of a vector wait for others.
    /// Without `takes_intx` the guest gets none by INTx, but [`Self::remind`] later. Gives the
    /// vectors that have no eventfd here.
    #[must_use]
    pub(crate) fn flush(
        &mut self,
        now: Time,
        takes_intx: bool,
        coalescing: impl Fn(u16) -> Option<InterruptCoalescing>,
    ) -> Vec<u16> {
        let mut unsent = Vec::new();
        while let Some(vector) = self.waiting.pop() {
            let count = std::mem::take(&mut self.posted[usize::from(vector)]);
            // Vector 0 is that of the Admin queue, whose completions do not wait.
            let coalescing = coalescing(vector).filter(|_| vector != 0);
            if self.moderation.posted(vector, count, coalescing, now)
                && !self.interrupt(vector, takes_intx)
            {
                unsent.push(vector);
            }
        }
        while let Some(vector) = self.moderation.take_due(now) {
            if !self.interrupt(vector, takes_intx) {
                unsent.push(vector);
            }
        }
        unsent
    }

    /// When an interrupt that waits has waited long enough.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.moderation.next_due()
    }

    /// Sends INTx again, if it is what the guest uses: there is more for it to read.
    pub(crate) fn remind(&self) {
        if self.uses_intx() {
            self.signal(INTX, 0);
        }
    }

    fn uses_intx(&self) -> bool {
        self.intx.is_some() && self.vectors.iter().all(Option::is_none)
    }

    /// Interrupts the guest, now or when it gives an eventfd for it.
    pub(crate) fn interrupt_or_pend(&mut self, vector: u16, takes_intx: bool) {
        if !self.interrupt(vector, takes_intx) {
            self.msix.set_pending(vector);
        }
    }

    /// Interrupts the guest; false if there is no eventfd for it.
    fn interrupt(&self, vector: u16, takes_intx: bool) -> bool {
        if self.uses_intx() {
            if takes_intx {
                self.signal(INTX, 0);
            }
            return true;
        }
        let has_one = self.vectors[usize::from(vector)].is_some();
        if has_one {
            self.signal(MSIX, vector);
        }
        has_one
    }

    /// All eventfds, for another core.
    pub(crate) fn share(&self) -> EventFds {
        let all = [(INTX, 1), (MSIX, self.vectors.len() as u32)];
        let all = all
            .into_iter()
            .flat_map(|(index, count)| self.copies(index, 0, count));
        EventFds(all.collect())
    }

    /// What has become of those that SET_IRQS was about, for another core.
    pub(crate) fn share_of(&self, set: &SetIrqs<'_>) -> EventFds {
        let (start, count) = match set.count {
            0 => (0, self.count(set.index)),
            count => (set.start, count),
        };
        EventFds(self.copies(set.index, start, count).collect())
    }

    fn copies(&self, index: u32, start: u32, count: u32) -> impl Iterator<Item = EventFd> {
        (start..start + count).map(move |number| {
            let counter = self.counter(index, number as u16);
            // Without a descriptor for it the other core leaves its interrupts to this one.
            let copy = counter.and_then(|counter| counter.as_fd().try_clone_to_owned().ok());
            (index, number, copy)
        })
    }

    /// Takes eventfds of another core in the place of those that were here.
    pub(crate) fn put(&mut self, rt: &Rt, eventfds: EventFds) {
        for (index, number, fd) in eventfds.0 {
            let counter = fd.and_then(|fd| EventCounter::of(rt, fd).ok());
            let place = match index {
                INTX => Some(&mut self.intx),
                _ => self.vectors.get_mut(number as usize),
            };
            if let Some(place) = place {
                *place = counter;
            }
        }
    }

    fn counter(&self, index: u32, number: u16) -> Option<&EventCounter> {
        match index {
            INTX => self.intx.as_ref(),
            _ => self.vectors.get(usize::from(number))?.as_ref(),
        }
    }

    fn signal(&self, index: u32, number: u16) {
        let counter = self.counter(index, number);
        if let Some(counter) = counter {
            counter.signal();
        }
    }

    /// A reset of the function: nothing is pending; eventfds are the client's and stay.
    pub(crate) fn reset(&mut self) {
        self.msix.reset();
        self.moderation.reset();
        self.waiting.clear();
        self.posted.fill(0);
    }

    /// The client has gone, and its eventfds with it.
    pub(crate) fn forget_client(&mut self) {
        self.reset();
        self.intx = None;
        self.vectors.fill_with(|| None);
    }
}
