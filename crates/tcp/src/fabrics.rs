//! Fabrics commands of a connected Admin queue, and what this transport can do.

use flashyard_controller::{Answer, Controller, ControllerLimits, Effect, TransportCapabilities};
use flashyard_nvme::command::FabricsType;
use flashyard_nvme::fabrics::Property;
use flashyard_nvme::identify::IdentifyController;
use flashyard_nvme::{Status, SubmissionQueueEntry};
use flashyard_time::Time;

/// Bytes of data in the capsule of a command on the Admin queue, and of every fabrics command: what
/// the NVMe/TCP Transport Specification demands, whatever IOCCSZ says.
pub(crate) const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

const INVALID: Status = Status::INVALID_FIELD.with_dnr();

/// What a controller of these bounds reports of its transport.
pub(crate) fn capabilities(limits: &ControllerLimits) -> TransportCapabilities {
    TransportCapabilities {
        sgls: IdentifyController::SGLS_SUPPORTED
            | IdentifyController::SGLS_OFFSET
            | IdentifyController::SGLS_TRANSPORT,
        ioccsz: (64 + limits.in_capsule_bytes) / 16,
        iorcsz: 1,
        icdoff: 0,
        msdbd: 1,
        admin_bytes: ADMIN_IN_CAPSULE_BYTES,
        pcie: None,
    }
}

/// Executes a fabrics command. After [`Effect::Reset`] all commands but this one are aborted and
/// all I/O queues dropped before it is answered.
pub(crate) fn execute(
    controller: &mut Controller,
    now: Time,
    sqe: &SubmissionQueueEntry,
) -> (Answer, Option<Effect>) {
    controller.on_traffic(now);
    let result = match sqe.fabrics_type() {
        FabricsType::PROPERTY_GET => get(controller, sqe).map(|value| (value, None)),
        FabricsType::PROPERTY_SET => set(controller, now, sqe).map(|effect| (0, effect)),
        // The queue is connected already.
        FabricsType::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
        _ => Err(INVALID),
    };
    match result {
        Ok((value, effect)) => {
            let status = Status::SUCCESS;
            (Answer { status, value }, effect)
        }
        Err(status) => (Answer::of(status), None),
    }
}

fn get(controller: &Controller, sqe: &SubmissionQueueEntry) -> Result<u64, Status> {
    controller.get_property(property(sqe)?, sqe.property_size())
}

fn set(
    controller: &mut Controller,
    now: Time,
    sqe: &SubmissionQueueEntry,
) -> Result<Option<Effect>, Status> {
    let (size, value) = (sqe.property_size(), sqe.property_value());
    controller.set_property(now, property(sqe)?, size, value)
}

fn property(sqe: &SubmissionQueueEntry) -> Result<Property, Status> {
    Property::at(sqe.property_offset()).ok_or(INVALID)
}

#[cfg(test)]
mod tests {
    use flashyard_controller::{ControllerId, ControllerKind, HostId};
    use flashyard_nvme::{AdminOpcode, Nqn};

    use super::*;

    fn controller() -> Controller {
        let host = HostId {
            nqn: Nqn::new("nqn.2014-08.org.nvmexpress:uuid:db").expect("a name of a test"),
            id: [7; 16],
        };
        let limits = ControllerLimits::default();
        let bounds = (limits, capabilities(&limits));
        let kind = ControllerKind::Io;
        Controller::new(ControllerId(5), kind, host, 5_000, bounds, Time::ZERO)
    }

    fn executed(sqe: SubmissionQueueEntry) -> (Answer, Option<Effect>) {
        execute(&mut controller(), Time::ZERO, &sqe)
    }

    #[test]
    fn fabrics_commands_of_a_connected_queue() {
        for (kind, status) in [
            (0x01, Status::COMMAND_SEQUENCE_ERROR.with_dnr()),
            (0x05, INVALID),
            (0x08, INVALID),
            (0xc0, INVALID),
        ] {
            let command = SubmissionQueueEntry::raw(AdminOpcode::FABRICS.0, kind);
            assert_eq!(executed(command), (Answer::of(status), None), "{kind:#x}");
        }
        let (answer, effect) = executed(SubmissionQueueEntry::property_get(8, false));
        assert_eq!((answer.completion(7).value(), effect), (0x2_0000, None));
        let enable = SubmissionQueueEntry::property_set(0x14, false, 0x46_0001);
        assert_eq!(executed(enable), (Answer::SUCCESS, Some(Effect::Enabled)));
    }

    #[test]
    fn wrong_sizes_and_offsets() {
        let refused = (Answer::of(INVALID), None);
        for (offset, eight) in [
            (0x00, false),
            (0x08, true),
            (0x14, true),
            (0x1c, true),
            (0x04, false),
            (0x24, false),
            (0x28, true),
            (u32::MAX, false),
        ] {
            let get = SubmissionQueueEntry::property_get(offset, eight);
            assert_eq!(executed(get), refused, "{offset:#x}");
        }
        let reserved = SubmissionQueueEntry::property_get(0x08, false).with_cdw(10, 2);
        assert_eq!(executed(reserved), refused);
        for (offset, eight) in [
            (0x00, true),
            (0x08, false),
            (0x1c, false),
            (0x20, false),
            (0x68, false),
            (0x14, true),
        ] {
            let set = SubmissionQueueEntry::property_set(offset, eight, 0);
            assert_eq!(executed(set), refused, "{offset:#x}");
        }
    }
}
