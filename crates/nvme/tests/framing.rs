//! The framer against peers: any cut of the stream says the same, every breach has its code, no
//! bytes make it panic.

mod driver;

use driver::{Arrival, LIMITS, Seen, drive};
use flashyard_nvme::tcp::{
    C2HData, CapsuleCmd, CapsuleResp, Crc32c, Digests, Event, Framer, H2CData, Header, ICReq,
    ICResp, MAX_HEADER, MAX_TERM_REQ, Negotiated, Offer, Outgoing, R2T, Role, Violation,
    ViolationKind,
};
use flashyard_nvme::{CompletionQueueEntry, Status, SubmissionQueueEntry};
use flashyard_time::Rng;

const DIGESTS: [Digests; 4] = [
    Digests {
        header: false,
        data: false,
    },
    Digests {
        header: true,
        data: false,
    },
    Digests {
        header: false,
        data: true,
    },
    Digests {
        header: true,
        data: true,
    },
];

/// What both ends agree on in a test.
#[derive(Clone, Copy)]
struct Terms {
    digests: Digests,
    pda: u8,
}

impl Terms {
    fn offer(self) -> Offer {
        Offer {
            digests: self.digests,
            cpda: self.pda,
            maxh2cdata: 8192,
        }
    }

    fn request(self) -> Negotiated {
        Negotiated {
            digests: self.digests,
            cpda: self.pda,
            hpda: self.pda,
            maxr2t: 0,
            maxh2cdata: 8192,
        }
    }

    fn outgoing(self) -> Outgoing {
        Outgoing {
            digests: self.digests,
            pda: self.pda,
        }
    }

    fn initialize(self, role: Role) -> Vec<u8> {
        let request = ICReq {
            pfv: 0,
            hpda: self.pda,
            digests: self.digests,
            maxr2t: 0,
        };
        let response = ICResp {
            pfv: 0,
            cpda: self.pda,
            digests: self.digests,
            maxh2cdata: 8192,
        };
        match role {
            Role::Controller => request.encode().to_vec(),
            Role::Host => response.encode().to_vec(),
        }
    }
}

/// A PDU as it is sent, with `data` and its digest.
fn pdu(header: &Header, data: &[u8], terms: Terms) -> Vec<u8> {
    let (how, mut out) = (terms.outgoing(), [0; MAX_HEADER]);
    let length = match header {
        Header::CapsuleCmd(pdu) => pdu.encode(how, &mut out),
        Header::CapsuleResp(pdu) => pdu.encode(how, &mut out),
        Header::H2CData(pdu) => pdu.encode(how, &mut out),
        Header::C2HData(pdu) => pdu.encode(how, &mut out),
        Header::R2T(pdu) => pdu.encode(how, &mut out),
        _ => unreachable!("not made here"),
    };
    let mut bytes = out[..length].to_vec();
    bytes.extend_from_slice(data);
    if !data.is_empty() && terms.digests.data {
        bytes.extend_from_slice(&Crc32c::of(data));
    }
    bytes
}

/// A connection's worth of PDUs, and what a framer says of it.
fn conversation(role: Role, terms: Terms, rng: &mut Rng) -> (Vec<u8>, Vec<Seen>) {
    let mut bytes = terms.initialize(role);
    let mut seen = Vec::new();
    for i in 0..12u16 {
        let mut data = vec![0; rng.below(300) as usize];
        rng.fill_bytes(&mut data);
        let datal = data.len() as u32;
        let header = match (role, rng.below(3), datal) {
            (Role::Controller, 0 | 1, _) | (Role::Controller, _, 0) => {
                let entry = SubmissionQueueEntry::raw(rng.below(256) as u8, 1).with_cid(i);
                Header::CapsuleCmd(CapsuleCmd {
                    entry,
                    data_len: datal,
                })
            }
            (Role::Controller, _, _) => Header::H2CData(H2CData {
                cccid: i,
                ttag: 7,
                datao: 512,
                datal,
                last: rng.chance(1, 2),
            }),
            (Role::Host, 2, 1..) => {
                let last = rng.chance(1, 2);
                Header::C2HData(C2HData {
                    cccid: i,
                    datao: 4,
                    datal,
                    last,
                    success: last && rng.chance(1, 2),
                })
            }
            (Role::Host, 1, _) => Header::R2T(R2T {
                cccid: i,
                ttag: 1,
                r2to: 0,
                r2tl: 4096,
            }),
            (Role::Host, _, _) => Header::CapsuleResp(CapsuleResp {
                entry: CompletionQueueEntry::new(i, Status::INVALID_FIELD),
            }),
        };
        if matches!(header, Header::R2T(_) | Header::CapsuleResp(_)) {
            data.clear();
        }
        bytes.extend(pdu(&header, &data, terms));
        seen.push(Seen::Pdu(header));
        if !data.is_empty() {
            seen.push(Seen::Data(data));
            seen.push(Seen::DataEnd(true));
        }
    }
    (bytes, seen)
}

