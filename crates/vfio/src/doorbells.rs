//! Doorbells that lie in memory, where the function looks for them: shadow doorbells, which are the
//! guest's, and the page of BAR 0 that the client may map. While the core is awake the guest need
//! not ring. How the function goes to sleep, without missing a move, is in
//! `flashyard_controller::pcie::shadow`; a mapped page cannot wake anybody, so with it the core
//! looks every now and then.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use flashyard_controller::pcie::shadow::{self, EventIndex};
use flashyard_controller::pcie::{DOORBELLS, Doorbell, PAGE};
use flashyard_runtime::shared_memory::{Mapping, SharedMapping, memory_file};

use crate::memory::{GuestMemory, Unmapped, Window};

/// The doorbells of a function, as far as they lie in memory.
#[derive(Default)]
pub(crate) struct MemoryDoorbells {
    /// The page that the client may map.
    page: Option<Page>,
    shadow: Option<Shadow>,
    /// By the doorbell's number.
    places: Vec<Place>,
    /// The guest has been asked to ring at its next move.
    pub(crate) asleep: bool,
}

struct Page {
    /// On the home core.
    file: Option<OwnedFd>,
    mapping: Mapping,
}

/// The doorbells for another core, which looks at those of its queues.
pub(crate) struct SharedDoorbells {
    page: Option<SharedMapping>,
    shadow: Option<[u64; 2]>,
}

/// Both pages, by guest address and where they are.
struct Shadow {
    addresses: [u64; 2],
    doorbells: Window,
    event_indices: Window,
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// The value at the last look.
    seen: u16,
    event: EventIndex,
}

