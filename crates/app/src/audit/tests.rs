//! The audit log over restarts, crashes, full files and a full disk.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use flashyard_testbed::Scratch;

use super::*;
use crate::control::LIMIT_MAX;

fn by(who: &str) -> AuditRecord {
    AuditRecord {
        by: Means::Token,
        who: who.to_owned(),
        ..of_target("here", "DELETE /volumes/{name}", String::new())
    }
}

fn write(audit: &Audit, count: usize) {
    for _ in 0..count {
        audit.record(by("ci"), Outcome::CarriedOut);
    }
}

/// Has a denied request recorded, if there are not too many.
fn deny(audit: &Audit, who: &str, caller: Caller, at: Instant) {
    if let Some(admission) = audit.admit(caller, at) {
        audit.record_denied(by(who), &admission);
    }
}

fn numbers(audit: &Audit, ask: &AuditAsk) -> (Vec<u64>, Option<String>) {
    let part = audit.read(ask).expect("it can be read");
    let numbers = part.rows.iter().map(|record| record.number).collect();
    (numbers, part.next)
}

fn all(audit: &Audit) -> Vec<u64> {
    numbers(audit, &AuditAsk::default()).0
}

/// All, asked for in parts.
fn parts(audit: &Audit, limit: usize) -> Vec<u64> {
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let ask = AuditAsk {
            limit: Some(limit),
            after,
            ..AuditAsk::default()
        };
        let (part, next) = numbers(audit, &ask);
        assert!(part.len() <= limit);
        seen.extend(part);
        match next {
            Some(next) => after = Some(next.parse().expect("a number")),
            None => return seen,
        }
    }
}

/// With files of another length.
fn small(directory: &Path, bytes_most: u64) -> Audit {
    let audit = Audit::open(directory);
    let mut writer = audit.lock().expect("it has files");
    for files in &mut writer.files {
        files.bytes_most = bytes_most;
    }
    drop(writer);
    audit
}

#[test]
fn numbers_go_on_over_restarts_and_a_line_that_was_cut_off_is_said() {
    let directory = Scratch::new("audit-restart");
    let path = directory.join("audit.log");
    let audit = Audit::open(&directory);
    assert_eq!(all(&audit), [0; 0]);
    write(&audit, 2);
    let mode = fs::metadata(&path).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    drop(audit);

    let audit = Audit::open(&directory);
    write(&audit, 1);
    assert_eq!(all(&audit), [1, 2, 3]);
    drop(audit);

    // As after a kill in the middle of a write.
    let mut file = fs::OpenOptions::new().append(true).open(&path);
    let file = file.as_mut().expect("it is there");
    file.write_all(b"{\"number\":4,\"at\":\"2026")
        .expect("it is ours");
    let audit = Audit::open(&directory);
    write(&audit, 1);
    let records = audit.read(&AuditAsk::default()).expect("it can be read");
    let told: Vec<_> = records
        .rows
        .iter()
        .map(|record| (record.number, record.detail.contains("cut off")))
        .collect();
    assert_eq!(
        told,
        [(1, false), (2, false), (3, false), (4, true), (5, false)]
    );
    // It is said once.
    drop(audit);
    assert_eq!(all(&Audit::open(&directory)), [1, 2, 3, 4, 5]);
}

#[test]
fn files_have_a_bound_and_parts_lead_through_all_of_them() {
    let directory = Scratch::new("audit-rotated");
    let line = file::line(&AuditRecord {
        number: 100,
        at: now(),
        ..by("ci")
    });
    let audit = small(&directory, 3 * line.len() as u64);
    write(&audit, 100);
    let lengths: Vec<u64> = fs::read_dir(&*directory)
        .expect("it is ours")
        .map(|entry| {
            entry
                .and_then(|it| it.metadata())
                .expect("it is ours")
                .len()
        })
        .collect();
    assert_eq!(
        lengths.len(),
        10,
        "one that is written and nine that are full"
    );
    assert!(
        lengths
            .iter()
            .all(|&length| length <= 3 * line.len() as u64)
    );
    let kept = all(&audit);
    assert_eq!(kept, (kept[0]..=100).collect::<Vec<_>>());
    assert!((72..=74).contains(&kept[0]), "{kept:?}");

    // Part after part, whatever the files are.
    for limit in [1, 2, 7, LIMIT_MAX] {
        assert_eq!(parts(&audit, limit), kept, "{limit}");
    }
    let last = AuditAsk {
        last: Some(5),
        ..AuditAsk::default()
    };
    assert_eq!(numbers(&audit, &last).0, (96..=100).collect::<Vec<_>>());
    drop(audit);
    assert_eq!(all(&Audit::open(&directory)), kept);
}