fn drive_in(role: Role, terms: Terms, bytes: &[u8], how: &mut Arrival<'_>) -> Vec<Seen> {
    drive(role, terms.offer(), &terms.request(), bytes, how)
}

#[test]
fn any_cut_of_the_stream_says_the_same() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let role = if seed % 2 == 0 {
            Role::Controller
        } else {
            Role::Host
        };
        let pda = if rng.chance(1, 2) {
            0
        } else {
            rng.below(32) as u8
        };
        let terms = Terms {
            digests: DIGESTS[seed as usize / 2 % 4],
            pda,
        };
        let (bytes, expected) = conversation(role, terms, &mut rng);

        let mut whole = Arrival {
            piece: &mut || usize::MAX,
            direct: &mut || false,
        };
        let seen = drive_in(role, terms, &bytes, &mut whole);
        assert_eq!(seen[1..], expected, "seed {seed}");

        for cut in 1..bytes.len() {
            let mut first = true;
            let mut piece = || {
                if core::mem::take(&mut first) {
                    cut
                } else {
                    usize::MAX
                }
            };
            let mut how = Arrival {
                piece: &mut piece,
                direct: &mut || false,
            };
            assert_eq!(
                drive_in(role, terms, &bytes, &mut how),
                seen,
                "seed {seed}, cut at {cut}"
            );
        }
        for size in [1, 2, 3, 7, 72, 75, 100] {
            let mut how = Arrival {
                piece: &mut || size,
                direct: &mut || false,
            };
            assert_eq!(
                drive_in(role, terms, &bytes, &mut how),
                seen,
                "seed {seed}, pieces of {size}"
            );
        }
        let (mut sizes, mut paths) = (rng.split(1), rng.split(2));
        for round in 0..50 {
            let mut how = Arrival {
                piece: &mut || sizes.below(200) as usize,
                direct: &mut || paths.chance(1, 2),
            };
            assert_eq!(
                drive_in(role, terms, &bytes, &mut how),
                seen,
                "seed {seed}, round {round}"
            );
        }
    }
}

#[test]
fn bytes_gone_wrong_never_panic_and_cuts_still_agree() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let role = if seed % 2 == 0 {
            Role::Controller
        } else {
            Role::Host
        };
        let terms = Terms {
            digests: DIGESTS[rng.below(4) as usize],
            pda: 0,
        };
        let (good, _) = conversation(role, terms, &mut rng);
        let mut bytes = good;
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => {
                    bytes.remove(at);
                }
                _ => bytes.truncate(at.max(1)),
            }
        }
        let mut whole = Arrival {
            piece: &mut || usize::MAX,
            direct: &mut || false,
        };
        let seen = drive_in(role, terms, &bytes, &mut whole);
        let mut sizes = rng.split(1);
        let mut how = Arrival {
            piece: &mut || sizes.below(64) as usize,
            direct: &mut || true,
        };
        assert_eq!(drive_in(role, terms, &bytes, &mut how), seen, "seed {seed}");
    }
}

#[test]
fn noise_never_panics_and_cuts_agree() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let role = if seed % 2 == 0 {
            Role::Controller
        } else {
            Role::Host
        };
        let mut noise = vec![0; 600];
        rng.fill_bytes(&mut noise);
        // Mostly a known type and lengths near to right, so that more than the first check is
        // reached.
        noise[1] = rng.below(10) as u8;
        noise[2] &= 0xf;
        noise[3] = if rng.chance(1, 2) { 72 } else { 24 };
        noise[7..9].fill(0);
        driver::two_ways(role, &noise);
    }
}

