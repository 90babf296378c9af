//! Reads any bytes as every structure that a peer can send. Used by the tests here and by the fuzz
//! targets.

use flashyard_nvme::aer::AsyncEvent;
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::fabrics::{
    Capabilities, Configuration, Connect, ConnectData, ControllerStatus, Property,
};
use flashyard_nvme::feature::{HostBehavior, Timestamp};
use flashyard_nvme::identify::{
    IdentifyController, IdentifyNamespace, IdentifyNamespaceIndependent, NamespaceDescriptors,
    ascii_text, decode_command_sets, decode_controller_list, decode_namespace_list,
};
use flashyard_nvme::log::{
    AnaGroup, DiscoveryEntry, DiscoveryHeader, EffectsLog, ErrorLogEntry, SmartLog, SupportedLogs,
    decode_changed_namespaces,
};
use flashyard_nvme::{CompletionQueueEntry, Nqn, SubmissionQueueEntry};
use zerocopy::FromBytes;

/// Reads `bytes`, followed by zeroes, as everything. What is written again has to be read the same.
pub(crate) fn everything(bytes: &[u8]) {
    let mut page = [0; 4096];
    let given = bytes.len().min(page.len());
    page[..given].copy_from_slice(&bytes[..given]);
    commands(&page);
    names(bytes, &page);
    identify(&page);
    logs(&page);
}

fn front<const N: usize>(page: &[u8; 4096]) -> &[u8; N] {
    page.first_chunk().expect("not longer than a page")
}

fn commands(page: &[u8; 4096]) {
    let entry = SubmissionQueueEntry::read_from_bytes(front::<64>(page)).expect("64 bytes");
    let text = format!(
        "{entry:?} {:?} {:?} {:?}",
        entry.sgl(),
        entry.fuse(),
        entry.psdt()
    );
    assert!(!text.is_empty());
    if let Some(range) = entry.lba_range() {
        let end = u128::from(range.slba) + u128::from(range.blocks);
        for size in [0, 1 << 20, u64::MAX] {
            assert_eq!(range.is_within(size), end <= u128::from(size));
        }
    }
    assert!(entry.log_bytes() >= 4 && (1..=256).contains(&entry.dsm_ranges()));
    let _ = (
        Connect::parse(&entry),
        Property::at(entry.property_offset()),
        entry.property_size(),
    );

    let completion = CompletionQueueEntry::read_from_bytes(front::<16>(page)).expect("16 bytes");
    assert!(!format!("{} {:?}", completion.status(), completion.status()).is_empty());
    assert_eq!(
        AsyncEvent::from_dw0(AsyncEvent::from_dw0(completion.dw0()).dw0()).dw0(),
        completion.dw0() & 0xff_ff07
    );
    let value = completion.value();
    assert_eq!(
        Capabilities::from_bits(Capabilities::from_bits(value).bits()),
        Capabilities::from_bits(value)
    );
    let bits = value as u32;
    assert_eq!(
        Configuration::from_bits(Configuration::from_bits(bits).bits()),
        Configuration::from_bits(bits)
    );
    assert_eq!(
        ControllerStatus::from_bits(ControllerStatus::from_bits(bits).bits()),
        ControllerStatus::from_bits(bits)
    );
}

fn names(bytes: &[u8], page: &[u8; 4096]) {
    if let Ok(name) = Nqn::from_field(bytes) {
        assert_eq!(Nqn::new(name.as_str()), Ok(name));
        assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
    }
    if let Ok(connect) = ConnectData::decode(front(page)) {
        assert_eq!(ConnectData::decode(&connect.encode()), Ok(connect));
    }
    let _ = ascii_text(bytes);
}

fn identify(page: &[u8; 4096]) {
    let mut again = [0xff; 4096];
    let controller = IdentifyController::decode(page);
    controller.encode(&mut again);
    assert_eq!(IdentifyController::decode(&again), controller);
    let _ = (
        controller.max_transfer(page[0]),
        controller.max_in_capsule_data(),
    );

    let namespace = IdentifyNamespace::decode(page);
    namespace.encode(&mut again);
    assert_eq!(IdentifyNamespace::decode(&again), namespace);
    assert!(
        namespace
            .block_size()
            .is_none_or(|size| size >= 512 && size.is_power_of_two())
    );
    IdentifyNamespaceIndependent::decode(page).encode(&mut again);

    let names = NamespaceDescriptors::decode(page);
    names.encode(&mut again);
    assert_eq!(NamespaceDescriptors::decode(&again), names);
    assert!(decode_namespace_list(page).count() <= 1024);
    assert!(decode_controller_list(page).count() <= 2047);
    assert!(decode_command_sets(page).count() <= 512);
}

fn logs(page: &[u8; 4096]) {
    let mut again = [0xff; 1024];
    let entry = DiscoveryEntry::decode(front(page));
    entry.encode(&mut again);
    assert_eq!(DiscoveryEntry::decode(&again), entry);
    let _ = (
        entry.address(),
        entry.service(),
        DiscoveryHeader::decode(front(page)),
    );

    let mut again = [0xff; 512];
    let smart = SmartLog::decode(front(page));
    smart.encode(&mut again);
    assert_eq!(SmartLog::decode(&again), smart);

    let mut again = [0xff; 64];
    let error = ErrorLogEntry::decode(front(page));
    error.encode(&mut again);
    assert_eq!(ErrorLogEntry::decode(&again), error);

    let mut again = [0xff; 4096];
    let effects = EffectsLog::decode(page);
    effects.encode(&mut again);
    assert_eq!(EffectsLog::decode(&again), effects);
    let _ = (
        AnaGroup::decode(front(page)),
        SupportedLogs::decode(front(page)),
    );
    let _ = (
        HostBehavior::decode(front(page)),
        Timestamp::decode(*front(page)),
    );
    assert!(decode_changed_namespaces(page).is_none_or(|changed| changed.count() <= 1024));
    for range in DsmRange::all(page) {
        let end = u128::from(range.slba) + u128::from(range.blocks);
        assert_eq!(range.is_within(1 << 40), end <= 1 << 40);
    }
}
