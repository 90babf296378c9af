//! Drives a framer with any bytes and holds it to what it promises, whatever the bytes are. Used by
//! the tests here and by the fuzz targets.

use flashyard_nvme::tcp::{
    Digests, Event, Framer, Header, ICReq, ICResp, Limits, MAX_TERM_REQ, Negotiated, Offer, Role,
    Violation, accept_response, answer_request,
};

/// Limits of the framers that are driven.
pub(crate) const LIMITS: Limits = Limits {
    in_capsule: 8192,
    c2h_data: 1 << 20,
};

/// What a framer said, with the pieces of data put together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// A header.
    Pdu(Header),
    /// All data since the last event.
    Data(Vec<u8>),
    /// The end of them.
    DataEnd(bool),
    /// The end of everything.
    Violation(Violation),
}

/// How the bytes reach the framer.
pub(crate) struct Arrival<'a> {
    /// Length of the next piece; at least one byte is given.
    pub(crate) piece: &'a mut dyn FnMut() -> usize,
    /// Whether the next data are received past the framer.
    pub(crate) direct: &'a mut dyn FnMut() -> bool,
}

/// A framer of `role` fed with all of `bytes`; the answer to an ICReq is `offer`.
pub(crate) fn drive(
    role: Role,
    offer: Offer,
    request: &Negotiated,
    bytes: &[u8],
    how: &mut Arrival<'_>,
) -> Vec<Seen> {
    let mut framer = Framer::new(role, LIMITS);
    let mut seen = Vec::new();
    let mut left = bytes;
    while !left.is_empty() {
        let announced = framer.data_remaining() as usize;
        if announced > 0 && (how.direct)() {
            let (data, rest) = left.split_at(left.len().min(announced).min((how.piece)().max(1)));
            framer.data_received_direct(data);
            add_data(&mut seen, data);
            left = rest;
        } else {
            let (mut piece, rest) = left.split_at((how.piece)().clamp(1, left.len()));
            left = rest;
            if !feed(&mut framer, role, offer, request, &mut piece, &mut seen) {
                return seen;
            }
        }
    }
    feed(&mut framer, role, offer, request, &mut &[][..], &mut seen);
    seen
}

/// The bytes behind a first PDU, in one piece and in pieces that they choose themselves: both have
/// to say the same. The first byte says what was agreed.
pub(crate) fn two_ways(role: Role, bytes: &[u8]) {
    let Some((&terms, bytes)) = bytes.split_first() else {
        return;
    };
    let digests = Digests {
        header: terms & 1 != 0,
        data: terms & 2 != 0,
    };
    let pda = if terms & 4 == 0 { 0 } else { terms >> 3 };
    let offer = Offer {
        digests,
        cpda: pda,
        maxh2cdata: 8192,
    };
    let request = Negotiated {
        digests,
        cpda: pda,
        hpda: pda,
        maxr2t: 0,
        maxh2cdata: 8192,
    };
    let first = match role {
        Role::Controller => ICReq {
            pfv: 0,
            hpda: pda,
            digests,
            maxr2t: 0,
        }
        .encode(),
        Role::Host => ICResp {
            pfv: 0,
            cpda: pda,
            digests,
            maxh2cdata: 8192,
        }
        .encode(),
    };
    let bytes = [&first, bytes].concat();
    let mut whole = Arrival {
        piece: &mut || usize::MAX,
        direct: &mut || false,
    };
    let seen = drive(role, offer, &request, &bytes, &mut whole);
    let mut sizes = bytes.iter().cycle();
    let mut piece = || sizes.next().map_or(1, |size| usize::from(*size));
    let mut cut = Arrival {
        piece: &mut piece,
        direct: &mut || true,
    };
    assert_eq!(drive(role, offer, &request, &bytes, &mut cut), seen);
}

/// Feeds one piece; whether the framer goes on.
fn feed(
    framer: &mut Framer,
    role: Role,
    offer: Offer,
    request: &Negotiated,
    piece: &mut &[u8],
    seen: &mut Vec<Seen>,
) -> bool {
    loop {
        let before = piece.len();
        match framer.next(piece) {
            Ok(None) => {
                assert!(piece.is_empty(), "a framer that needs more has taken all");
                return true;
            }
            Ok(Some(Event::Pdu(header))) => {
                seen.push(Seen::Pdu(header));
                let agreed = match header {
                    Header::ICReq(request) => {
                        answer_request(&request, &offer).map(|(_, agreed)| agreed)
                    }
                    Header::ICResp(response) => accept_response(&asked(request), &response),
                    _ => continue,
                };
                match agreed {
                    Ok(agreed) => framer.negotiated(&agreed),
                    Err(violation) => {
                        seen.push(Seen::Violation(violation));
                        return false;
                    }
                }
            }
            Ok(Some(Event::Data(data))) => {
                assert!(!data.is_empty() && data.len() + piece.len() <= before);
                add_data(seen, data);
            }
            Ok(Some(Event::DataEnd { digest_ok })) => seen.push(Seen::DataEnd(digest_ok)),
            Err(violation) => {
                seen.push(Seen::Violation(violation));
                check_refusal(framer, violation, role);
                return false;
            }
        }
    }
}

fn asked(request: &Negotiated) -> ICReq {
    ICReq {
        pfv: 0,
        hpda: request.hpda,
        digests: request.digests,
        maxr2t: request.maxr2t,
    }
}

fn add_data(seen: &mut Vec<Seen>, data: &[u8]) {
    match seen.last_mut() {
        Some(Seen::Data(before)) => before.extend_from_slice(data),
        _ => seen.push(Seen::Data(data.to_vec())),
    }
}

/// After a violation nothing is taken any more, and a TermReq can be written.
fn check_refusal(framer: &mut Framer, violation: Violation, role: Role) {
    let mut more = &[0u8; 64][..];
    assert_eq!(framer.next(&mut more), Err(violation));
    assert_eq!((more.len(), framer.data_remaining()), (64, 0));
    let mut out = [0xaa; MAX_TERM_REQ];
    let length = violation
        .term_req()
        .encode(role, framer.offending_header(), &mut out);
    assert!(
        (32..=152).contains(&length),
        "the header that was wrong goes with it"
    );
}
