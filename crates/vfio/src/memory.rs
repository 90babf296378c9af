//! The guest's memory: regions that the client maps and unmaps at any time.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use flashyard_controller::pcie::Segment;
use flashyard_engine::front::Way;
use flashyard_nvme::vfio_user::{DMA_WRITE, DmaMap, DmaUnmap, UNMAP_ALL};
use flashyard_runtime::shared_memory::{Mapping, Refused, SharedMapping, Space};
use flashyard_runtime::{Lent, Loans};

/// Regions at a time.
pub(crate) const MOST_REGIONS: usize = 1024;
/// Bytes of all regions at a time, and of those that are not unmapped yet: more than any machine
/// has, and little of what this process has addresses for (128 TiB).
const MOST_BYTES: u64 = 4 << 40;

const PAGE: u64 = 4096;

/// There is no memory at this address, or not for this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unmapped;

/// All memory of one guest.
#[derive(Default)]
pub(crate) struct GuestMemory {
    /// By address; they do not overlap.
    regions: Vec<Region>,
    /// What mappings take: also those that devices still use, or that are on their way out.
    space: Space,
}

struct Region {
    address: u64,
    size: u64,
    /// Memory without a descriptor is not reachable, but its place is taken.
    mapping: Option<Rc<Mapping>>,
}

/// A region for another core.
pub(crate) struct SharedRegion {
    address: u64,
    size: u64,
    mapping: Option<SharedMapping>,
}

/// A piece of memory that was looked up: for as long as nothing is unmapped.
pub(crate) struct Window {
    mapping: Rc<Mapping>,
    offset: usize,
}

impl Window {
    /// The word at `at`, and everything that the guest has written before it.
    pub(crate) fn load(&self, at: usize) -> Option<u32> {
        self.mapping.load(self.offset + at).map(u32::from_le)
    }

    /// Writes the word at `at`, after everything that was written before.
    pub(crate) fn store(&self, at: usize, value: u32) -> Result<(), Unmapped> {
        let stored = self.mapping.store(self.offset + at, value.to_le());
        stored.then_some(()).ok_or(Unmapped)
    }
}

/// Why a region is not taken, as `errno` has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapError {
    /// Its address or size is not one.
    Invalid,
    /// It overlaps another one.
    Exists,
    /// There are too many, or too large ones.
    TooMany,
    /// Its memory could become shorter, or is on huge pages.
    Unsafe,
    /// The system refuses.
    System,
}

impl MapError {
    pub(crate) fn errno(self) -> u32 {
        match self {
            Self::Invalid => 22,
            Self::Exists => 17,
            Self::TooMany => 28,
            Self::Unsafe => 1,
            Self::System => 12,
        }
    }
}

impl GuestMemory {
    /// Takes a region, with the descriptor that came beside it.
    pub(crate) fn map(&mut self, map: &DmaMap, fd: Option<&OwnedFd>) -> Result<(), MapError> {
        let aligned = map.address.is_multiple_of(PAGE) && map.size.is_multiple_of(PAGE);
        let end = map.address.checked_add(map.size);
        let end = end.filter(|_| aligned && map.size > 0);
        let end = end.ok_or(MapError::Invalid)?;
        let room = MOST_BYTES.saturating_sub(self.space.bytes());
        let full = map.size > room || self.space.mappings() >= MOST_REGIONS;
        if self.regions.len() >= MOST_REGIONS || (fd.is_some() && full) {
            return Err(MapError::TooMany);
        }
        let at = self.first_behind(map.address);
        let overlaps = |region: &Region| region.address < end && map.address < region.end();
        let before = at.checked_sub(1).and_then(|at| self.regions.get(at));
        if before.is_some_and(overlaps) || self.regions.get(at).is_some_and(overlaps) {
            return Err(MapError::Exists);
        }
        let writable = map.flags & DMA_WRITE != 0;
        let mapping = fd.map(|fd| {
            let space = &self.space;
            space.map(fd.as_fd(), map.offset, map.size, writable)
        });
        let mapping = mapping.transpose().map_err(|refused| match refused {
            Refused::MayShrink | Refused::HugePages => MapError::Unsafe,
            Refused::Range => MapError::Invalid,
            Refused::System(_) => MapError::System,
        })?;
        let region = Region {
            address: map.address,
            size: map.size,
            mapping: mapping.map(Rc::new),
        };
        self.regions.insert(at, region);
        Ok(())
    }

