//! Memory of a guest and its NVMe driver: brings a controller up, makes queues, and gives it
//! commands with data by PRPs. Completions are taken when an interrupt says so.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::ControllerStatus;
use flashyard_nvme::identify::{Cns, IDENTIFY_LEN};
use flashyard_nvme::vfio_user::pci::{BAR0, CONFIG, MSIX};
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::shared_memory::{Mapping, Refused, full_fence, memory_file};
use flashyard_runtime::unix::EventCounter;
use flashyard_time::Duration;
use zerocopy::{FromBytes, IntoBytes};

use super::client::{ClientError, VfioClient};

/// Guest address at which the memory begins.
pub const RAM_BASE: u64 = 0x1_0000_0000;

pub(super) const PAGE: u64 = 4096;
const CAP: u64 = 0;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;
/// Enabled, with entries of 64 and 16 bytes.
const ENABLED: u32 = 0x46_0001;
const ADMIN_ENTRIES: u16 = 32;
/// Pages that lists of a command may have.
const LIST_PAGES: u64 = 2;
/// How long a controller may take to become ready.
const READY: Duration = Duration::from_secs(15);

/// What a guest is like.
#[derive(Clone, Copy, Debug)]
pub struct GuestOptions {
    /// Bytes of memory.
    pub ram: u64,
    /// I/O queues.
    pub queues: u16,
    /// Entries of each; fewer if the controller does not take so many.
    pub entries: u16,
    /// Bytes of a command's data at most.
    pub transfer: u32,
    /// Uses shadow doorbells.
    pub shadow: bool,
    /// Maps the doorbells, where the function lets it.
    pub mapped: bool,
    /// I/O queues interrupt.
    pub interrupts: bool,
    /// Does not wait for the reply when it rings, as QEMU does not. If the function has gone it is
    /// told so only by what it asks for next.
    pub posted: bool,
}

impl GuestOptions {
    /// Bytes of memory of one command: lists, and data with an offset of up to a page.
    fn stride(&self) -> u64 {
        LIST_PAGES * PAGE + u64::from(self.transfer).next_multiple_of(PAGE) + PAGE
    }

    /// Bytes of memory that queues and their data take.
    pub(super) fn needed(&self) -> u64 {
        let queue = |entries: u16| {
            let entries = u64::from(entries);
            let [submission, completion] =
                [64, 16].map(|entry| (entry * entries).next_multiple_of(PAGE));
            submission + completion + entries * self.stride()
        };
        queue(ADMIN_ENTRIES) + u64::from(self.queues) * queue(self.entries) + 2 * PAGE
    }
}

impl GuestOptions {
    /// A machine with little memory, of which many start quickly.
    pub const SMALL: Self = Self {
        ram: 8 << 20,
        queues: 2,
        entries: 16,
        transfer: 64 << 10,
        shadow: false,
        mapped: false,
        interrupts: true,
        posted: false,
    };
}

impl Default for GuestOptions {
    fn default() -> Self {
        Self {
            ram: 64 << 20,
            queues: 2,
            entries: 64,
            transfer: 256 << 10,
            shadow: false,
            mapped: false,
            interrupts: true,
            posted: false,
        }
    }
}

/// Why something has failed.
#[derive(Debug)]
pub enum GuestError {
    /// The socket, or what is at its other end.
    Client(ClientError),
    /// The memory of the guest cannot be made.
    Memory,
    /// CSTS says that the controller has failed, or it is not ready in time.
    NotReady(ControllerStatus),
    /// A command has failed.
    Status(Status),
    /// There is no room in a queue for a command, or no memory for its data.
    Full,
}

impl From<ClientError> for GuestError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<std::io::Error> for GuestError {
    fn from(error: std::io::Error) -> Self {
        Self::Client(error.into())
    }
}

impl From<Refused> for GuestError {
    fn from(_: Refused) -> Self {
        Self::Memory
    }
}

/// A pair of queues as the driver sees it.
struct Pair {
    submission: u64,
    completion: u64,
    entries: u16,
    tail: u16,
    head: u16,
    phase: bool,
    /// Places that no command has; the place is the command's identifier.
    free: Vec<u16>,
    /// Guest address of the data and lists of place 0; those of the others follow.
    data: u64,
    interrupt: EventCounter,
    done: VecDeque<CompletionQueueEntry>,
}

/// Where the parts of a queue are: guest addresses.
pub(super) struct Places {
    pub(super) entries: u16,
    pub(super) submission: u64,
    pub(super) completion: u64,
    /// The lists of place 0, and behind them its data.
    pub(super) data: u64,
    /// From one place to the next.
    pub(super) stride: u64,
}