#[test]
fn records_are_found_by_who_and_since_when() {
    let directory = Scratch::new("audit-asked");
    let audit = Audit::open(&directory);
    for who in ["ci", "root", "ci"] {
        audit.record(by(who), Outcome::CarriedOut);
    }
    let ask = AuditAsk {
        who: Some("ci".to_owned()),
        ..AuditAsk::default()
    };
    assert_eq!(numbers(&audit, &ask).0, [1, 3]);
    let last = AuditAsk {
        last: Some(1),
        ..ask
    };
    assert_eq!(numbers(&audit, &last).0, [3]);
    for (since, found) in [("2026-01-01", 3), ("9999-01-01", 0)] {
        let ask = AuditAsk {
            since: Some(since.to_owned()),
            ..AuditAsk::default()
        };
        assert_eq!(numbers(&audit, &ask).0.len(), found, "{since}");
    }
}

/// A disk without space: nothing is lost as long as there is room in memory, and what is lost
/// leaves a gap.
#[test]
fn what_cannot_be_written_waits_and_is_told() {
    let directory = Scratch::new("audit-full");
    let audit = Audit::open(&directory);
    write(&audit, 1);
    assert_eq!(audit.trouble(), None);
    let (path, aside) = (directory.join("audit.log"), directory.join("aside"));
    fs::rename(&path, &aside).expect("it is ours");
    symlink("/dev/full", &path).expect("it is free");
    let most = 8;
    let mut writer = audit.lock().expect("it has files");
    // As after a failure: it is opened anew.
    writer.files[0] = Files::new(&directory, Series::Asked);
    writer.waiting_most = most;
    drop(writer);
    write(&audit, 2);
    let trouble = audit.trouble().expect("it is told");
    assert!(trouble.contains("2 records wait"), "{trouble}");
    write(&audit, most);

    fs::rename(&aside, &path).expect("it is ours");
    assert_eq!(audit.trouble(), None, "it is tried again");
    let written = all(&audit);
    let last = most as u64 + 3;
    assert_eq!(written[0], 1);
    assert_eq!(
        written[1..],
        (4..=last).collect::<Vec<_>>(),
        "2 and 3 are lost"
    );
    drop(audit);
    assert_eq!(all(&Audit::open(&directory)), written);
}

/// A disk that takes records and then loses them: a sync tells that once. They are written again,
/// without end, until one has succeeded, and once.
#[test]
fn what_a_failed_sync_may_have_lost_is_written_again() {
    let directory = Scratch::new("audit-sync");
    let audit = Audit::open(&directory);
    write(&audit, 1);
    let (path, aside) = (directory.join("audit.log"), directory.join("aside"));
    fs::rename(&path, &aside).expect("it is ours");
    // It takes everything, and no sync.
    symlink("/dev/null", &path).expect("it is free");
    audit.lock().expect("it has files").files[0].give_up();
    audit.record(by("ci"), Outcome::Refused);
    assert_eq!(audit.trouble(), None, "it waits for no disk");
    write(&audit, 2);
    for _ in 0..3 {
        let trouble = audit.trouble().expect("it is told");
        assert!(trouble.contains("3 records wait"), "{trouble}");
    }
    fs::remove_file(&path).expect("it is ours");
    fs::rename(&aside, &path).expect("it is ours");
    assert_eq!(audit.trouble(), None);
    assert_eq!(all(&audit), [1, 2, 3, 4]);
    drop(audit);
    assert_eq!(all(&Audit::open(&directory)), [1, 2, 3, 4]);
    let text = fs::read_to_string(&path).expect("it is there");
    assert_eq!(text.lines().count(), 4);
}

/// What was written behind the last sync is taken away before it is written again, from the file
/// that it is in and no other.
#[test]
fn tries_do_not_fill_the_file() {
    let directory = Scratch::new("audit-tries");
    let mut files = Files::new(&directory, Series::Asked);
    let path = directory.join("audit.log");
    let lines = || {
        let text = fs::read_to_string(&path).expect("it is there");
        text.lines().count()
    };
    files.append(&by("ci")).expect("it can be written");
    files.sync().expect("it can be written");
    for _ in 0..5 {
        files.append(&by("ci")).expect("it can be written");
        files.append(&by("ci")).expect("it can be written");
        assert_eq!(lines(), 3);
        files.give_up();
    }
    fs::rename(&path, directory.join("aside")).expect("it is ours");
    fs::copy(directory.join("aside"), &path).expect("it is ours");
    files.append(&by("ci")).expect("it can be written");
    assert_eq!(lines(), 4);
}

