//! Every NVMe/TCP PDU as bytes, written and read: a table that can be laid beside the
//! specification.

use flashyard_nvme::tcp::{
    C2HData, CapsuleCmd, CapsuleResp, Crc32c, Digests, Event, FatalErrorStatus, Framer, H2CData,
    Header, ICReq, ICResp, Limits, MAX_HEADER, MAX_TERM_REQ, Negotiated, Outgoing, R2T, Role,
    TermReq,
};
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};

const LIMITS: Limits = Limits {
    in_capsule: 8192,
    c2h_data: 1 << 20,
};
const NONE: Digests = Digests {
    header: false,
    data: false,
};
const BOTH: Digests = Digests {
    header: true,
    data: true,
};

fn command() -> SubmissionQueueEntry {
    SubmissionQueueEntry::flush(0x0102_0304)
        .with_cid(0xaabb)
        .with_sgl(Sgl::InCapsule {
            offset: 0,
            length: 4,
        })
}

/// A framer past its first PDU.
fn open(role: Role, agreed: &Negotiated) -> Framer {
    let mut framer = Framer::new(role, LIMITS);
    let first = match role {
        Role::Controller => ICReq::default().encode(),
        Role::Host => ICResp {
            maxh2cdata: 4096,
            ..ICResp::default()
        }
        .encode(),
    };
    assert!(matches!(
        framer.next(&mut &first[..]),
        Ok(Some(Event::Pdu(_)))
    ));
    framer.negotiated(agreed);
    framer
}

/// Reads one whole PDU.
fn read(role: Role, agreed: &Negotiated, mut bytes: &[u8]) -> (Header, Vec<u8>, Option<bool>) {
    let mut framer = open(role, agreed);
    let Ok(Some(Event::Pdu(header))) = framer.next(&mut bytes) else {
        panic!("a header comes first");
    };
    let (mut data, mut end) = (Vec::new(), None);
    while let Some(event) = framer.next(&mut bytes).expect("in order") {
        match event {
            Event::Data(piece) => data.extend_from_slice(piece),
            Event::DataEnd { digest_ok } => end = Some(digest_ok),
            Event::Pdu(header) => panic!("one PDU only, not {header:?}"),
        }
    }
    assert!(framer.at_pdu_boundary());
    (header, data, end)
}

/// The bytes of a header as it is sent.
fn written(header: &Header, how: Outgoing) -> Vec<u8> {
    let mut out = [0xee; MAX_HEADER];
    let length = match header {
        Header::CapsuleCmd(pdu) => pdu.encode(how, &mut out),
        Header::CapsuleResp(pdu) => pdu.encode(how, &mut out),
        Header::H2CData(pdu) => pdu.encode(how, &mut out),
        Header::C2HData(pdu) => pdu.encode(how, &mut out),
        Header::R2T(pdu) => pdu.encode(how, &mut out),
        _ => unreachable!("not in this table"),
    };
    out[..length].to_vec()
}

/// Header, the first bytes of its PDU, bytes of data.
fn table() -> Vec<(Role, Header, Vec<u8>, u32)> {
    let cqe = CompletionQueueEntry::new(0xaabb, Status::SUCCESS).with_queue(5, 0);
    vec![
        (
            Role::Controller,
            Header::CapsuleCmd(CapsuleCmd {
                entry: command(),
                data_len: 0,
            }),
            vec![4, 0, 72, 0, 72, 0, 0, 0, 0x00, 0x40, 0xbb, 0xaa, 4, 3, 2, 1],
            0,
        ),
        (
            Role::Controller,
            Header::CapsuleCmd(CapsuleCmd {
                entry: command(),
                data_len: 4,
            }),
            vec![
                4, 0, 72, 72, 76, 0, 0, 0, 0x00, 0x40, 0xbb, 0xaa, 4, 3, 2, 1,
            ],
            4,
        ),
        (
            Role::Host,
            Header::CapsuleResp(CapsuleResp { entry: cqe }),
            vec![
                5, 0, 24, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0xbb, 0xaa, 0, 0,
            ],
            0,
        ),
        (
            Role::Controller,
            Header::H2CData(H2CData {
                cccid: 0x0102,
                ttag: 0x0304,
                datao: 0x1000,
                datal: 8,
                last: true,
            }),
            vec![
                6, 4, 24, 24, 32, 0, 0, 0, 2, 1, 4, 3, 0, 0x10, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0,
            ],
            8,
        ),
        (
            Role::Host,
            Header::C2HData(C2HData {
                cccid: 0x0102,
                datao: 0x2000,
                datal: 4,
                last: true,
                success: true,
            }),
            vec![
                7, 12, 24, 24, 28, 0, 0, 0, 2, 1, 0, 0, 0, 0x20, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
            ],
            4,
        ),
        (
            Role::Host,
            Header::C2HData(C2HData {
                cccid: 1,
                datao: 0,
                datal: 4,
                last: false,
                success: false,
            }),
            vec![
                7, 0, 24, 24, 28, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
            ],
            4,
        ),
        (
            Role::Host,
            Header::R2T(R2T {
                cccid: 0x0102,
                ttag: 0x0304,
                r2to: 0x1000,
                r2tl: 0x2000,
            }),
            vec![
                9, 0, 24, 0, 24, 0, 0, 0, 2, 1, 4, 3, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0,
            ],
            0,
        ),
    ]
}