/// What a framer of `role`, past its first PDU, says of the header of `good` after `spoil`.
fn refused(
    role: Role,
    terms: Terms,
    good: &Header,
    data: &[u8],
    spoil: &dyn Fn(&mut Vec<u8>),
) -> Violation {
    let mut bytes = pdu(good, data, terms);
    spoil(&mut bytes);
    let whole = [terms.initialize(role), bytes].concat();
    let mut how = Arrival {
        piece: &mut || usize::MAX,
        direct: &mut || false,
    };
    match drive_in(role, terms, &whole, &mut how).as_slice() {
        [Seen::Pdu(_), Seen::Violation(violation)] => *violation,
        other => panic!("refused as a whole, not {other:?}"),
    }
}

/// Spoils the header and makes its digest good again.
fn resign(bytes: &mut [u8], at: usize, value: &[u8]) {
    let hlen = usize::from(bytes[2]);
    bytes[at..at + value.len()].copy_from_slice(value);
    let digest = Crc32c::of(&bytes[..hlen]);
    bytes[hlen..hlen + 4].copy_from_slice(&digest);
}

/// Who receives, a good PDU, the offset and the bytes that spoil it; FES, FEI and kind of the
/// violation.
type Breach<'a> = (Role, &'a Header, usize, &'a [u8], u16, u32, ViolationKind);

#[test]
fn every_breach_has_its_code() {
    let plain = Terms {
        digests: DIGESTS[0],
        pda: 0,
    };
    let entry = SubmissionQueueEntry::flush(1);
    let command = Header::CapsuleCmd(CapsuleCmd { entry, data_len: 0 });
    let with_data = Header::CapsuleCmd(CapsuleCmd { entry, data_len: 8 });
    let h2c = Header::H2CData(H2CData {
        cccid: 1,
        ttag: 1,
        datao: 0,
        datal: 8,
        last: true,
    });
    let c2h = Header::C2HData(C2HData {
        cccid: 1,
        datao: 0,
        datal: 8,
        last: true,
        success: false,
    });
    let r2t = Header::R2T(R2T {
        cccid: 1,
        ttag: 1,
        r2to: 0,
        r2tl: 4096,
    });
    let response = Header::CapsuleResp(CapsuleResp {
        entry: CompletionQueueEntry::new(1, Status::SUCCESS),
    });
    let eight = [0; 8];

    use Role::{Controller, Host};
    use ViolationKind as Kind;
    #[rustfmt::skip]
    let table: &[Breach<'_>] = &[
        (Controller, &command, 0, &[8], 1, 0, Kind::PduType),
        (Controller, &command, 0, &[0xff], 1, 0, Kind::PduType),
        (Controller, &command, 0, &[5], 1, 0, Kind::PduType),
        (Controller, &command, 0, &[0], 2, 0, Kind::Sequence),
        (Controller, &command, 1, &[1], 1, 1, Kind::Flags),
        (Controller, &command, 1, &[2], 1, 1, Kind::Flags),
        (Controller, &command, 2, &[71], 1, 2, Kind::HeaderLength),
        (Controller, &command, 2, &[0], 1, 2, Kind::HeaderLength),
        (Controller, &command, 4, &[71], 1, 4, Kind::PduLength),
        (Controller, &command, 4, &[0; 4], 1, 4, Kind::PduLength),
        (Controller, &command, 3, &[71, 73], 1, 3, Kind::DataOffset),
        (Controller, &with_data, 3, &[71], 1, 3, Kind::DataOffset),
        (Controller, &with_data, 3, &[73], 1, 3, Kind::DataOffset),
        (Controller, &with_data, 3, &[0], 1, 3, Kind::DataOffset),
        (Controller, &with_data, 3, &[80], 1, 4, Kind::PduLength),
        (Controller, &with_data, 3, &[252], 1, 4, Kind::PduLength),
        (Controller, &with_data, 4, &[0xff; 4], 1, 4, Kind::PduLength),
        (Controller, &with_data, 4, &[0x4c, 0x20, 0, 0], 1, 4, Kind::PduLength),
        (Controller, &with_data, 1, &[2], 1, 1, Kind::Flags),
        (Controller, &h2c, 4, &[24], 1, 4, Kind::PduLength),
        (Controller, &h2c, 4, &[0x1c, 0x20], 5, 0, Kind::Limit),
        (Controller, &h2c, 16, &[9], 1, 16, Kind::DataLength),
        (Controller, &h2c, 16, &[0xff; 4], 1, 16, Kind::DataLength),
        (Controller, &h2c, 16, &[0; 4], 1, 16, Kind::DataLength),
        (Controller, &h2c, 2, &[72], 1, 2, Kind::HeaderLength),
        (Controller, &h2c, 0, &[7], 1, 0, Kind::PduType),
        (Host, &response, 4, &[25], 1, 4, Kind::PduLength),
        (Host, &response, 4, &[23], 1, 4, Kind::PduLength),
        (Host, &response, 0, &[1], 2, 0, Kind::Sequence),
        (Host, &response, 0, &[4], 1, 0, Kind::PduType),
        (Host, &r2t, 16, &[0; 4], 1, 16, Kind::DataLength),
        (Host, &r2t, 4, &[28], 1, 4, Kind::PduLength),
        (Host, &c2h, 1, &[8], 1, 1, Kind::Flags),
        (Host, &c2h, 4, &[0, 0, 0x11], 4, 0, Kind::OutOfRange),
        (Host, &c2h, 16, &[7], 1, 16, Kind::DataLength),
    ];
    for &(role, header, at, bytes, fes, fei, kind) in table {
        let data: &[u8] = if matches!(header, Header::CapsuleCmd(c) if c.data_len == 0)
            || matches!(header, Header::R2T(_) | Header::CapsuleResp(_))
        {
            &[]
        } else {
            &eight
        };
        let spoil = |pdu: &mut Vec<u8>| pdu[at..at + bytes.len()].copy_from_slice(bytes);
        let violation = refused(role, plain, header, data, &spoil);
        let reported = (violation.fes.0, violation.fei, violation.kind);
        assert_eq!(
            reported,
            (fes, fei, kind),
            "{header:?} with {bytes:?} at {at}"
        );
    }
}

