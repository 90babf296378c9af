//! Checks of Connect: which queue of which controller a connection becomes (Base Specification,
//! section 6.3).

use flashyard_nvme::fabrics::{Connect, ConnectData, InvalidParameter};
use flashyard_nvme::{CompletionQueueEntry, Nqn, Status, SubmissionQueueEntry};

use super::limits::ADMIN_QUEUE_DEPTH;
use super::{Controller, HostId, Subsystem};

/// A Connect whose form is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// The command.
    pub command: Connect,
    /// Its data.
    pub data: ConnectData,
    /// No host has sent it: it stands for a function that the administrator has given to the
    /// tenant, which need not be among the hosts that may connect.
    pub of_function: bool,
}

/// A queue that a Connect makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedQueue {
    /// Queue Identifier; 0 is the Admin queue.
    pub qid: u16,
    /// Entries of the queue.
    pub entries: u16,
    /// SQHD of completions is reserved (FFFFh in the answer to Connect).
    pub flow_control_disabled: bool,
    /// Its priority class, 0 urgent to 3 low, if weighted round robin was selected.
    pub priority: Option<u8>,
}

/// Why a Connect is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectError {
    /// Status of the completion.
    pub status: Status,
    /// DW0 of the completion: which parameter is invalid.
    pub dw0: u32,
}

impl ConnectError {
    /// Too many Connects or controllers, or writes of the host's last association are on their way:
    /// try again.
    pub const BUSY: Self = Self::of(Status::CONNECT_CONTROLLER_BUSY);

    /// A status, nothing more.
    pub const fn of(status: Status) -> Self {
        Self { status, dw0: 0 }
    }

    /// The completion that refuses the Connect.
    pub fn completion(self, cid: u16) -> CompletionQueueEntry {
        CompletionQueueEntry::new(cid, self.status).with_dw0(self.dw0)
    }
}

impl From<InvalidParameter> for ConnectError {
    fn from(parameter: InvalidParameter) -> Self {
        Self {
            status: Status::CONNECT_INVALID_PARAMETERS.with_dnr(),
            dw0: parameter.dw0(),
        }
    }
}

impl ConnectRequest {
    /// Reads a Connect with its data, of which those after the first 1,024 bytes are ignored.
    ///
    /// # Errors
    /// The answer.
    pub fn parse(sqe: &SubmissionQueueEntry, data: &[u8]) -> Result<Self, ConnectError> {
        let command = Connect::parse(sqe);
        if command.recfmt != 0 {
            let status = Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr();
            return Err(ConnectError::of(status));
        }
        let data = data
            .first_chunk()
            .ok_or(ConnectError::of(Status::DATA_SGL_LENGTH_INVALID.with_dnr()))?;
        Ok(Self {
            command,
            data: ConnectData::decode(data)?,
            of_function: false,
        })
    }

    /// Whether it is for the Admin queue and so makes a controller.
    pub fn is_admin(&self) -> bool {
        self.command.qid == 0
    }

    /// The subsystem that the host wants.
    pub fn subsystem(&self) -> &Nqn {
        &self.data.subnqn
    }

    /// Who asks.
    pub fn host(&self) -> HostId {
        HostId {
            nqn: self.data.hostnqn,
            id: self.data.hostid,
        }
    }

    /// Checks a Connect of the Admin queue against the subsystem of the name asked for, if there is
    /// one.
    ///
    /// # Errors
    /// The answer.
    pub fn check_admin(
        &self,
        subsystem: Option<&Subsystem>,
    ) -> Result<AcceptedQueue, ConnectError> {
        self.check_host(subsystem)?;
        if self.data.cntlid != ConnectData::DYNAMIC {
            return Err(InvalidParameter::CNTLID.into());
        }
        self.queue(ADMIN_QUEUE_DEPTH)
    }

    /// Checks a Connect of an I/O queue against the subsystem of the name asked for and the
    /// controller of the identifier asked for, if there are such.
    ///
    /// # Errors
    /// The answer.
    pub fn check_io(
        &self,
        subsystem: Option<&Subsystem>,
        controller: Option<&Controller>,
    ) -> Result<AcceptedQueue, ConnectError> {
        self.check_host(subsystem)?;
        let controller = controller.ok_or(InvalidParameter::CNTLID)?;
        if controller.host().nqn != self.data.hostnqn {
            return Err(InvalidParameter::HOSTNQN.into());
        }
        if controller.host().id != self.data.hostid {
            return Err(InvalidParameter::HOSTID.into());
        }
        if self.command.qid > controller.granted_queues() {
            return Err(InvalidParameter::QID.into());
        }
        if !controller.takes_io_queues() || controller.has_queue(self.command.qid) {
            let status = Status::COMMAND_SEQUENCE_ERROR.with_dnr();
            return Err(ConnectError::of(status));
        }
        let priority = self.command.cattr & Connect::CATTR_PRIORITY;
        Ok(AcceptedQueue {
            priority: controller.is_weighted().then_some(priority),
            ..self.queue(controller.limits().queue_depth)?
        })
    }

    /// A host that may not connect is answered as for a name that does not exist: otherwise
    /// anybody could find out who the tenants are. Connect Invalid Parameters it is, since a name
    /// that nobody has must be answered so, while the answer to the host has a choice. Both answers
    /// come with "do not retry": a Linux host gives up after either.
    fn check_host(&self, subsystem: Option<&Subsystem>) -> Result<(), ConnectError> {
        subsystem
            .filter(|subsystem| self.of_function || subsystem.hosts.allows(&self.data.hostnqn))
            .ok_or(InvalidParameter::SUBNQN)?;
        // Tools that only ask for the discovery log may come without a Host Identifier.
        if self.data.hostid == [0; 16] && !self.data.subnqn.is_discovery() {
            return Err(InvalidParameter::HOSTID.into());
        }
        Ok(())
    }

    fn queue(&self, depth: u16) -> Result<AcceptedQueue, ConnectError> {
        let sqsize = self.command.sqsize;
        if sqsize == 0 || sqsize >= depth {
            return Err(InvalidParameter::SQSIZE.into());
        }
        Ok(AcceptedQueue {
            qid: self.command.qid,
            entries: sqsize + 1,
            flow_control_disabled: self.command.sq_flow_control_disabled(),
            priority: None,
        })
    }
}

#[cfg(test)]
mod tests;