impl MemoryDoorbells {
    /// With a page that the client may map.
    pub(crate) fn mappable() -> io::Result<Self> {
        // As far from the beginning of the file as in BAR 0.
        let file = memory_file(DOORBELLS + PAGE)?;
        let mapping = Mapping::new(file.as_fd(), DOORBELLS, PAGE, true);
        let mapping = mapping.map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            page: Some(Page {
                file: Some(file),
                mapping,
            }),
            ..Self::default()
        })
    }

    /// For another core.
    pub(crate) fn share(&self) -> SharedDoorbells {
        SharedDoorbells {
            page: self.page.as_ref().map(|page| page.mapping.share()),
            shadow: self.shadow.as_ref().map(|shadow| shadow.addresses),
        }
    }

    /// Those of another core, for one that has `memory`, too.
    pub(crate) fn shared(shared: &SharedDoorbells, memory: &GuestMemory) -> Self {
        let page = shared.page.as_ref().map(|page| Page {
            file: None,
            mapping: page.mapping(),
        });
        let mut doorbells = Self {
            page,
            ..Self::default()
        };
        if let Some(addresses) = shared.shadow {
            // They were found at home.
            let _ = doorbells.set_shadow(memory, addresses, Vec::new());
        }
        doorbells
    }

    /// Whether the client may map them.
    pub(crate) fn are_mappable(&self) -> bool {
        self.page.is_some()
    }

    /// The file with the page that the client may map.
    pub(crate) fn file(&self) -> io::Result<Option<OwnedFd>> {
        let file = self.page.as_ref().and_then(|page| page.file.as_ref());
        file.map(OwnedFd::try_clone).transpose()
    }

    /// Whether doorbells of I/O queues are shadow doorbells.
    pub(crate) fn are_shadowed(&self) -> bool {
        self.shadow.is_some()
    }

    /// Whether there are any in memory.
    pub(crate) fn are_there(&self) -> bool {
        self.shadow.is_some() || self.page.is_some()
    }

    /// Shadow doorbells and event indices are in these pages from now on, and begin with what the
    /// doorbells of all I/O queues are.
    pub(crate) fn set_shadow(
        &mut self,
        memory: &GuestMemory,
        addresses: [u64; 2],
        values: Vec<(Doorbell, u16, u16)>,
    ) -> Result<(), Unmapped> {
        let [doorbells, event_indices] = addresses.map(|address| memory.window(address, PAGE));
        self.shadow = Some(Shadow {
            addresses,
            doorbells: doorbells?,
            event_indices: event_indices?,
        });
        for (doorbell, value, entries) in values {
            self.begin(doorbell, value, entries)?;
        }
        Ok(())
    }

    /// Memory was unmapped: without its pages there are no shadow doorbells.
    pub(crate) fn revise(&mut self, memory: &GuestMemory) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let [doorbells, event_indices] =
            shadow.addresses.map(|address| memory.window(address, PAGE));
        match (doorbells, event_indices) {
            (Ok(doorbells), Ok(event_indices)) => {
                (shadow.doorbells, shadow.event_indices) = (doorbells, event_indices);
            }
            // What was held back is sent when the core looks next.
            _ => self.shadow = None,
        }
    }

    /// A queue of so many entries begins with this doorbell at 0.
    pub(crate) fn begin_queue(&mut self, doorbell: Doorbell, entries: u16) {
        // It lies in pages that were looked up.
        let _ = self.begin(doorbell, 0, entries);
    }

    fn begin(&mut self, doorbell: Doorbell, value: u16, entries: u16) -> Result<(), Unmapped> {
        let index = doorbell.index();
        let at = index as usize * 4;
        if at >= PAGE as usize {
            return Ok(());
        }
        if let Some(page) = &self.page {
            let stored = page.mapping.store(at, u32::from(value).to_le());
            stored.then_some(()).ok_or(Unmapped)?;
        }
        let place = self.place(index);
        place.seen = value;
        let event = match doorbell {
            Doorbell::Tail(_) => place.event.asleep(value),
            // The guest need not ring when it takes completions.
            Doorbell::Head(_) => place.event.behind(value, entries),
        };
        if let Some(shadow) = self.shadow.as_ref().filter(|_| index > 1) {
            shadow.doorbells.store(at, value.into())?;
            shadow.event_indices.store(at, event)?;
        }
        Ok(())
    }

    /// The client has written a doorbell by a message, and not to a shadow.
    pub(crate) fn written(&mut self, doorbell: Doorbell, value: u32) {
        let at = doorbell.index() as usize * 4;
        if let Some(page) = self.page.as_ref().filter(|_| at < PAGE as usize) {
            let _ = page.mapping.store(at, value.to_le());
            self.place(doorbell.index()).seen = value as u16;
        }
    }

    /// The controller has gone.
    pub(crate) fn reset(&mut self) {
        self.shadow = None;
        // Those of I/O queues begin with them: other cores may still look at what they were.
        if let Some(page) = self.page.as_ref().filter(|page| page.file.is_some()) {
            let _ = page.mapping.zero(0, 8);
        }
        self.places.clear();
        self.asleep = false;
    }

    /// What a doorbell in memory is now.
    pub(crate) fn load(&self, doorbell: Doorbell) -> Option<u16> {
        let at = shadow::offset(doorbell) as usize;
        let value = match (&self.shadow, &self.page) {
            (Some(shadow), _) if doorbell.index() > 1 => shadow.doorbells.load(at),
            (_, Some(page)) => page.mapping.load(at).map(u32::from_le),
            _ => None,
        };
        value.map(|value| value as u16)
    }

    /// The value of a doorbell, if it has moved since the last look. `entries` of its queue.
    pub(crate) fn take(&mut self, doorbell: Doorbell, entries: u16) -> Option<u16> {
        let value = self.load(doorbell)?;
        let place = self.place(doorbell.index());
        if place.seen == value {
            return None;
        }
        // A guest that writes what its queue cannot have is notified by the queue.
        let within = |value: u16| value.min(entries - 1);
        let moved = (within(place.seen), within(value));
        place.seen = value;
        let event = place.event.awake(moved, entries);
        self.asleep = false;
        if let (Some(shadow), Some(event)) = (&self.shadow, event) {
            // It lies in a page that was looked up.
            let _ = shadow
                .event_indices
                .store(shadow::offset(doorbell) as usize, event);
        }
        Some(value)
    }

    pub(crate) fn has_moved(&self, doorbell: Doorbell) -> bool {
        let seen = self.places.get(doorbell.index() as usize);
        let seen = seen.copied().unwrap_or_default().seen;
        self.load(doorbell).is_some_and(|value| value != seen)
    }

    /// Asks the guest to ring at its next move of this doorbell.
    pub(crate) fn arm(&mut self, doorbell: Doorbell) {
        let place = self.place(doorbell.index());
        let event = place.event.asleep(place.seen);
        if let Some(shadow) = &self.shadow {
            let _ = shadow
                .event_indices
                .store(shadow::offset(doorbell) as usize, event);
        }
    }

    fn place(&mut self, index: u32) -> &mut Place {
        let index = index as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, Place::default());
        }
        &mut self.places[index]
    }
}
