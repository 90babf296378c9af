//! Messages of vfio-user: every one in both directions, everything that can be wrong with one, and
//! noise.

#[path = "vfio_user_bytes/mod.rs"]
mod bytes;

use flashyard_corpus::try_all;
use flashyard_nvme::vfio_user::{
    Command, DMA_READ, DMA_WRITE, DeviceInfo, DmaMap, DmaUnmap, Header, IrqAction, IrqData,
    IrqInfo, MAX_PAYLOAD, Malformed, MappableArea, RegionAccess, RegionInfo, Reply, Request,
    SetIrqs, UNMAP_ALL, Version,
};
use flashyard_time::Rng;

const ACCESS: RegionAccess = RegionAccess {
    offset: 0x1008,
    region: 0,
    count: 4,
};

fn set_irqs(action: IrqAction, count: u32, data: IrqData) -> Request {
    Request::SetIrqs(SetIrqs {
        index: 2,
        start: 3,
        count,
        action,
        data,
    })
}

/// Every request, and the file descriptors beside it.
fn requests() -> Vec<(Request<'static>, usize)> {
    let map = DmaMap {
        flags: DMA_READ | DMA_WRITE,
        offset: 0x1000,
        address: 0x1_0000_0000,
        size: 0x8000_0000,
    };
    let unmap = DmaUnmap {
        argsz: 24,
        flags: UNMAP_ALL,
        address: 0,
        size: 0,
    };
    let version = Version {
        major: 0,
        minor: 0,
        text: "{\"capabilities\":{\"max_msg_fds\":8}}",
    };
    let region = Request::RegionInfo {
        argsz: 64,
        index: 7,
    };
    vec![
        (Request::Version(version), 0),
        (
            Request::Version(Version {
                text: "",
                ..version
            }),
            0,
        ),
        (Request::DmaMap(map), 1),
        (Request::DmaMap(map), 0),
        (Request::DmaUnmap(unmap), 0),
        (Request::DeviceInfo, 0),
        (region, 0),
        (Request::IrqInfo { index: 2 }, 0),
        (set_irqs(IrqAction::Trigger, 2, IrqData::EventFds), 2),
        (set_irqs(IrqAction::Trigger, 2, IrqData::EventFds), 0),
        (set_irqs(IrqAction::Trigger, 0, IrqData::None), 0),
        (set_irqs(IrqAction::Mask, 2, IrqData::Bool(&[1, 0])), 0),
        (set_irqs(IrqAction::Unmask, 5, IrqData::None), 0),
        (Request::RegionRead(ACCESS), 0),
        (Request::RegionWrite(ACCESS, &[1, 2, 3, 4]), 0),
        (Request::Reset, 0),
    ]
}

fn replies() -> Vec<Reply<'static>> {
    let region = RegionInfo {
        flags: 7,
        index: 0,
        size: 0x4000,
        offset: 0,
        areas: vec![MappableArea {
            offset: 0x1000,
            size: 0x1000,
        }],
        argsz: 0,
    };
    let unmap = DmaUnmap {
        argsz: 24,
        flags: 0,
        address: 0x1000,
        size: 0x1000,
    };
    vec![
        Reply::Done(Command::DMA_MAP),
        Reply::Done(Command::SET_IRQS),
        Reply::Done(Command::RESET),
        Reply::Version(Version {
            major: 0,
            minor: 0,
            text: "{}",
        }),
        Reply::DmaUnmap(unmap),
        Reply::Device(DeviceInfo {
            flags: 3,
            regions: 9,
            irqs: 5,
        }),
        Reply::Region(region.clone().within(64)),
        Reply::Region(region.within(32)),
        Reply::Irq(IrqInfo {
            flags: 9,
            index: 2,
            count: 65,
        }),
        Reply::RegionRead(ACCESS, &[1, 2, 3, 4]),
        Reply::RegionWrite(ACCESS),
        Reply::Error(Command::DMA_MAP, 22),
    ]
}

fn split(message: &[u8]) -> (Header, &[u8]) {
    let (head, payload) = message.split_first_chunk().expect("a header");
    (Header::decode(head).expect("a good header"), payload)
}