#[test]
fn digests_and_alignment_that_were_agreed_are_demanded() {
    let terms = Terms {
        digests: DIGESTS[3],
        pda: 3,
    };
    let entry = SubmissionQueueEntry::flush(1);
    let command = Header::CapsuleCmd(CapsuleCmd { entry, data_len: 0 });
    let with_data = Header::CapsuleCmd(CapsuleCmd { entry, data_len: 8 });
    let said = |header, data: &[u8], spoil: &dyn Fn(&mut Vec<u8>)| {
        let violation = refused(Role::Controller, terms, header, data, spoil);
        (violation.fes.0, violation.fei)
    };
    for flags in [0, 2, 3] {
        assert_eq!(
            said(&command, &[], &|pdu| resign(pdu, 1, &[flags])),
            (1, 1),
            "flags {flags}"
        );
    }
    for flags in [0, 1, 2] {
        assert_eq!(
            said(&with_data, &[0; 8], &|pdu| resign(pdu, 1, &[flags])),
            (1, 1),
            "flags {flags}"
        );
    }
    assert_eq!(
        said(&with_data, &[0; 8], &|pdu| resign(pdu, 3, &[76])),
        (1, 3)
    );
    assert_eq!(
        said(&with_data, &[0; 8], &|pdu| resign(pdu, 3, &[84])),
        (1, 3)
    );
    assert_eq!(
        said(&with_data, &[0; 8], &|pdu| resign(pdu, 4, &[84])),
        (1, 4),
        "no room for the data digest"
    );

    let mut wrong = [0; 4];
    let violation = refused(Role::Controller, terms, &command, &[], &|pdu| pdu[72] ^= 1);
    wrong.copy_from_slice(&pdu(&command, &[], terms)[72..76]);
    wrong[0] ^= 1;
    assert_eq!(
        (violation.fes.0, violation.fei),
        (3, u32::from_le_bytes(wrong)),
        "FEI is the digest that came"
    );
    let violation = refused(Role::Controller, terms, &command, &[], &|pdu| pdu[30] ^= 1);
    assert_eq!(violation.kind, ViolationKind::HeaderDigest);
}

