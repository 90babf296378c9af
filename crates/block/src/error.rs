//! Why an I/O failed.

/// Why an I/O failed, in the terms an NVMe host understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The range is not on the device (LBA Out of Range).
    OutOfRange,
    /// The medium could not give the data back (Unrecovered Read Error).
    Read,
    /// The medium could not take the data (Write Fault).
    Write,
    /// The data is there but is not what was written (End-to-end Guard Check Error).
    Integrity,
    /// No room behind a thin device (Capacity Exceeded).
    NoSpace,
    /// Writes are not allowed (Namespace is Write Protected).
    WriteProtected,
    /// Withdrawn by an abort, a reset or the end of the association (Command Aborted).
    Aborted,
    /// The data compared was different (Compare Failure).
    Miscompare,
    /// Not supported by this device (Invalid Command Opcode).
    Unsupported,
    /// The device is not there now and may come back (Namespace Not Ready, retry).
    NotReady,
    /// Memory or places have run out for the moment (Command Interrupted, retry later).
    Busy,
    /// Something inside failed; the request itself may be good (Internal Error, retry).
    Internal,
}
