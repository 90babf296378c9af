//! Entering the kernel by a registered number of the ring instead of its descriptor, which spares a
//! look-up and two atomic counts in every call (`io_uring_register_ring_fd(3)`; the `io-uring`
//! crate forgets the number with each borrow of its submitter).

use std::io;
use std::os::fd::RawFd;

use flashyard_time::Duration;

const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;
const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;

/// The way into the kernel for one ring.
pub(super) struct Entrance {
    ring: RawFd,
    /// The ring's number among those this thread registered (at most 16).
    number: Option<u32>,
}

/// `struct io_uring_rsrc_update`
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// `struct io_uring_getevents_arg`
#[repr(C)]
struct EventsArgument {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_us: u32,
    timeout: u64,
}

/// `struct __kernel_timespec`
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

impl Entrance {
    /// For the ring with this descriptor, which the caller keeps open for as long. Without a free
    /// number the descriptor serves.
    pub(super) fn new(ring: RawFd) -> Self {
        let mut update = Update {
            offset: u32::MAX,
            reserved: 0,
            data: ring as u64,
        };
        let registered = register(ring, REGISTER_RING_FDS, &mut update) == 1;
        Self {
            ring,
            number: registered.then_some(update.offset),
        }
    }

    /// Submits `entries` entries and runs the kernel's deferred work.
    pub(super) fn enter(&self, entries: u32) -> io::Result<()> {
        self.call(entries, 0, ENTER_GETEVENTS, std::ptr::null(), 0)
    }

    /// The same, and waits for a completion, at most `timeout` if there is one. An error with
    /// `ETIME` when that has passed.
    pub(super) fn wait(&self, entries: u32, timeout: Option<Duration>) -> io::Result<()> {
        let timespec = timeout.map(|timeout| KernelTimespec {
            seconds: (timeout.as_ns() / 1_000_000_000).cast_signed(),
            nanoseconds: (timeout.as_ns() % 1_000_000_000).cast_signed(),
        });
        let argument = EventsArgument {
            sigmask: 0,
            sigmask_size: 0,
            min_wait_us: 0,
            timeout: timespec
                .as_ref()
                .map_or(0, |timespec| std::ptr::from_ref(timespec) as u64),
        };
        let (pointer, size) = (&raw const argument, size_of::<EventsArgument>());
        self.call(
            entries,
            1,
            ENTER_GETEVENTS | ENTER_EXT_ARG,
            pointer.cast(),
            size,
        )
    }

    fn call(
        &self,
        entries: u32,
        least: u32,
        flags: u32,
        argument: *const libc::c_void,
        size: usize,
    ) -> io::Result<()> {
        let (ring, flags) = match self.number {
            Some(number) => (number, flags | ENTER_REGISTERED_RING),
            None => (self.ring.cast_unsigned(), flags),
        };
        // SAFETY: `argument` is null or points to what the flags say, with everything it points to,
        // until the call returns. That what the entries point to stays valid is the promise of
        // those who pushed them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                ring,
                entries,
                least,
                flags,
                argument,
                size,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut update = Update {
                offset: number,
                reserved: 0,
                data: 0,
            };
            register(self.ring, UNREGISTER_RING_FDS, &mut update);
        }
    }
}

fn register(ring: RawFd, what: libc::c_uint, update: &mut Update) -> libc::c_long {
    // SAFETY: both requests read and write one `Update`, to which the pointer points.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            what,
            std::ptr::from_mut(update),
            1,
        )
    }
}