    /// All regions, for another core.
    pub(crate) fn share(&self) -> Vec<SharedRegion> {
        self.regions.iter().map(Region::share).collect()
    }

    /// The region that begins at `address`, for another core.
    pub(crate) fn share_of(&self, address: u64) -> Option<SharedRegion> {
        let at = self.first_behind(address).checked_sub(1)?;
        Some(self.regions[at].share())
    }

    /// Takes a region of another core.
    pub(crate) fn take(&mut self, shared: SharedRegion) {
        let at = self.first_behind(shared.address);
        let mapping = shared.mapping.map(|mapping| Rc::new(mapping.mapping()));
        let region = Region {
            address: shared.address,
            size: shared.size,
            mapping,
        };
        self.regions.insert(at, region);
    }

    /// Lets a region go, which has to be one that was mapped; or all. Gives what was mapped there;
    /// `None` if there is no such region.
    pub(crate) fn unmap(&mut self, unmap: &DmaUnmap) -> Option<Vec<Rc<Mapping>>> {
        let gone = if unmap.flags & UNMAP_ALL != 0 {
            std::mem::take(&mut self.regions)
        } else {
            let wanted = (unmap.address, unmap.size);
            let same = |region: &Region| (region.address, region.size) == wanted;
            let at = self.regions.iter().position(same)?;
            vec![self.regions.remove(at)]
        };
        Some(gone.into_iter().filter_map(|it| it.mapping).collect())
    }

    /// Whether memory that was let go of is still mapped: there will be more room.
    pub(crate) fn is_leaving(&self) -> bool {
        let mapped = self.regions.iter().filter(|it| it.mapping.is_some());
        self.space.mappings() > mapped.count()
    }

    /// Lends all of `segments`, for data that go this way; `None` if one is not a multiple of
    /// `unit`, or has no memory for it.
    pub(crate) fn lend(
        &self,
        loans: &Rc<Loans>,
        segments: &[Segment],
        unit: u32,
        way: Way,
    ) -> Option<Lent> {
        let mut lent: Option<Lent> = None;
        for &Segment { address, bytes } in segments {
            if (address | u64::from(bytes)) % u64::from(unit) != 0 {
                return None;
            }
            let (mapping, offset, room) = self.place(address).ok()?;
            let bytes = bytes as usize;
            // Regions are made of whole pages, and a segment lies within one.
            if bytes > room || (way == Way::Read && !mapping.is_writable()) {
                return None;
            }
            match &mut lent {
                None => lent = loans.lend(mapping, offset, bytes),
                Some(lent) => lent.push(mapping, offset, bytes).then_some(())?,
            }
        }
        lent
    }

    /// Lets all of it go: the client has gone.
    pub(crate) fn clear(&mut self) {
        self.regions.clear();
    }

    /// Writes an entry of a completion queue, whose last word is seen after the others.
    pub(crate) fn post(&self, address: u64, words: [u32; 4]) -> Result<(), Unmapped> {
        // Regions are made of whole pages, and entries lie within one.
        let (mapping, offset, _) = self.place(address)?;
        let mut places = (offset..).step_by(4).zip(words);
        let stored = places.all(|(at, word)| mapping.store(at, word.to_le()));
        stored.then_some(()).ok_or(Unmapped)
    }

    /// Looks up `len` bytes that can be written and lie in one region.
    pub(crate) fn window(&self, address: u64, len: u64) -> Result<Window, Unmapped> {
        let (mapping, offset, room) = self.place(address)?;
        if room < len as usize || !mapping.is_writable() {
            return Err(Unmapped);
        }
        Ok(Window {
            mapping: mapping.clone(),
            offset,
        })
    }

    /// Copies guest memory to `to`, over as many regions as it lies in.
    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Unmapped> {
        let mut done = 0;
        while done < to.len() {
            let at = address.checked_add(done as u64).ok_or(Unmapped)?;
            let (mapping, offset, room) = self.place(at)?;
            let count = room.min(to.len() - done);
            if !mapping.read(offset, &mut to[done..done + count]) {
                return Err(Unmapped);
            }
            done += count;
        }
        Ok(())
    }