#[test]
fn every_request_is_read_as_it_was_written() {
    for (request, descriptors) in requests() {
        let message = request.encode(77);
        let (header, payload) = split(&message);
        assert_eq!((header.id, header.payload), (77, payload.len()));
        assert_eq!(Request::decode(&header, payload, descriptors), Ok(request));
    }
}

#[test]
fn every_reply_is_read_as_it_was_written() {
    for reply in replies() {
        let message = reply.encode(77);
        let (header, payload) = split(&message);
        assert!(header.reply && header.id == 77);
        assert_eq!(Reply::decode(&header, payload), Ok(reply));
    }
}

/// The bytes as QEMU writes them.
#[test]
fn a_map_has_its_fields_where_the_protocol_has_them() {
    let map = Request::DmaMap(DmaMap {
        flags: 3,
        offset: 0x1122,
        address: 0x3344_0000,
        size: 0x5000,
    });
    let mut expected = Vec::new();
    expected.extend(7u16.to_ne_bytes());
    expected.extend(2u16.to_ne_bytes());
    for word in [48u32, 0, 0, 32, 3] {
        expected.extend(word.to_ne_bytes());
    }
    for word in [0x1122u64, 0x3344_0000, 0x5000] {
        expected.extend(word.to_ne_bytes());
    }
    assert_eq!(map.encode(7), expected);
}

#[test]
fn a_region_info_without_room_has_no_capabilities_and_says_how_much_it_needs() {
    let Some(Reply::Region(cut)) = replies().into_iter().nth(7) else {
        panic!("it is the eighth")
    };
    assert!(cut.is_cut() && cut.areas.is_empty() && cut.argsz == 64);
    let message = Reply::Region(cut).encode(1);
    assert_eq!(message.len(), Header::LEN + 32);
}

#[test]
fn a_length_or_a_count_of_descriptors_that_is_wrong_is_refused() {
    for (request, descriptors) in requests() {
        let message = request.encode(1);
        let (header, payload) = split(&message);
        for other in (0..20).filter(|count| *count != descriptors) {
            let read = Request::decode(&header, payload, other);
            let may = match request {
                Request::DmaMap(_) => other <= 1,
                Request::SetIrqs(set) if set.data == IrqData::EventFds => {
                    other == 0 || other == set.count as usize
                }
                _ => false,
            };
            let expected = if may {
                Ok(request)
            } else {
                Err(Malformed::Descriptors)
            };
            assert_eq!(read, expected, "{request:?} with {other}");
        }
        if let Request::Version(_) = request {
            continue;
        }
        for len in 0..payload.len() {
            let read = Request::decode(&header, &payload[..len], descriptors);
            assert!(read.is_err(), "{request:?} of {len} bytes");
        }
        let longer = [payload, &[0]].concat();
        let read = Request::decode(&header, &longer, descriptors);
        let wrong = [Err(Malformed::Length), Err(Malformed::Argsz)];
        assert!(
            wrong.contains(&read),
            "{request:?} with a byte more: {read:?}"
        );
    }
}

#[test]
fn fields_that_cannot_be_are_refused() {
    let payload =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_ne_bytes()).collect() };
    let table: [(Command, Vec<u8>, Malformed); 12] = [
        (
            Command::DMA_MAP,
            payload(&[31, 3, 0, 0, 0, 0, 0, 0]),
            Malformed::Argsz,
        ),
        (
            Command::DMA_UNMAP,
            payload(&[23, 0, 0, 0, 0, 0]),
            Malformed::Argsz,
        ),
        (
            Command::DEVICE_INFO,
            payload(&[15, 0, 0, 0]),
            Malformed::Argsz,
        ),
        (
            Command::SET_IRQS,
            payload(&[19, 33, 2, 0, 1]),
            Malformed::Argsz,
        ),
        (
            Command::SET_IRQS,
            payload(&[20, 35, 2, 0, 1]),
            Malformed::Field,
        ),
        (
            Command::SET_IRQS,
            payload(&[20, 32, 2, 0, 1]),
            Malformed::Field,
        ),
        (
            Command::SET_IRQS,
            payload(&[20, 1 | 8 | 16, 2, 0, 1]),
            Malformed::Field,
        ),
        (
            Command::SET_IRQS,
            payload(&[20, 36, 2, u32::MAX, 2]),
            Malformed::Field,
        ),
        (
            Command::SET_IRQS,
            payload(&[20, 34, 2, 0, 4]),
            Malformed::Length,
        ),
        (Command(6), payload(&[16, 0, 0, 0]), Malformed::Unsupported),
        (Command(0), Vec::new(), Malformed::Unsupported),
        (Command(0xffff), Vec::new(), Malformed::Unsupported),
    ];
    for (command, payload, expected) in table {
        let header = Header {
            id: 0,
            command,
            payload: payload.len(),
            reply: false,
            no_reply: false,
            error: None,
        };
        let read = Request::decode(&header, &payload, 0);
        assert_eq!(read, Err(expected), "{command:?} {payload:?}");
        let errno = if expected == Malformed::Unsupported {
            95
        } else {
            22
        };
        assert_eq!(expected.errno(), errno);
    }
}