/// Where it cannot even be read at the start, numbers go on behind what is found later.
#[test]
fn a_log_that_cannot_be_read_at_the_start_goes_on_later() {
    let directory = Scratch::new("audit-unreadable");
    write(&Audit::open(&directory), 2);
    let (path, aside) = (directory.join("audit.log"), directory.join("aside"));
    fs::rename(&path, &aside).expect("it is ours");
    fs::create_dir(&path).expect("it is free");
    let audit = Audit::open(&directory);
    write(&audit, 2);
    assert!(audit.trouble().is_some());
    fs::remove_dir(&path).expect("it is empty");
    fs::rename(&aside, &path).expect("it is ours");
    write(&audit, 1);
    assert_eq!(all(&audit), [1, 2, 3, 4, 5]);
}

/// Whoever may do nothing does not fill the log either, and hides nobody who is known.
#[test]
fn those_who_may_not_ask_are_recorded_up_to_a_bound() {
    let directory = Scratch::new("audit-denied");
    let (audit, start) = (Audit::open(&directory), Instant::now());
    for _ in 0..1000 {
        deny(&audit, "", Caller::Unknown, start);
    }
    deny(&audit, "prometheus", Caller::Known, start);
    assert_eq!(all(&audit), (1..=51).collect::<Vec<_>>());
    let later = start + Duration::from_secs(10);
    deny(&audit, "", Caller::Unknown, later);
    write(&audit, 100);
    let records = audit.read(&AuditAsk::default()).expect("it can be read");
    let told = &records.rows[51];
    assert!(told.detail.starts_with("950 requests more"), "{told:?}");
    assert_eq!(records.rows.len(), 153);
}

/// For days a stranger asks as much as is recorded, then one who is known and may not: what others
/// did before is still there, and nobody pushes out those who are better known.
#[test]
fn those_who_may_not_ask_push_out_nobody_who_may() {
    let directory = Scratch::new("audit-pushed");
    let (audit, start) = (small(&directory, 4096), Instant::now());
    let deny_often = |who: &str, caller, day: u64| {
        for second in (0..86_400).step_by(3600) {
            let now = start + Duration::from_secs(day * 86_400 + second);
            for _ in 0..60 {
                deny(&audit, who, caller, now);
            }
        }
    };
    let of = |who: &str, last| {
        let ask = AuditAsk {
            who: Some(who.to_owned()),
            last,
            ..AuditAsk::default()
        };
        numbers(&audit, &ask).0
    };
    write(&audit, 5);
    deny_often("reader", Caller::Known, 0);
    let denied = of("reader", None);
    assert!(!denied.is_empty());
    deny_often("", Caller::Unknown, 1);
    let strangers = of("", None);
    assert_eq!(of("ci", None), [1, 2, 3, 4, 5]);
    assert_eq!(of("reader", None), denied);
    assert!(strangers.len() > 10 && strangers[0] > *denied.last().expect("some"));
    // They are one log for whoever reads it, in the order of their numbers, part after part.
    let kept = all(&audit);
    assert!(kept.is_sorted() && kept.starts_with(&[1, 2, 3, 4, 5]));
    let parts = parts(&audit, 7);
    assert_eq!(parts, kept);
    assert_eq!(of("ci", Some(2)), [4, 5]);
    drop(audit);
    let audit = Audit::open(&directory);
    write(&audit, 1);
    let next = kept.last().expect("some") + 1;
    assert_eq!(all(&audit), [kept, vec![next]].concat());
}

/// While the disk stands still, strangers take a few threads and no more, and those who are known
/// have theirs; how many were not recorded is told later.
#[test]
fn a_disk_that_stands_still_holds_up_few_of_those_who_may_not_ask() {
    let directory = Scratch::new("audit-stalled");
    let (audit, start) = (Audit::open(&directory), Instant::now());
    let stalled = audit.lock();
    let mut waiting = Vec::new();
    for span in 0..10 {
        let now = start + Duration::from_secs(10 * span);
        let admitted = (0..40).filter_map(|_| audit.admit(Caller::Unknown, now));
        waiting.extend(admitted);
    }
    assert_eq!(waiting.len(), 16);
    waiting.extend(audit.admit(Caller::Known, start));
    assert_eq!(waiting.len(), 17);
    drop(stalled);
    for admission in waiting {
        audit.record_denied(by(""), &admission);
    }
    deny(
        &audit,
        "",
        Caller::Unknown,
        start + Duration::from_secs(100),
    );
    let records = audit.read(&AuditAsk::default()).expect("it can be read");
    assert_eq!(records.rows.len(), 19);
    let told = &records.rows[17];
    assert!(told.detail.starts_with("384 requests more"), "{told:?}");
}