    /// Copies `from` to guest memory, over as many regions as it lies in.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let mut done = 0;
        while done < from.len() {
            let at = address.checked_add(done as u64).ok_or(Unmapped)?;
            let (mapping, offset, room) = self.place(at)?;
            let count = room.min(from.len() - done);
            if !mapping.write(offset, &from[done..done + count]) {
                return Err(Unmapped);
            }
            done += count;
        }
        Ok(())
    }

    /// Makes `bytes` of guest memory zero, over as many regions as they lie in.
    pub(crate) fn zero(&self, address: u64, bytes: usize) -> Result<(), Unmapped> {
        let mut done = 0;
        while done < bytes {
            let at = address.checked_add(done as u64).ok_or(Unmapped)?;
            let (mapping, offset, room) = self.place(at)?;
            let count = room.min(bytes - done);
            if !mapping.zero(offset, count) {
                return Err(Unmapped);
            }
            done += count;
        }
        Ok(())
    }

    /// Where `address` is: in which mapping, at which offset, with how many bytes up to its end.
    fn place(&self, address: u64) -> Result<(&Rc<Mapping>, usize, usize), Unmapped> {
        let at = self.first_behind(address).checked_sub(1).ok_or(Unmapped)?;
        let region = &self.regions[at];
        let offset = address - region.address;
        let mapping = region.mapping.as_ref().ok_or(Unmapped)?;
        if offset >= region.size {
            return Err(Unmapped);
        }
        Ok((mapping, offset as usize, mapping.len() - offset as usize))
    }

    fn first_behind(&self, address: u64) -> usize {
        self.regions
            .partition_point(|region| region.address <= address)
    }
}

impl Region {
    fn share(&self) -> SharedRegion {
        SharedRegion {
            address: self.address,
            size: self.size,
            mapping: self.mapping.as_ref().map(|mapping| mapping.share()),
        }
    }

    fn end(&self) -> u64 {
        self.address + self.size
    }
}

#[cfg(test)]
mod tests {
    use flashyard_runtime::shared_memory::memory_file;

    use super::*;

    impl GuestMemory {
        fn store(&self, address: u64, value: u32) -> Result<(), Unmapped> {
            let (mapping, offset, _) = self.place(address)?;
            let stored = mapping.store(offset, value.to_le());
            stored.then_some(()).ok_or(Unmapped)
        }

        fn load(&self, address: u64) -> Result<u32, Unmapped> {
            let (mapping, offset, _) = self.place(address)?;
            mapping.load(offset).map(u32::from_le).ok_or(Unmapped)
        }
    }

    fn map(address: u64, size: u64, offset: u64) -> DmaMap {
        DmaMap {
            flags: 3,
            offset,
            address,
            size,
        }
    }

    fn unmap(address: u64, size: u64, flags: u32) -> DmaUnmap {
        DmaUnmap {
            argsz: 24,
            flags,
            address,
            size,
        }
    }

