//! The Admin queue: what becomes of each command.

use alloc::vec::Vec;

use core::net::IpAddr;

use flashyard_nvme::command::Fuse;
use flashyard_nvme::fabrics::{Property, PropertySize};
use flashyard_nvme::identify::IDENTIFY_LEN;
use flashyard_nvme::log::{LogId, StatisticsLog};
use flashyard_nvme::{AdminOpcode, CompletionQueueEntry, Status, SubmissionQueueEntry};
use flashyard_time::Time;

use super::properties::Effect;
use super::{
    CommandError, Controller, ControllerId, Counters, NamespaceFeatures, Room, Subsystem, Transfer,
    features,
};
use crate::discovery::Discovery;

/// What a controller may look at while it answers an Admin command.
#[derive(Clone, Copy, Debug)]
pub struct SubsystemView<'a> {
    /// Its subsystem.
    pub subsystem: &'a Subsystem,
    /// All controllers of the subsystem, ascending.
    pub controllers: &'a [ControllerId],
    /// What was counted for the subsystem.
    pub counters: &'a Counters,
    /// The features of its namespaces.
    pub features: &'a NamespaceFeatures,
    /// The discovery log, for discovery controllers.
    pub discovery: Option<DiscoveryView<'a>>,
    /// The log of I/O statistics, if the command asks for it ([`asks_statistics`]): the target
    /// gathers it before the command is answered.
    pub statistics: Result<&'a StatisticsLog, Status>,
}

/// The discovery log as one connection sees it.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryView<'a> {
    /// All that can be discovered.
    pub log: &'a Discovery,
    /// The address that the host has reached the target by.
    pub local: IpAddr,
}

/// Whether an Admin command asks for the log of I/O statistics, and of which namespace: 0 and
/// FFFFFFFFh are all that the controller sees.
pub fn asks_statistics(sqe: &SubmissionQueueEntry) -> Option<u32> {
    let asks =
        sqe.admin_opcode() == AdminOpcode::GET_LOG_PAGE && LogId(sqe.log_id()) == LogId::STATISTICS;
    asks.then(|| sqe.nsid())
}

/// How a command is completed, when nothing but a completion goes to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Status.
    pub status: Status,
    /// DW0, and DW1 for Property Get.
    pub value: u64,
}

impl Answer {
    /// Success, nothing more.
    pub const SUCCESS: Self = Self::of(Status::SUCCESS);

    /// A status, nothing more.
    pub const fn of(status: Status) -> Self {
        Self { status, value: 0 }
    }

    /// Success with DW0.
    pub const fn dw0(dw0: u32) -> Self {
        Self {
            status: Status::SUCCESS,
            value: dw0 as u64,
        }
    }

    /// The answer to Abort: whether the command was aborted.
    pub const fn to_abort(aborted: bool) -> Self {
        Self::dw0(!aborted as u32)
    }

    /// The completion of command `cid`.
    pub fn completion(self, cid: u16) -> CompletionQueueEntry {
        CompletionQueueEntry::new(cid, self.status).with_value(self.value)
    }
}

/// What becomes of an Admin command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminOutcome {
    /// It is completed.
    Complete(Answer),
    /// Data go to the host, then it is completed with success.
    Data {
        /// Exactly as long as the command's descriptor says.
        page: Vec<u8>,
        /// DW0 of the completion.
        dw0: u32,
    },
    /// An Asynchronous Event Request: it is completed by [`Controller::poll_event`].
    Held,
    /// Abort: the transport looks for the command and answers with [`Answer::to_abort`].
    Abort {
        /// Queue of the command.
        sqid: u16,
        /// Its identifier.
        cid: u16,
    },
    /// Abort of an Asynchronous Event Request: that one is completed with Command Abort Requested,
    /// then the Abort with [`Answer::to_abort`].
    AbortedEventRequest {
        /// Identifier of the request.
        cid: u16,
    },
}