#[test]
fn bytes_without_digests() {
    let agreed = Negotiated {
        maxh2cdata: 4096,
        ..Negotiated::default()
    };
    for (role, header, bytes, data_len) in table() {
        let mut pdu = written(&header, Outgoing::default());
        assert_eq!(pdu[..bytes.len()], bytes, "{header:?}");
        assert_eq!(
            pdu.len(),
            usize::from(pdu[2]),
            "nothing between header and data"
        );
        pdu.extend((0..data_len).map(|i| i as u8));
        let (read_header, data, end) = read(role, &agreed, &pdu);
        assert_eq!(read_header, header);
        assert_eq!(data.len() as u32, data_len);
        assert_eq!(end, (data_len > 0).then_some(true));
    }
}

#[test]
fn bytes_with_digests_and_alignment() {
    let how = Outgoing {
        digests: BOTH,
        pda: 7,
    };
    let agreed = Negotiated {
        digests: BOTH,
        cpda: 7,
        hpda: 7,
        maxr2t: 0,
        maxh2cdata: 4096,
    };
    for (role, header, bytes, data_len) in table() {
        let mut pdu = written(&header, how);
        let hlen = usize::from(pdu[2]);
        assert_eq!(pdu[hlen..hlen + 4], Crc32c::of(&pdu[..hlen]));
        assert_eq!((pdu[0], pdu[2]), (bytes[0], bytes[2]));
        assert_eq!(pdu[8..bytes.len()], bytes[8..]);
        if data_len == 0 {
            assert_eq!((pdu[1], pdu[3], pdu.len()), (bytes[1] | 1, 0, hlen + 4));
        } else {
            assert_eq!(usize::from(pdu[3]), (hlen + 4).next_multiple_of(32));
            assert_eq!((pdu[1], usize::from(pdu[3])), (bytes[1] | 3, pdu.len()));
            assert!(pdu[hlen + 4..].iter().all(|b| *b == 0), "padding is zero");
            let data: Vec<u8> = (0..data_len).map(|i| i as u8).collect();
            pdu.extend_from_slice(&data);
            pdu.extend_from_slice(&Crc32c::of(&data));
        }
        assert_eq!(pdu[4..8], (pdu.len() as u32).to_le_bytes());
        let (read_header, data, end) = read(role, &agreed, &pdu);
        assert_eq!((read_header, data.len() as u32), (header, data_len));
        assert_eq!(end, (data_len > 0).then_some(true));
        if data_len > 0 {
            *pdu.last_mut().expect("not empty") ^= 1;
            assert_eq!(
                read(role, &agreed, &pdu).2,
                Some(false),
                "a wrong data digest is reported, not fatal"
            );
        }
    }
}

#[test]
fn every_alignment_fits_the_buffer_and_the_offset() {
    for pda in 0..32 {
        for digests in [
            NONE,
            BOTH,
            Digests {
                header: true,
                data: false,
            },
        ] {
            let how = Outgoing { digests, pda };
            let agreed = Negotiated {
                digests,
                cpda: pda,
                hpda: pda,
                maxr2t: 0,
                maxh2cdata: 4096,
            };
            let header = Header::CapsuleCmd(CapsuleCmd {
                entry: command(),
                data_len: 4,
            });
            let mut pdu = written(&header, how);
            assert_eq!(pdu.len() % ((usize::from(pda) + 1) * 4), 0);
            pdu.extend_from_slice(&[1, 2, 3, 4]);
            if digests.data {
                pdu.extend_from_slice(&Crc32c::of(&[1, 2, 3, 4]));
            }
            let (read_header, data, end) = read(Role::Controller, &agreed, &pdu);
            assert_eq!(
                (read_header, &data[..], end),
                (header, &[1, 2, 3, 4][..], Some(true))
            );
        }
    }
}

