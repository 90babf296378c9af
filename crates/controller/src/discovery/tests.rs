//! What hosts see of the target.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("a name of a test")
}

fn host(name: &str) -> Nqn {
    nqn(&format!("nqn.2014-08.org.nvmexpress:uuid:{name}"))
}

fn tenant(name: &str) -> Nqn {
    nqn(&format!("nqn.2026-11.dev.flashyard:{name}"))
}

fn only(name: &str) -> HostList {
    HostList::Only([host(name)].into())
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address of a test")
}

fn at(listeners: &[&str]) -> Discovery {
    let mut discovery = Discovery::default();
    let listeners = listeners
        .iter()
        .map(|text| text.parse().expect("an address of a test"));
    assert_eq!(
        discovery.set_listeners(listeners.collect()),
        Change::Everybody
    );
    discovery
}

/// The log as a host reads it that comes by `local`.
fn read(discovery: &Discovery, host: &Nqn, local: &str) -> (DiscoveryHeader, Vec<DiscoveryEntry>) {
    let mut page = vec![0xaa; 64 << 10];
    discovery
        .read(host, ip(local), 0, &mut page)
        .expect("offset 0");
    let records = page.as_chunks::<1024>().0;
    let header = DiscoveryHeader::decode(&records[0]);
    let (entries, rest) = records[1..].split_at(header.numrec as usize);
    assert!(
        rest.as_flattened().iter().all(|byte| *byte == 0),
        "zeroes behind the end"
    );
    (header, entries.iter().map(DiscoveryEntry::decode).collect())
}

/// Name, subtype and address of every entry.
fn summary(discovery: &Discovery, host: &Nqn, local: &str) -> Vec<String> {
    let (_, entries) = read(discovery, host, local);
    let describe = |entry: &DiscoveryEntry| {
        let name = entry
            .subnqn
            .map_or_else(String::new, |nqn| nqn.as_str().to_owned());
        let name = name
            .rsplit(['.', ':'])
            .next()
            .unwrap_or_default()
            .to_owned();
        let (address, service) = (
            entry.address().unwrap_or_default(),
            entry.service().unwrap_or_default(),
        );
        format!("{name} {} {address} {service}", entry.subtype.0)
    };
    entries.iter().map(describe).collect()
}

#[test]
fn an_entry() {
    let mut discovery = at(&["10.0.0.1:4420"]);
    let _ = discovery.set_subsystem(tenant("db"), HostList::Any);
    let (header, entries) = read(&discovery, &host("a"), "10.0.0.1");
    assert_eq!(
        (header.genctr, header.numrec, header.recfmt),
        (discovery.generation(), 2, 0)
    );
    let entry = &entries[1];
    assert_eq!(
        (entry.trtype, entry.adrfam),
        (TransportType::TCP, AddressFamily::IPV4)
    );
    assert_eq!(
        (entry.subtype, entry.treq),
        (SubsystemType::NVM, Treq::NOT_SPECIFIED)
    );
    assert_eq!(
        (entry.cntlid, entry.asqsz, entry.portid, entry.eflags),
        (0xffff, 128, 0, 0)
    );
    assert_eq!(entry.subnqn, Some(tenant("db")));
    assert_eq!(
        (entry.address(), entry.service()),
        (Some("10.0.0.1"), Some("4420"))
    );
    assert_eq!(entry.sectype, SecurityType::NONE);
    assert_eq!(
        (entries[0].subnqn, entries[0].eflags),
        (Some(Nqn::DISCOVERY), 3)
    );
}

#[test]
fn a_host_sees_what_it_may_connect_to_and_nothing_else() {
    let mut discovery = at(&["10.0.0.1:4420"]);
    let _ = discovery.set_subsystem(tenant("open"), HostList::Any);
    let _ = discovery.set_subsystem(tenant("a"), only("a"));
    let _ = discovery.set_subsystem(tenant("b"), only("b"));
    for (name, expected) in [
        (
            "a",
            &[
                "discovery 3 10.0.0.1 4420",
                "a 2 10.0.0.1 4420",
                "open 2 10.0.0.1 4420",
            ][..],
        ),
        (
            "b",
            &[
                "discovery 3 10.0.0.1 4420",
                "b 2 10.0.0.1 4420",
                "open 2 10.0.0.1 4420",
            ],
        ),
        ("c", &["discovery 3 10.0.0.1 4420", "open 2 10.0.0.1 4420"]),
    ] {
        assert_eq!(
            summary(&discovery, &host(name), "10.0.0.1"),
            expected,
            "{name}"
        );
    }
}