impl Controller {
    /// The data that an Admin command brings: to be received before [`Self::admin`] is asked.
    pub fn admin_transfer(&self, sqe: &SubmissionQueueEntry) -> Transfer {
        let bytes = match sqe.admin_opcode() {
            AdminOpcode::SET_FEATURES if self.is_ready() => features::data_of_set(sqe.feature_id()),
            _ => 0,
        };
        if bytes == 0 {
            return Transfer::None;
        }
        Transfer::FromHost {
            least: bytes,
            most: self.transport.admin_bytes,
        }
    }

    /// Bytes that an Admin command has for the host, where its data are in pages, which do not say
    /// how long they are.
    pub fn admin_room(&self, sqe: &SubmissionQueueEntry) -> Room {
        match sqe.admin_opcode() {
            AdminOpcode::IDENTIFY => Ok(IDENTIFY_LEN as u32),
            AdminOpcode::GET_LOG_PAGE => {
                u32::try_from(sqe.log_bytes()).map_err(|_| Status::INVALID_FIELD.with_dnr())
            }
            AdminOpcode::GET_FEATURES => Ok(features::data_of_get(sqe.feature_id())),
            _ => Ok(0),
        }
    }

    /// Executes a command of the Admin queue that is not a fabrics command. `data` is what
    /// [`Self::admin_transfer`] asked for, `room` what the host has for data that go to it.
    pub fn admin(
        &mut self,
        now: Time,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        data: &[u8],
        room: Room,
    ) -> AdminOutcome {
        self.on_traffic(now);
        let done = self.execute(now, sqe, view, (data, room));
        done.unwrap_or_else(|status| {
            self.on_error(CommandError {
                sqid: 0,
                cid: sqe.cid(),
                opcode: sqe.opcode(),
                status,
                lba: 0,
                nsid: sqe.nsid(),
            });
            AdminOutcome::Complete(Answer::of(status))
        })
    }

    /// Reads a property.
    ///
    /// # Errors
    /// Invalid Field: it has another size.
    pub fn get_property(&self, property: Property, size: PropertySize) -> Result<u64, Status> {
        self.properties.get(property, size)
    }

    /// Sets a property. After [`Effect::Reset`] the front end aborts all commands but the one that
    /// asked for it and drops all I/O queues; only then it answers.
    ///
    /// # Errors
    /// Invalid Field: it has another size, cannot be set or not to this value.
    pub fn set_property(
        &mut self,
        now: Time,
        property: Property,
        size: PropertySize,
        value: u64,
    ) -> Result<Option<Effect>, Status> {
        let effect = self.properties.set(property, size, value)?;
        self.apply(effect, now);
        Ok(effect)
    }

    fn execute(
        &mut self,
        now: Time,
        sqe: &SubmissionQueueEntry,
        view: &SubsystemView<'_>,
        (data, room): (&[u8], Room),
    ) -> Result<AdminOutcome, Status> {
        if !self.is_ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr());
        }
        if sqe.fuse() != Fuse::Normal {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        match sqe.admin_opcode() {
            AdminOpcode::IDENTIFY => self.identify(sqe, view, room).map(without_dw0),
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(sqe, view, room).map(without_dw0),
            AdminOpcode::GET_FEATURES => self.get_features(now, sqe, view, room),
            AdminOpcode::SET_FEATURES => self
                .set_features(now, sqe, view, data)
                .map(AdminOutcome::Complete),
            AdminOpcode::ASYNC_EVENT_REQUEST => {
                self.events.request(sqe.cid()).map(|()| AdminOutcome::Held)
            }
            AdminOpcode::KEEP_ALIVE => Ok(AdminOutcome::Complete(Answer::SUCCESS)),
            AdminOpcode::ABORT => Ok(self.abort(sqe)),
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }

    fn abort(&mut self, sqe: &SubmissionQueueEntry) -> AdminOutcome {
        let (sqid, cid) = (sqe.abort_sqid(), sqe.abort_cid());
        if sqid == 0 && self.events.abort(cid) {
            AdminOutcome::AbortedEventRequest { cid }
        } else {
            AdminOutcome::Abort { sqid, cid }
        }
    }
}

fn without_dw0(page: Vec<u8>) -> AdminOutcome {
    AdminOutcome::Data { page, dw0: 0 }
}
