//! What a subsystem's controllers tell through the whole target: values of namespaces, and the log
//! of errors.

use flashyard_nvme::log::ErrorLogEntry;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Client, Site};

async fn newest_error(admin: &mut Client) -> ErrorLogEntry {
    let bytes = ErrorLogEntry::LEN as u32;
    let entry = SubmissionQueueEntry::raw(0x02, 0xffff_ffff)
        .with_cdw(10, 0x01 | (bytes / 4 - 1) << 16)
        .with_sgl(Sgl::Transport { length: bytes });
    let page = admin.fetch(entry).await.expect("a log page");
    ErrorLogEntry::decode(&page.try_into().expect("as long as asked for"))
}

async fn error_recovery(admin: &mut Client, nsid: u32) -> u32 {
    let entry = SubmissionQueueEntry::get_features(5, 0, nsid);
    let answer = admin.command(entry, &[]).await;
    assert!(answer.status().is_success(), "{answer:?}");
    answer.dw0()
}

/// Error Recovery belongs to the namespace: all controllers see it, other tenants do not, and it
/// goes with the namespace.
#[test]
fn a_namespace_has_its_error_recovery_whoever_set_it() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        bench.attach_memory("a", 2);
        bench.attach_memory("b", 1);
        let (mut one, _) = bench.admin("a", 1).await;
        let (mut other, _) = bench.admin("a", 2).await;
        let (mut stranger, _) = bench.admin("b", 3).await;
        let set = SubmissionQueueEntry::set_features(5, 1, 100);
        assert!(one.command(set, &[]).await.status().is_success());
        assert_eq!(error_recovery(&mut other, 1).await, 100);
        assert_eq!(error_recovery(&mut other, 2).await, 0);
        assert_eq!(error_recovery(&mut stranger, 1).await, 0);
        bench.target.detach("a", 1).expect("it is there");
        bench.attach_memory("a", 1);
        assert_eq!(error_recovery(&mut one, 1).await, 0, "another namespace");
    });
}

/// CDW10 and CDW11 are an LBA for commands that have one, and for no others.
#[test]
fn the_error_log_has_an_lba_where_the_command_has_one() {
    const LBA: u64 = 0x0000_0007_ffff_fff0;
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (mut admin, mut io) = bench.connect("a", 1).await;
        let block = Sgl::Transport { length: BLOCK };
        let out_of_range = Status::LBA_OUT_OF_RANGE;
        for (opcode, nsid, status, lba) in [
            (0x02, 1, out_of_range, LBA),
            (0x01, 1, out_of_range, LBA),
            (0x05, 1, out_of_range, LBA),
            (0x08, 1, out_of_range, LBA),
            (0x0c, 1, Status::INVALID_OPCODE, LBA),
            (0x04, 1, Status::INVALID_OPCODE, LBA),
            (0x00, 7, Status::INVALID_NAMESPACE_OR_FORMAT, 0),
            (0x09, 7, Status::INVALID_NAMESPACE_OR_FORMAT, 0),
            (0x0d, 1, Status::INVALID_OPCODE, 0),
            (0x19, 1, Status::INVALID_OPCODE, 0),
            (0x7e, 1, Status::INVALID_OPCODE, 0),
        ] {
            let entry = SubmissionQueueEntry::raw(opcode, nsid)
                .with_cdw(10, LBA as u32)
                .with_cdw(11, (LBA >> 32) as u32);
            let entry = match opcode {
                0x01 | 0x02 | 0x05 => entry.with_sgl(block),
                _ => entry,
            };
            let answer = io.command(entry, &[]).await;
            assert!(answer.status().is(status), "{opcode:#x}: {answer:?}");
            let logged = newest_error(&mut admin).await;
            assert_eq!(
                (logged.opcode, logged.lba, logged.nsid),
                (opcode, lba, nsid),
                "{logged:?}"
            );
        }
    });
}
