//! The exchange of ICReq and ICResp: what a connection agrees on.

use super::header::{ICReq, ICResp, Outgoing};
use super::protocol::{Digests, Role, offset};
use super::violation::Violation;

/// The greatest CPDA or HPDA: data at multiples of 128 bytes.
const MAX_PDA: u8 = 31;
/// The least MAXH2CDATA.
const MIN_MAXH2CDATA: u32 = 4096;

/// What a controller is willing to agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Digests it computes if the host asks for them. Linux refuses a connection that does not use
    /// all it asked for.
    pub digests: Digests,
    /// Controller PDU Data Alignment; Linux refuses anything but 0.
    pub cpda: u8,
    /// Maximum Host to Controller Data, bytes; at least 4,096 and a multiple of 4.
    pub maxh2cdata: u32,
}

/// What both ends agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Negotiated {
    /// Digests in use.
    pub digests: Digests,
    /// Alignment of data sent to the controller.
    pub cpda: u8,
    /// Alignment of data sent to the host.
    pub hpda: u8,
    /// Outstanding R2Ts of a command, zero-based.
    pub maxr2t: u32,
    /// Most bytes of data in one H2CData PDU.
    pub maxh2cdata: u32,
}

impl Negotiated {
    /// How this end sends PDUs.
    pub const fn outgoing(&self, role: Role) -> Outgoing {
        let pda = match role {
            Role::Controller => self.hpda,
            Role::Host => self.cpda,
        };
        Outgoing {
            digests: self.digests,
            pda,
        }
    }
}

/// The controller's answer to an ICReq.
///
/// # Errors
/// A [`Violation`] (FES 6) of a parameter that cannot be served.
pub fn answer_request(request: &ICReq, offer: &Offer) -> Result<(ICResp, Negotiated), Violation> {
    assert!(
        is_valid_maxh2cdata(offer.maxh2cdata) && offer.cpda <= MAX_PDA,
        "an offer that a host can accept"
    );
    if request.pfv != 0 {
        return Err(Violation::parameter(offset::PFV));
    }
    if request.hpda > MAX_PDA {
        return Err(Violation::parameter(offset::PDA));
    }
    let digests = Digests {
        header: request.digests.header && offer.digests.header,
        data: request.digests.data && offer.digests.data,
    };
    let response = ICResp {
        pfv: 0,
        cpda: offer.cpda,
        digests,
        maxh2cdata: offer.maxh2cdata,
    };
    Ok((response, agreed(request, &response)))
}

/// The host's look at an ICResp.
///
/// # Errors
/// A [`Violation`] (FES 6) of a parameter that cannot be served: digests that were not asked for
/// among them.
pub fn accept_response(request: &ICReq, response: &ICResp) -> Result<Negotiated, Violation> {
    if response.pfv != 0 {
        return Err(Violation::parameter(offset::PFV));
    }
    if response.cpda > MAX_PDA {
        return Err(Violation::parameter(offset::PDA));
    }
    let unasked = response.digests.header && !request.digests.header
        || response.digests.data && !request.digests.data;
    if unasked {
        return Err(Violation::parameter(offset::DIGEST));
    }
    if !is_valid_maxh2cdata(response.maxh2cdata) {
        return Err(Violation::parameter(offset::MAXH2CDATA));
    }
    Ok(agreed(request, response))
}

const fn agreed(request: &ICReq, response: &ICResp) -> Negotiated {
    Negotiated {
        digests: response.digests,
        cpda: response.cpda,
        hpda: request.hpda,
        maxr2t: request.maxr2t,
        maxh2cdata: response.maxh2cdata,
    }
}

const fn is_valid_maxh2cdata(bytes: u32) -> bool {
    bytes >= MIN_MAXH2CDATA && bytes.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::FatalErrorStatus;

    const BOTH: Digests = Digests {
        header: true,
        data: true,
    };
    const OFFER: Offer = Offer {
        digests: BOTH,
        cpda: 0,
        maxh2cdata: 131_072,
    };

    #[test]
    fn what_linux_asks_for() {
        let request = ICReq {
            digests: BOTH,
            ..ICReq::default()
        };
        let (response, negotiated) = answer_request(&request, &OFFER).expect("in order");
        assert_eq!(
            response,
            ICResp {
                pfv: 0,
                cpda: 0,
                digests: BOTH,
                maxh2cdata: 131_072
            }
        );
        assert_eq!(accept_response(&request, &response), Ok(negotiated));
        assert_eq!(
            negotiated.outgoing(Role::Controller),
            Outgoing {
                digests: BOTH,
                pda: 0
            }
        );
    }

    #[test]
    fn digests_are_what_both_want() {
        let only_data = Digests {
            header: false,
            data: true,
        };
        let offer = Offer {
            digests: only_data,
            ..OFFER
        };
        let (response, _) = answer_request(
            &ICReq {
                digests: BOTH,
                ..ICReq::default()
            },
            &offer,
        )
        .expect("in order");
        assert_eq!(response.digests, only_data);
        let (response, _) = answer_request(&ICReq::default(), &offer).expect("in order");
        assert_eq!(response.digests, Digests::default());
    }

    #[test]
    fn alignment_is_for_the_other_end() {
        let request = ICReq {
            hpda: 31,
            ..ICReq::default()
        };
        let (_, negotiated) =
            answer_request(&request, &Offer { cpda: 1, ..OFFER }).expect("in order");
        assert_eq!(negotiated.outgoing(Role::Controller).pda, 31);
        assert_eq!(negotiated.outgoing(Role::Host).pda, 1);
    }

    #[test]
    fn parameters_that_cannot_be_served() {
        let unsupported = |fei| Violation {
            fes: FatalErrorStatus::UNSUPPORTED_PARAMETER,
            fei,
            kind: crate::tcp::ViolationKind::Parameter,
        };
        let request = ICReq::default();
        for (bad, at) in [
            (ICReq { pfv: 1, ..request }, 8),
            (
                ICReq {
                    hpda: 32,
                    ..request
                },
                10,
            ),
        ] {
            assert_eq!(answer_request(&bad, &OFFER), Err(unsupported(at)));
        }
        let response = ICResp {
            maxh2cdata: 4096,
            ..ICResp::default()
        };
        for (bad, at) in [
            (
                ICResp {
                    pfv: 256,
                    ..response
                },
                8,
            ),
            (
                ICResp {
                    cpda: 255,
                    ..response
                },
                10,
            ),
            (
                ICResp {
                    digests: BOTH,
                    ..response
                },
                11,
            ),
            (
                ICResp {
                    maxh2cdata: 4092,
                    ..response
                },
                12,
            ),
            (
                ICResp {
                    maxh2cdata: 4097,
                    ..response
                },
                12,
            ),
        ] {
            assert_eq!(accept_response(&request, &bad), Err(unsupported(at)));
        }
    }
}