#[test]
fn addresses_as_the_host_can_use_them() {
    let everywhere = at(&["0.0.0.0:4420", "[::]:4421", "127.0.0.1:4422"]);
    let seen = |local| summary(&everywhere, &host("a"), local);
    assert_eq!(
        seen("10.0.0.7"),
        ["discovery 3 10.0.0.7 4420", "discovery 3 10.0.0.7 4421"]
    );
    assert_eq!(seen("::ffff:10.0.0.7"), seen("10.0.0.7"));
    assert_eq!(seen("fd00::7"), ["discovery 3 fd00::7 4421"]);
    assert_eq!(seen("127.0.0.1").len(), 3);
}

#[test]
fn the_discovery_port_is_not_a_second_path() {
    let mut discovery = at(&["10.0.0.1:4420", "10.0.0.1:8009"]);
    let _ = discovery.set_subsystem(tenant("db"), HostList::Any);
    assert_eq!(
        summary(&discovery, &host("a"), "10.0.0.1"),
        ["discovery 3 10.0.0.1 8009", "db 2 10.0.0.1 4420"]
    );
    let mut alone = at(&["10.0.0.1:8009"]);
    let _ = alone.set_subsystem(tenant("db"), HostList::Any);
    assert_eq!(
        summary(&alone, &host("a"), "10.0.0.1"),
        ["discovery 3 10.0.0.1 8009", "db 2 10.0.0.1 8009"]
    );
}

#[test]
fn every_change_moves_the_generation_and_tells_whom_it_concerns() {
    let mut discovery = at(&["10.0.0.1:4420"]);
    let (a, b) = (host("a"), host("b"));
    let concerned = |change: Change| (change.concerns(&a), change.concerns(&b));
    let mut generation = discovery.generation();
    let mut moved = |discovery: &Discovery| {
        let before = core::mem::replace(&mut generation, discovery.generation());
        discovery.generation() != before
    };

    assert_eq!(
        concerned(discovery.set_subsystem(tenant("x"), only("a"))),
        (true, false)
    );
    assert!(moved(&discovery));
    assert_eq!(
        discovery.set_subsystem(tenant("x"), only("a")),
        Change::Nobody
    );
    assert!(!moved(&discovery));
    assert_eq!(
        concerned(discovery.set_subsystem(tenant("x"), HostList::Any)),
        (false, true)
    );
    assert!(moved(&discovery));
    assert_eq!(
        concerned(discovery.remove_subsystem(&tenant("x"))),
        (true, true)
    );
    assert!(moved(&discovery));
    assert_eq!(discovery.remove_subsystem(&tenant("x")), Change::Nobody);
    assert_eq!(concerned(discovery.set_listeners(vec![])), (true, true));
    assert!(moved(&discovery));
    assert_eq!(discovery.set_listeners(vec![]), Change::Nobody);
    assert!(!moved(&discovery));
}

#[test]
fn any_part_is_a_part_of_the_whole() {
    let mut discovery = at(&["10.0.0.1:4420", "10.0.0.2:4420"]);
    for name in ["a", "b", "c"] {
        let _ = discovery.set_subsystem(tenant(name), HostList::Any);
    }
    let length = 9 * 1024;
    let part = |offset: usize, bytes: usize| {
        let mut page = vec![0xaa; bytes];
        discovery
            .read(&host("a"), ip("10.0.0.1"), offset as u64, &mut page)
            .map(|()| page)
    };
    let mut whole = part(0, length).expect("the log");
    whole.resize(4 * length, 0);
    for offset in (0..=length).step_by(252) {
        for bytes in [4, 1020, 1024, 1028, 4096, 2 * length] {
            let expected = &whole[offset..offset + bytes];
            assert_eq!(
                part(offset, bytes).as_deref(),
                Some(expected),
                "{bytes} from {offset}"
            );
        }
    }
    assert!(part(length, 4).is_some());
    assert!(part(length + 4, 4).is_none());
    assert!(
        discovery
            .read(&host("a"), ip("10.0.0.1"), u64::MAX, &mut [0; 4])
            .is_none()
    );
}