#[test]
fn first_pdus_both_ways() {
    let request = ICReq {
        pfv: 0x0102,
        hpda: 3,
        digests: Digests {
            header: false,
            data: true,
        },
        maxr2t: 0x0a0b_0c0d,
    };
    let mut bytes = request.encode();
    assert_eq!(
        bytes[..16],
        [
            0, 0, 128, 0, 128, 0, 0, 0, 2, 1, 3, 2, 0x0d, 0x0c, 0x0b, 0x0a
        ]
    );
    assert_eq!(bytes[16..], [0; 112]);
    bytes[1] = 0xff;
    bytes[3] = 0xff;
    bytes[11] |= 0xfc;
    bytes[16..].fill(0xff);
    let event = Framer::new(Role::Controller, LIMITS).next(&mut &bytes[..]);
    assert_eq!(
        event,
        Ok(Some(Event::Pdu(Header::ICReq(request)))),
        "reserved bits do not matter"
    );

    let response = ICResp {
        pfv: 0,
        cpda: 1,
        digests: BOTH,
        maxh2cdata: 0x0002_0000,
    };
    let bytes = response.encode();
    assert_eq!(
        bytes[..16],
        [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 1, 3, 0, 0, 2, 0]
    );
    assert_eq!(bytes[16..], [0; 112]);
    let event = Framer::new(Role::Host, LIMITS).next(&mut &bytes[..]);
    assert_eq!(event, Ok(Some(Event::Pdu(Header::ICResp(response)))));
}

#[test]
fn term_req_both_ways() {
    let agreed = Negotiated {
        digests: BOTH,
        maxh2cdata: 4096,
        ..Negotiated::default()
    };
    let reason = TermReq {
        fes: FatalErrorStatus::INVALID_HEADER_FIELD,
        fei: 0x0102_0304,
    };
    let mut out = [0xee; MAX_TERM_REQ];
    for (from, kind, reader) in [
        (Role::Controller, 3, Role::Host),
        (Role::Host, 2, Role::Controller),
    ] {
        assert_eq!(reason.encode(from, &[9; 72], &mut out), 96);
        assert_eq!(
            out[..16],
            [kind, 0, 24, 0, 96, 0, 0, 0, 1, 0, 4, 3, 2, 1, 0, 0]
        );
        assert_eq!(out[16..24], [0; 8]);
        assert_eq!(out[24..96], [9; 72]);
        let mut bytes = out[..96].to_vec();
        bytes.extend_from_slice(b"what follows is thrown away");
        let mut input = &bytes[..];
        let mut framer = open(reader, &agreed);
        assert_eq!(
            framer.next(&mut input),
            Ok(Some(Event::Pdu(Header::TermReq(reason))))
        );
        assert_eq!(framer.next(&mut input), Ok(Some(Event::Data(&[9; 72]))));
        assert_eq!(
            framer.next(&mut input),
            Ok(Some(Event::DataEnd { digest_ok: true }))
        );
        assert_eq!(framer.next(&mut input), Ok(None));
        assert!(input.is_empty());
    }
    assert_eq!(
        reason.encode(Role::Host, &[9; 500], &mut out),
        152,
        "no more than 128 bytes of the header"
    );
    assert_eq!(reason.encode(Role::Host, &[], &mut out), 24);
    let mut framer = open(Role::Controller, &agreed);
    assert_eq!(
        framer.next(&mut &out[..24]),
        Ok(Some(Event::Pdu(Header::TermReq(reason))))
    );
    assert_eq!(framer.next(&mut &[1; 100][..]), Ok(None));
}

#[test]
fn reserved_bits_of_data_pdus_do_not_matter() {
    let agreed = Negotiated {
        maxh2cdata: 4096,
        ..Negotiated::default()
    };
    for (role, header, _, data_len) in table() {
        let mut pdu = written(&header, Outgoing::default());
        pdu[1] |= 0xf0;
        match header {
            Header::H2CData(_) | Header::R2T(_) => pdu[20..24].fill(0xff),
            Header::C2HData(_) => {
                pdu[10..12].fill(0xff);
                pdu[20..24].fill(0xff);
            }
            // Without data PDO means nothing.
            _ if data_len == 0 => pdu[3] = 0xff,
            _ => {}
        }
        pdu.extend((0..data_len).map(|_| 0));
        assert_eq!(read(role, &agreed, &pdu).0, header);
    }
}