    #[test]
    fn what_is_mapped_is_reached_over_the_borders_of_regions() {
        let file = memory_file(0x4000).expect("a memfd");
        let mut memory = GuestMemory::default();
        // Two neighbours, whose memory lies the other way round in the file.
        memory
            .map(&map(0x1_0000, 0x1000, 0x3000), Some(&file))
            .expect("mapped");
        memory
            .map(&map(0x1_1000, 0x1000, 0x0000), Some(&file))
            .expect("mapped");
        let bytes: Vec<u8> = (0..100).collect();
        memory.write(0x1_1000 - 50, &bytes).expect("both are there");
        let mut read = [0; 100];
        memory
            .read(0x1_1000 - 50, &mut read)
            .expect("both are there");
        assert_eq!(read[..], bytes);
        memory.zero(0x1_1000 - 20, 40).expect("both are there");
        memory
            .read(0x1_1000 - 50, &mut read)
            .expect("both are there");
        assert!(read[30..70].iter().all(|byte| *byte == 0));
        assert_eq!((&read[..30], &read[70..]), (&bytes[..30], &bytes[70..]));
        memory.store(0x1_1ffc, 7).expect("the last word");
        assert_eq!(memory.load(0x1_1ffc), Ok(7));
        memory.post(0x1_1ff0, [1, 2, 3, 4]).expect("the last entry");
        let mut entry = [0; 16];
        memory.read(0x1_1ff0, &mut entry).expect("it is there");
        assert_eq!(entry, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(memory.post(0x1_2000, [0; 4]), Err(Unmapped));
        for (address, len) in [(0x1_1fff, 2), (0xffff, 1), (0x1_2000, 1), (u64::MAX, 2)] {
            assert_eq!(
                memory.read(address, &mut read[..len]),
                Err(Unmapped),
                "{address:#x}"
            );
            assert_eq!(memory.write(address, &read[..len]), Err(Unmapped));
        }
        assert!(memory.unmap(&unmap(0x1_1000, 0x1000, 0)).is_some());
        assert_eq!(memory.read(0x1_1000 - 50, &mut read), Err(Unmapped));
        assert_eq!(memory.load(0x1_1ffc), Err(Unmapped));
    }

    #[test]
    fn what_cannot_be_a_region_is_refused() {
        let file = memory_file(0x4000).expect("a memfd");
        let mut memory = GuestMemory::default();
        memory
            .map(&map(0x4000, 0x2000, 0), Some(&file))
            .expect("mapped");
        for (region, error) in [
            (map(0x8000, 0, 0), MapError::Invalid),
            (map(0x8001, 0x1000, 0), MapError::Invalid),
            (map(0x8000, 0x1001, 0), MapError::Invalid),
            (map(u64::MAX - 0xfff, 0x2000, 0), MapError::Invalid),
            (map(0x8000, 0x8000, 0), MapError::Invalid),
            (map(0x5000, 0x1000, 0), MapError::Exists),
            (map(0x3000, 0x2000, 0), MapError::Exists),
            (map(0x3000, 0x4000, 0), MapError::Exists),
        ] {
            assert_eq!(memory.map(&region, Some(&file)), Err(error), "{region:?}");
        }
        memory
            .map(&map(0x3000, 0x1000, 0), None)
            .expect("without memory");
        assert_eq!(memory.load(0x3000), Err(Unmapped));
        for (address, size) in [(0x4000, 0x1000), (0x5000, 0x1000), (0, 0)] {
            assert!(memory.unmap(&unmap(address, size, 0)).is_none());
        }
        assert!(memory.unmap(&unmap(0, 0, UNMAP_ALL)).is_some());
        assert_eq!(memory.load(0x4000), Err(Unmapped));
    }

    #[test]
    fn addresses_of_this_process_are_bounded() {
        let file = memory_file(1 << 50).expect("a memfd without pages");
        let mut memory = GuestMemory::default();
        let too_large = map(0, MOST_BYTES + PAGE, 0);
        assert_eq!(memory.map(&too_large, Some(&file)), Err(MapError::TooMany));
        let half = MOST_BYTES / 2;
        for number in 0..2 {
            let fits = map(number * half, half, 0);
            memory.map(&fits, Some(&file)).expect("room");
        }
        let one_more = map(2 * half, PAGE, 0);
        assert_eq!(memory.map(&one_more, Some(&file)), Err(MapError::TooMany));
        memory.map(&one_more, None).expect("takes no addresses");
        let used = memory.unmap(&unmap(0, half, 0)).expect("it is mapped");
        let again = map(0, half, 0);
        let refused = memory.map(&again, Some(&file));
        assert_eq!(refused, Err(MapError::TooMany), "a device uses it");
        assert!(memory.is_leaving());
        drop(used);
        while memory.is_leaving() {
            std::thread::yield_now();
        }
        memory.map(&again, Some(&file)).expect("room again");
        assert!(!memory.is_leaving());
    }

    /// As many as there may be regions, of one page of which each is another mapping.
    #[test]
    fn mappings_of_this_process_are_bounded() {
        let file = memory_file(0x1000).expect("a memfd");
        let mut memory = GuestMemory::default();
        let (region, gone) = (map(0, 0x1000, 0), unmap(0, 0x1000, 0));
        let mut used = Vec::new();
        for _ in 0..MOST_REGIONS {
            memory.map(&region, Some(&file)).expect("room");
            used.extend(memory.unmap(&gone).expect("it is mapped"));
        }
        assert_eq!(memory.map(&region, Some(&file)), Err(MapError::TooMany));
    }

    #[test]
    fn regions_are_bounded() {
        let mut memory = GuestMemory::default();
        for number in 0..MOST_REGIONS as u64 {
            memory
                .map(&map(number << 12, 0x1000, 0), None)
                .expect("room");
        }
        let one_more = map(1 << 40, 0x1000, 0);
        assert_eq!(memory.map(&one_more, None), Err(MapError::TooMany));
    }
}