#[test]
fn a_version_without_its_nul_or_braces_is_refused() {
    for (text, expected) in [
        (&b"{}"[..], Err(Malformed::Text)),
        (b"{}\0", Ok("{}")),
        (b" {} \0", Ok(" {} ")),
        (b"[]\0", Err(Malformed::Text)),
        (b"\0", Err(Malformed::Text)),
        (b"{\0}\0", Err(Malformed::Text)),
        (b"{\xff}\0", Err(Malformed::Text)),
        (b"", Ok("")),
    ] {
        let mut payload = vec![0; 4];
        payload.extend_from_slice(text);
        let header = Header {
            id: 0,
            command: Command::VERSION,
            payload: payload.len(),
            reply: false,
            no_reply: false,
            error: None,
        };
        let read = Request::decode(&header, &payload, 0);
        let read = read.map(|request| match request {
            Request::Version(version) => version.text,
            other => panic!("{other:?}"),
        });
        assert_eq!(read, expected, "{}", text.escape_ascii());
    }
}

#[test]
fn a_header_bounds_its_message() {
    let header = |size: u32, flags: u32| {
        let mut bytes = [0; Header::LEN];
        bytes[4..8].copy_from_slice(&size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
        Header::decode(&bytes)
    };
    let most = (MAX_PAYLOAD + Header::LEN) as u32;
    for size in [0, 15, most + 1, u32::MAX] {
        assert_eq!(header(size, 0), Err(Malformed::Size), "{size}");
    }
    assert!(header(16, 0).is_ok() && header(most, 0).is_ok());
    for flags in [2, 15] {
        assert_eq!(header(16, flags), Err(Malformed::Type));
    }
    assert!(Malformed::Size.is_fatal() && Malformed::Type.is_fatal());
    assert!(!Malformed::Length.is_fatal());
    let reply = header(16, 1).expect("a reply");
    assert_eq!(Request::decode(&reply, &[], 0), Err(Malformed::Type));
    let request = header(16, 0).expect("a request");
    assert_eq!(Reply::decode(&request, &[]), Err(Malformed::Type));
}

#[test]
fn noise_and_mutated_messages_are_read_or_refused() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let mut noise = vec![0; rng.below(200) as usize];
        rng.fill_bytes(&mut noise);
        // Near to what is right: a known command, an honest length, a type that is known.
        if noise.len() > 17 && rng.chance(3, 4) {
            let len = (noise.len() - 1) as u32;
            noise[3..5].copy_from_slice(&(rng.below(18) as u16).to_ne_bytes());
            noise[5..9].copy_from_slice(&len.to_ne_bytes());
            noise[9..13].copy_from_slice(&(rng.below(2) as u32).to_ne_bytes());
        }
        bytes::both_ways(&noise);
    }
    try_all("vfio_user", 3000, bytes::both_ways);
}

/// The committed inputs are the messages above; this writes them anew.
#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/inputs/vfio_user");
    for (number, (request, descriptors)) in requests().into_iter().enumerate() {
        let input = [vec![descriptors as u8], request.encode(1)].concat();
        std::fs::write(format!("{folder}/request-{number}"), input).expect("writable");
    }
    for (number, reply) in replies().into_iter().enumerate() {
        let input = [vec![0], reply.encode(1)].concat();
        std::fs::write(format!("{folder}/reply-{number}"), input).expect("writable");
    }
}