/// Shadow doorbells and event indices.
#[derive(Clone, Copy)]
struct Shadow {
    doorbells: u64,
    event_indices: u64,
}

/// A guest with a controller that is enabled.
pub struct Guest {
    rt: Rt,
    /// For what the driver does not do.
    pub client: VfioClient,
    ram: Rc<Mapping>,
    file: OwnedFd,
    options: GuestOptions,
    /// Where memory that is not taken begins.
    free: u64,
    pairs: Vec<Pair>,
    shadow: Option<Shadow>,
    /// The page of BAR 0 with the doorbells.
    mapped: Option<Mapping>,
}

impl Guest {
    /// Bytes of a place's lists.
    pub(super) const LISTS: u64 = LIST_PAGES * PAGE;

    /// Connects to a function, enables its controller and makes its queues.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn start(rt: &Rt, path: &Path, options: GuestOptions) -> Result<Self, GuestError> {
        let mut client = VfioClient::connect(rt, path).await?;
        let longest = (client.read(BAR0, CAP, 8).await? as u16).saturating_add(1);
        let options = GuestOptions {
            entries: options.entries.min(longest),
            ..options
        };
        let file = memory_file(options.ram)?;
        let ram = Mapping::new(file.as_fd(), 0, options.ram, true)?;
        let mut guest = Self {
            rt: rt.clone(),
            client,
            ram: Rc::new(ram),
            file,
            options,
            free: RAM_BASE,
            pairs: Vec::new(),
            shadow: None,
            mapped: None,
        };
        guest.map_memory().await?;
        if options.mapped {
            guest.map_doorbells().await?;
        }
        // Memory space and bus master; MSI-X.
        guest.client.write(CONFIG, 4, &[0x06, 0x04]).await?;
        guest.client.write(CONFIG, 0x52, &[0x00, 0x80]).await?;
        guest.enable().await?;
        Ok(guest)
    }

    /// The memory, which begins at [`RAM_BASE`]: for who maps it in another way.
    pub fn memory(&self) -> &OwnedFd {
        &self.file
    }

    /// Gives the function the memory, in two regions.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn map_memory(&mut self) -> Result<(), GuestError> {
        for [offset, size] in self.regions() {
            let place = (offset, RAM_BASE + offset, size);
            self.client.map(&self.file, place).await?;
        }
        Ok(())
    }

    async fn map_doorbells(&mut self) -> Result<(), GuestError> {
        let (info, file) = self.client.region_file(BAR0).await?;
        let file = file.ok_or(GuestError::Memory)?;
        let area = info.areas.first().ok_or(GuestError::Memory)?;
        let at = info.offset + area.offset;
        if area.offset != DOORBELLS {
            return Err(GuestError::Memory);
        }
        self.mapped = Some(Mapping::new(file.as_fd(), at, area.size, true)?);
        Ok(())
    }

    /// Takes the memory back.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn unmap_memory(&mut self) -> Result<(), GuestError> {
        for [offset, size] in self.regions() {
            self.client.unmap(RAM_BASE + offset, size).await?;
        }
        Ok(())
    }

    /// Offsets and sizes; the border is in the middle of the first queues' data.
    fn regions(&self) -> [[u64; 2]; 2] {
        let first = 1 << 20;
        [[0, first], [first, self.options.ram - first]]
    }

    /// Enables the controller and makes the queues. What was there before is forgotten.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn enable(&mut self) -> Result<(), GuestError> {
        self.free = RAM_BASE;
        self.pairs.clear();
        self.shadow = None;
        let admin = self.pair(ADMIN_ENTRIES, 0).await?;
        let size = u32::from(ADMIN_ENTRIES - 1);
        self.set(AQA, size << 16 | size).await?;
        for (register, address) in [(ASQ, admin.submission), (ACQ, admin.completion)] {
            self.client
                .write(BAR0, register, &address.to_le_bytes())
                .await?;
        }
        self.pairs.push(admin);
        self.set(CC, ENABLED).await?;
        self.ready(true).await?;
        let queues = u32::from(self.options.queues - 1);
        let asked = SubmissionQueueEntry::set_features(7, 0, queues << 16 | queues);
        self.admin(asked).await?;
        for qid in 1..=self.options.queues {
            self.create(qid).await?;
        }
        if self.options.shadow {
            self.use_shadow().await?;
        }
        Ok(())
    }

    async fn create(&mut self, qid: u16) -> Result<(), GuestError> {
        let entries = self.options.entries;
        let pair = self.pair(entries, qid).await?;
        let (submission, completion) = (pair.submission, pair.completion);
        let vector = self.options.interrupts.then_some(qid);
        let cq = SubmissionQueueEntry::create_io_cq(qid, entries, completion, vector);
        self.admin(cq).await?;
        let sq = SubmissionQueueEntry::create_io_sq(qid, entries, submission, qid);
        self.admin(sq).await?;
        self.pairs.push(pair);
        Ok(())
    }

    async fn use_shadow(&mut self) -> Result<(), GuestError> {
        let shadow = Shadow {
            doorbells: self.allocate(PAGE)?,
            event_indices: self.allocate(PAGE)?,
        };
        let (doorbells, event_indices) = (shadow.doorbells, shadow.event_indices);
        let set = SubmissionQueueEntry::doorbell_buffer_config(doorbells, event_indices);
        self.admin(set).await?;
        self.shadow = Some(shadow);
        Ok(())
    }

    /// Disables the controller, and waits until it says that it is.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn disable(&mut self) -> Result<(), GuestError> {
        self.set(CC, ENABLED & !1).await?;
        self.ready(false).await
    }

    async fn ready(&mut self, wanted: bool) -> Result<(), GuestError> {
        let deadline = self.rt.now() + READY;
        loop {
            let status = self.status().await?;
            if status.rdy == wanted && !status.cfs {
                return Ok(());
            }
            if status.cfs || self.rt.now() >= deadline {
                return Err(GuestError::NotReady(status));
            }
            self.rt.sleep(Duration::from_ms(1)).await;
        }
    }

    /// CSTS.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn status(&mut self) -> Result<ControllerStatus, GuestError> {
        let bits = self.client.read(BAR0, CSTS, 4).await?;
        Ok(ControllerStatus::from_bits(bits as u32))
    }

    async fn set(&mut self, register: u64, value: u32) -> Result<(), GuestError> {
        let value = value.to_le_bytes();
        Ok(self.client.write(BAR0, register, &value).await?)
    }

    /// Memory that the driver keeps until the controller is enabled anew, zeroed.
    fn allocate(&mut self, bytes: u64) -> Result<u64, GuestError> {
        let at = self.free;
        let bytes = bytes.next_multiple_of(PAGE);
        if at + bytes > RAM_BASE + self.options.ram {
            return Err(GuestError::Memory);
        }
        self.free += bytes;
        let zeroes = vec![0; bytes as usize];
        self.store(at, &zeroes)?;
        Ok(at)
    }

    async fn pair(&mut self, entries: u16, vector: u16) -> Result<Pair, GuestError> {
        let interrupt = EventCounter::new(&self.rt)?;
        if vector == 0 || self.options.interrupts {
            let number = (MSIX, u32::from(vector));
            self.client.set_eventfd(number, interrupt.as_fd()).await?;
        }
        let submission = self.allocate(u64::from(entries) * 64)?;
        let completion = self.allocate(u64::from(entries) * 16)?;
        let data = self.allocate(self.options.stride() * u64::from(entries))?;
        Ok(Pair {
            submission,
            completion,
            entries,
            tail: 0,
            head: 0,
            phase: true,
            // One place stays empty, or a full queue would look like an empty one.
            free: (0..entries - 1).rev().collect(),
            data,
            interrupt,
            done: VecDeque::new(),
        })
    }

    /// Its memory.
    pub(super) fn ram(&self) -> &Rc<Mapping> {
        &self.ram
    }

    /// Where the parts of a queue are.
    pub(super) fn places(&self, qid: u16) -> Places {
        let pair = &self.pairs[usize::from(qid)];
        Places {
            entries: pair.entries,
            submission: pair.submission,
            completion: pair.completion,
            data: pair.data,
            stride: self.options.stride(),
        }
    }

    /// Guest address of the data of command `cid` of a queue, when they begin `offset` bytes within
    /// their first page.
    pub fn data(&self, qid: u16, cid: u16, offset: u64) -> u64 {
        let pair = &self.pairs[usize::from(qid)];
        pair.data + self.options.stride() * u64::from(cid) + LIST_PAGES * PAGE + offset
    }

    /// Copies bytes out of the guest's memory.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn load(&self, address: u64, to: &mut [u8]) -> Result<(), GuestError> {
        let at = address.wrapping_sub(RAM_BASE) as usize;
        let read = self.ram.read(at, to);
        read.then_some(()).ok_or(GuestError::Memory)
    }

    /// Copies bytes into the guest's memory.
    ///
    /// # Errors
    /// There is no such memory.
    pub fn store(&self, address: u64, from: &[u8]) -> Result<(), GuestError> {
        let at = address.wrapping_sub(RAM_BASE) as usize;
        let written = self.ram.write(at, from);
        written.then_some(()).ok_or(GuestError::Memory)
    }

    /// PRP1 and PRP2 for `bytes` at `address`, with the lists of command `cid`.
    fn prps(&self, qid: u16, cid: u16, address: u64, bytes: u32) -> Result<[u64; 2], GuestError> {
        let first = PAGE - address % PAGE;
        let rest = u64::from(bytes).saturating_sub(first);
        let second = address - address % PAGE + PAGE;
        if rest <= PAGE {
            return Ok([address, if rest == 0 { 0 } else { second }]);
        }
        let list = self.data(qid, cid, 0) - LIST_PAGES * PAGE;
        let pages = rest.div_ceil(PAGE);
        for page in 0..pages {
            // The list begins in the last slot but one of its page when it is short, so that short
            // ones, too, are chained.
            self.store(
                slot(list, page, pages),
                &(second + page * PAGE).to_le_bytes(),
            )?;
        }
        if pages > 2 {
            self.store(list + PAGE - 8, &(list + PAGE).to_le_bytes())?;
        }
        Ok([address, list + PAGE - 16])
    }

    /// Takes an identifier for a command of a queue.
    ///
    /// # Errors
    /// Full.
    pub fn take_place(&mut self, qid: u16) -> Result<u16, GuestError> {
        let pair = &mut self.pairs[usize::from(qid)];
        pair.free.pop().ok_or(GuestError::Full)
    }

    /// Puts a command, whose identifier is one that was taken, into its queue. It is not seen
    /// before [`Self::ring`].
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn put(&mut self, qid: u16, entry: &SubmissionQueueEntry) -> Result<(), GuestError> {
        let pair = &self.pairs[usize::from(qid)];
        let at = pair.submission + u64::from(pair.tail) * 64;
        // Builders make commands of fabrics, whose data are described by SGLs.
        let entry = entry.with_prps(entry.prp1(), entry.prp2());
        self.store(at, entry.as_bytes())?;
        let pair = &mut self.pairs[usize::from(qid)];
        pair.tail = (pair.tail + 1) % pair.entries;
        Ok(())
    }

    /// Puts a read or write of `bytes` at `offset` within a page into its queue.
    ///
    /// # Errors
    /// Full, or there is no memory.
    pub fn put_io(
        &mut self,
        qid: u16,
        (entry, cid): (SubmissionQueueEntry, u16),
        (offset, bytes): (u64, u32),
    ) -> Result<(), GuestError> {
        let address = self.data(qid, cid, offset);
        let [prp1, prp2] = self.prps(qid, cid, address, bytes)?;
        self.put(qid, &entry.with_cid(cid).with_prps(prp1, prp2))
    }

    /// Tells the function of all commands that were put into a queue.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn ring(&mut self, qid: u16) -> Result<(), GuestError> {
        let tail = self.pairs[usize::from(qid)].tail;
        self.doorbell(u64::from(qid) * 2, tail, qid > 0).await
    }

    /// Rings doorbell `index`; one of an I/O queue by its shadow, if that is used.
    pub(super) async fn doorbell(
        &mut self,
        index: u64,
        value: u16,
        io: bool,
    ) -> Result<(), GuestError> {
        if let Some(shadow) = self.shadow.filter(|_| io) {
            let place = |page: u64| (page + index * 4 - RAM_BASE) as usize;
            let old = self.ram.load(place(shadow.doorbells)).unwrap_or(0) as u16;
            let stored = self.ram.store(place(shadow.doorbells), value.into());
            full_fence();
            let event = self.ram.load(place(shadow.event_indices)).unwrap_or(0) as u16;
            let passed = value.wrapping_sub(event).wrapping_sub(1);
            if stored && passed >= value.wrapping_sub(old) {
                return Ok(());
            }
        }
        let value = u32::from(value);
        if let Some(page) = &self.mapped {
            let stored = page.store(index as usize * 4, value);
            return stored.then_some(()).ok_or(GuestError::Memory);
        }
        let (at, value) = (DOORBELLS + index * 4, value.to_le_bytes());
        let rung = match self.options.posted {
            true => self.client.post(BAR0, at, &value).await,
            false => self.client.write(BAR0, at, &value).await,
        };
        Ok(rung?)
    }

    /// Waits for the next completion of a queue.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn completion(&mut self, qid: u16) -> Result<CompletionQueueEntry, GuestError> {
        loop {
            if let Some(entry) = self.pairs[usize::from(qid)].done.pop_front() {
                return Ok(entry);
            }
            if !self.reap(qid).await? {
                self.pairs[usize::from(qid)].interrupt.wait().await?;
            }
        }
    }

    /// Takes all completions that are there; whether there were any.
    async fn reap(&mut self, qid: u16) -> Result<bool, GuestError> {
        let before = self.pairs[usize::from(qid)].head;
        loop {
            let pair = &self.pairs[usize::from(qid)];
            let at = pair.completion + u64::from(pair.head) * 16;
            let last = self.ram.load((at + 12 - RAM_BASE) as usize);
            if last.is_none_or(|last| (last >> 16 & 1 == 1) != pair.phase) {
                break;
            }
            let mut bytes = [0; 16];
            self.load(at, &mut bytes)?;
            let entry = CompletionQueueEntry::read_from_bytes(&bytes);
            let entry = entry.map_err(|_| GuestError::Memory)?;
            let pair = &mut self.pairs[usize::from(qid)];
            pair.head = (pair.head + 1) % pair.entries;
            pair.phase ^= pair.head == 0;
            pair.free.push(entry.cid());
            pair.done.push_back(entry);
        }
        let head = self.pairs[usize::from(qid)].head;
        if head == before {
            return Ok(false);
        }
        self.doorbell(u64::from(qid) * 2 + 1, head, qid > 0).await?;
        Ok(true)
    }

    /// Executes an Admin command without data.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn admin(
        &mut self,
        entry: SubmissionQueueEntry,
    ) -> Result<CompletionQueueEntry, GuestError> {
        let cid = self.take_place(0)?;
        self.put(0, &entry.with_cid(cid))?;
        self.ring(0).await?;
        checked(self.completion(0).await?)
    }

    /// Identify: the page.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn identify(
        &mut self,
        cns: Cns,
        nsid: u32,
    ) -> Result<[u8; IDENTIFY_LEN], GuestError> {
        let sgl = Sgl::Transport { length: 0 };
        let cid = self.take_place(0)?;
        let address = self.data(0, cid, 0);
        let entry = SubmissionQueueEntry::identify(cns.0, nsid, 0, 0, sgl);
        self.put(0, &entry.with_cid(cid).with_prps(address, 0))?;
        self.ring(0).await?;
        checked(self.completion(0).await?)?;
        let mut page = [0; IDENTIFY_LEN];
        self.load(address, &mut page)?;
        Ok(page)
    }

    /// Writes blocks, with data that begin `offset` bytes within a page.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn write(
        &mut self,
        (qid, nsid): (u16, u32),
        range: LbaRange,
        (offset, data): (u64, &[u8]),
    ) -> Result<(), GuestError> {
        let cid = self.take_place(qid)?;
        self.store(self.data(qid, cid, offset), data)?;
        let entry = SubmissionQueueEntry::write(nsid, range, Sgl::Transport { length: 0 });
        self.put_io(qid, (entry, cid), (offset, data.len() as u32))?;
        self.ring(qid).await?;
        checked(self.completion(qid).await?).map(drop)
    }

    /// Reads blocks to memory that begins `offset` bytes within a page.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub async fn read(
        &mut self,
        (qid, nsid): (u16, u32),
        range: LbaRange,
        (offset, to): (u64, &mut [u8]),
    ) -> Result<(), GuestError> {
        let cid = self.take_place(qid)?;
        let entry = SubmissionQueueEntry::read(nsid, range, Sgl::Transport { length: 0 });
        self.put_io(qid, (entry, cid), (offset, to.len() as u32))?;
        self.ring(qid).await?;
        checked(self.completion(qid).await?)?;
        self.load(self.data(qid, cid, offset), to)
    }
}

/// The completion, if it is one of success.
fn checked(entry: CompletionQueueEntry) -> Result<CompletionQueueEntry, GuestError> {
    if entry.status().is_success() {
        Ok(entry)
    } else {
        Err(GuestError::Status(entry.status()))
    }
}

/// Where entry `page` of a list of so many pages is: one before the link, the rest in the page
/// behind it.
fn slot(list: u64, page: u64, pages: u64) -> u64 {
    match page {
        0 => list + PAGE - 16,
        1 if pages == 2 => list + PAGE - 8,
        _ => list + PAGE + (page - 1) * 8,
    }
}