#[test]
fn first_pdu_has_to_be_the_first() {
    let terms = Terms {
        digests: DIGESTS[0],
        pda: 0,
    };
    let command = Header::CapsuleCmd(CapsuleCmd {
        entry: SubmissionQueueEntry::flush(1),
        data_len: 0,
    });
    let response = Header::CapsuleResp(CapsuleResp {
        entry: CompletionQueueEntry::new(1, Status::SUCCESS),
    });
    for (role, header) in [(Role::Controller, command), (Role::Host, response)] {
        let bytes = pdu(&header, &[], terms);
        let mut framer = Framer::new(role, LIMITS);
        let violation = framer
            .next(&mut &bytes[..])
            .expect_err("before ICReq or ICResp");
        assert_eq!((violation.fes.0, violation.fei), (2, 0));
        assert_eq!(framer.offending_header(), &bytes[..usize::from(bytes[2])]);

        let first = terms.initialize(role);
        for (at, value, fes, fei) in [
            (2, 127, 1, 2),
            (4, 129, 1, 4),
            (5, 1, 1, 4),
            (0, 0x80, 1, 0),
        ] {
            let mut bad = first.clone();
            bad[at] = value;
            let violation = Framer::new(role, LIMITS)
                .next(&mut &bad[..])
                .expect_err("spoiled");
            assert_eq!((violation.fes.0, violation.fei), (fes, fei));
        }
        let mut other = first.clone();
        other[0] ^= 1;
        let violation = Framer::new(role, LIMITS)
            .next(&mut &other[..])
            .expect_err("for the other end");
        assert_eq!((violation.fes.0, violation.fei), (1, 0));
    }
}

#[test]
fn nothing_is_looked_at_before_the_agreement() {
    let terms = Terms {
        digests: DIGESTS[3],
        pda: 0,
    };
    let command = Header::CapsuleCmd(CapsuleCmd {
        entry: SubmissionQueueEntry::flush(1),
        data_len: 0,
    });
    let bytes = [
        terms.initialize(Role::Controller),
        pdu(&command, &[], terms),
    ]
    .concat();
    let mut input = &bytes[..];
    let mut framer = Framer::new(Role::Controller, LIMITS);
    assert!(matches!(
        framer.next(&mut input),
        Ok(Some(Event::Pdu(Header::ICReq(_))))
    ));
    assert_eq!(framer.next(&mut input), Ok(None));
    assert_eq!(input.len(), 76, "left where it is");
    framer.negotiated(&terms.request());
    assert_eq!(framer.next(&mut input), Ok(Some(Event::Pdu(command))));
}

#[test]
fn a_term_req_is_checked_too() {
    let mut out = [0; MAX_TERM_REQ];
    let length = Violation::sequence()
        .term_req()
        .encode(Role::Host, &[1; 128], &mut out);
    assert_eq!(length, 152);
    for (at, value, fei) in [(2, 23, 2), (4, 23, 4), (4, 153, 4), (6, 1, 4)] {
        let mut bad = out;
        bad[at] = value;
        let mut framer = Framer::new(Role::Controller, LIMITS);
        let violation = framer.next(&mut &bad[..]).expect_err("spoiled");
        assert_eq!((violation.fes.0, violation.fei), (1, fei));
    }
    let mut framer = Framer::new(Role::Controller, LIMITS);
    let event = framer.next(&mut &out[..]);
    assert!(
        matches!(event, Ok(Some(Event::Pdu(Header::TermReq(_))))),
        "also before ICReq"
    );
}

#[test]
fn the_in_capsule_limit_can_follow_the_queue() {
    let terms = Terms {
        digests: DIGESTS[0],
        pda: 0,
    };
    let header = Header::CapsuleCmd(CapsuleCmd {
        entry: SubmissionQueueEntry::flush(1),
        data_len: 8192,
    });
    let bytes = pdu(&header, &[0; 8192], terms);
    for (limit, good) in [(8192, true), (8191, false)] {
        let mut framer = Framer::new(Role::Controller, LIMITS);
        framer
            .next(&mut &terms.initialize(Role::Controller)[..])
            .expect("in order");
        framer.negotiated(&terms.request());
        framer.set_in_capsule_limit(limit);
        assert_eq!(framer.next(&mut &bytes[..]).is_ok(), good);
    }
}
