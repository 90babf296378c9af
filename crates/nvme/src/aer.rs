//! Asynchronous events (Base Specification, Asynchronous Event Request command).

/// What an Asynchronous Event Request is completed with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsyncEvent {
    /// Event Type (bits 2:0).
    pub event_type: EventType,
    /// Event Information (bits 15:8).
    pub info: u8,
    /// Log Page Identifier (bits 23:16): reading it without RAE clears the event.
    pub log_id: u8,
}

/// Asynchronous Event Type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EventType(pub u8);

impl EventType {
    /// Error Status.
    pub const ERROR: Self = Self(0);
    /// SMART / Health Status.
    pub const SMART: Self = Self(1);
    /// Notice.
    pub const NOTICE: Self = Self(2);
    /// I/O Command specific status.
    pub const IO: Self = Self(6);
    /// Vendor Specific.
    pub const VENDOR: Self = Self(7);
}

impl AsyncEvent {
    /// A doorbell of a queue that does not exist was written; log 01h.
    pub const INVALID_DOORBELL: Self = Self::error(0);
    /// A doorbell was written with a value that its queue does not have; log 01h.
    pub const INVALID_DOORBELL_VALUE: Self = Self::error(1);
    /// A namespace was added, removed or changed its attributes; log 04h says which.
    pub const NAMESPACE_CHANGED: Self = Self::notice(0x00, 0x04);
    /// Asymmetric Namespace Access changed; log 0Ch.
    pub const ANA_CHANGED: Self = Self::notice(0x03, 0x0c);
    /// The discovery log changed; log 70h.
    pub const DISCOVERY_CHANGED: Self = Self::notice(0xf0, 0x70);
    /// Available spare is below its threshold; log 02h.
    pub const SPARE_LOW: Self = Self {
        event_type: EventType::SMART,
        info: 2,
        log_id: 2,
    };
    /// Temperature crossed a threshold; log 02h.
    pub const TEMPERATURE: Self = Self {
        event_type: EventType::SMART,
        info: 1,
        log_id: 2,
    };
    /// The reliability is degraded; log 02h.
    pub const RELIABILITY_DEGRADED: Self = Self {
        event_type: EventType::SMART,
        info: 0,
        log_id: 2,
    };
    /// The reservation notification log has entries; log 80h.
    pub const RESERVATION_LOG: Self = Self {
        event_type: EventType::IO,
        info: 0,
        log_id: 0x80,
    };

    const fn error(info: u8) -> Self {
        Self {
            event_type: EventType::ERROR,
            info,
            log_id: 1,
        }
    }

    const fn notice(info: u8, log_id: u8) -> Self {
        Self {
            event_type: EventType::NOTICE,
            info,
            log_id,
        }
    }

    /// DW0 of the completion.
    pub const fn dw0(self) -> u32 {
        self.event_type.0 as u32 & 7 | (self.info as u32) << 8 | (self.log_id as u32) << 16
    }

    /// Reads DW0 of a completion.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self {
            event_type: EventType(dw0 as u8 & 7),
            info: (dw0 >> 8) as u8,
            log_id: (dw0 >> 16) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dw0_both_ways() {
        for (event, dw0) in [
            (AsyncEvent::NAMESPACE_CHANGED, 0x0004_0002),
            (AsyncEvent::INVALID_DOORBELL, 0x0001_0000),
            (AsyncEvent::INVALID_DOORBELL_VALUE, 0x0001_0100),
            (AsyncEvent::ANA_CHANGED, 0x000c_0302),
            (AsyncEvent::DISCOVERY_CHANGED, 0x0070_f002),
            (AsyncEvent::SPARE_LOW, 0x0002_0201),
            (AsyncEvent::RESERVATION_LOG, 0x0080_0006),
        ] {
            assert_eq!(event.dw0(), dw0);
            assert_eq!(AsyncEvent::from_dw0(dw0), event);
            assert_eq!(
                AsyncEvent::from_dw0(dw0 | 0xff00_00f8),
                event,
                "reserved bits do not matter"
            );
        }
    }
}
