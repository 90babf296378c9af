//! Which answers and endings a well-behaved host may get in a life, and which are findings.

use flashyard_host::{ConnectError, HostError};
use flashyard_nvme::Status;
use flashyard_nvme::fabrics::InvalidParameter;
use flashyard_time::Time;

use super::content::Ended;
use super::plan::Fault;
use super::site::{Site, Volume};

/// A command as it was given.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    pub site: &'a Site,
    pub volume: &'a Volume,
    /// As it is named in a finding.
    pub what: &'static str,
    pub at: Time,
    pub lba: u64,
    pub blocks: u64,
    /// The host has asked for it to be aborted, or may have.
    pub aborted: bool,
}

impl Given<'_> {
    /// Whether a failure may be; what it means for a write.
    pub fn judge(&self, status: Status) -> Ended {
        let (site, volume) = (self.site, self.volume);
        if status.is(Status::COMMAND_INTERRUPTED) {
            // By its own words nothing of it was done.
            return Ended::Nothing;
        }
        let changed = [
            Status::INVALID_NAMESPACE_OR_FORMAT,
            Status::NAMESPACE_NOT_READY,
            Status::NAMESPACE_WRITE_PROTECTED,
            Status::LBA_OUT_OF_RANGE,
        ];
        let is_one_of = |some: &[Status]| some.iter().any(|one| status.is(*one));
        let excused = (self.aborted
            && is_one_of(&[
                Status::ABORT_REQUESTED,
                Status::ABORTED_FAILED_FUSED,
                Status::ABORTED_MISSING_FUSED,
            ]))
            || (is_one_of(&changed) && volume.may_surprise(self.at))
            || (site.failed[volume.device].get() && status.code_type_bits() <= 2);
        if !excused {
            self.find(&format!("is answered {status}"));
        }
        Ended::Unknown
    }

    /// The same for what our host library makes of it.
    pub fn judge_error(&self, error: HostError) -> Ended {
        match error {
            HostError::Status(status) => return self.judge(status),
            HostError::Protocol(_) | HostError::Terminated { .. } | HostError::DataDigest => {
                self.find(&format!("ends the association: {error}"));
            }
            HostError::Timeout | HostError::Transport(_) if !self.site.plan.may_lose() => {
                self.find(&format!("fails without a reason: {error}"));
            }
            HostError::Timeout
            | HostError::Transport(_)
            | HostError::Closed
            | HostError::NoBuffer => {}
        }
        Ended::Unknown
    }

    /// Tells what is wrong with the command.
    pub fn find(&self, how: &str) {
        let Self {
            site,
            volume,
            what,
            lba,
            blocks,
            ..
        } = self;
        site.notes.find(format!(
            "{what} of {blocks} blocks at {lba} of volume {} (tenant {}) {how}",
            volume.nsid, volume.tenant
        ));
    }
}

/// Looks at why there is no association.
pub fn judge_connect(site: &Site, tenant: usize, since: Time, error: ConnectError) {
    let excused = match error {
        ConnectError::Host(
            HostError::Protocol(_) | HostError::Terminated { .. } | HostError::DataDigest,
        )
        | ConnectError::Unusable(_)
        | ConnectError::Option(_)
        | ConnectError::AuthenticationRequired
        | ConnectError::NotReady => false,
        // Its Admin queue is gone again when an I/O queue connects; its controller's identifier may
        // be that of another host's controller, if the target was restarted.
        ConnectError::InvalidParameter(InvalidParameter::CNTLID | InvalidParameter::HOSTNQN) => {
            site.plan.may_lose()
        }
        ConnectError::HostNotAllowed | ConnectError::InvalidParameter(_) => {
            site.may_be_refused(tenant, since)
        }
        // Its last association's writes have not returned, or hosts that break rules have all
        // places.
        ConnectError::Busy => site.plan.may_lose() || site.plan.has(Fault::Hostile),
        ConnectError::Host(HostError::Status(_)) => site.may_be_refused(tenant, since),
        ConnectError::Host(_) | ConnectError::Timeout => site.plan.may_lose(),
    };
    if !excused {
        site.notes
            .find(format!("a host of tenant {tenant} cannot connect: {error}"));
    }
}
