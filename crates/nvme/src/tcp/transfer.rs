//! What the data PDUs of one command have to keep to.

use super::header::{C2HData, H2CData, R2T};
use super::violation::Violation;

/// The controller's side of one R2T: the data it asked for and what is still to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct H2cTransfer {
    cccid: u16,
    ttag: u16,
    next: u32,
    end: u32,
}

impl H2cTransfer {
    /// The transfer that `r2t` asks for. Its range must end within 32 bits.
    pub fn new(r2t: &R2T) -> Self {
        let end = r2t
            .r2to
            .checked_add(r2t.r2tl)
            .expect("the range of our R2T lies in a command's buffer");
        Self {
            cccid: r2t.cccid,
            ttag: r2t.ttag,
            next: r2t.r2to,
            end,
        }
    }

    /// Takes the next H2CData PDU's header. Order, range and LAST are checked, and that the tag and
    /// the command are those of this transfer. (DATAL against MAXH2CDATA is checked by the framer.)
    ///
    /// # Errors
    /// [`Violation`]: FES 2 for the wrong tag or command, FES 4 for data out of order or range,
    /// FES 1 for FLAGS.LAST elsewhere than on the last PDU.
    #[inline]
    pub fn accept(&mut self, pdu: &H2CData) -> Result<(), Violation> {
        if pdu.ttag != self.ttag || pdu.cccid != self.cccid {
            return Err(Violation::tag());
        }
        advance(&mut self.next, self.end, pdu.datao, pdu.datal, pdu.last)
    }

    /// Bytes that are still to come.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.end - self.next
    }

    /// Whether all data have been announced (their PDU's data may still be on the way).
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.next == self.end
    }
}

/// The host's side of a command that reads: the data it awaits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct C2hTransfer {
    next: u32,
    end: u32,
}

impl C2hTransfer {
    /// A command that reads `length` bytes.
    pub fn new(length: u32) -> Self {
        Self {
            next: 0,
            end: length,
        }
    }

    /// Takes the next C2HData PDU's header of the command.
    ///
    /// # Errors
    /// [`Violation`]: FES 4 for data out of order or range, FES 1 for FLAGS.LAST elsewhere than on
    /// the last PDU.
    #[inline]
    pub fn accept(&mut self, pdu: &C2HData) -> Result<(), Violation> {
        advance(&mut self.next, self.end, pdu.datao, pdu.datal, pdu.last)
    }

    /// Bytes that are still to come.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.end - self.next
    }

    /// Whether all data have been announced.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.next == self.end
    }
}

impl R2T {
    /// The host's check of an R2T for a command that writes `length` bytes, of which the first
    /// `requested` were asked for already.
    ///
    /// # Errors
    /// [`Violation`], FES 4, if it asks for something again, with a gap, or past the end.
    pub fn check(&self, requested: u32, length: u32) -> Result<(), Violation> {
        let end = u64::from(self.r2to) + u64::from(self.r2tl);
        if self.r2to == requested && end <= u64::from(length) {
            Ok(())
        } else {
            Err(Violation::out_of_range())
        }
    }
}

/// Moves `next` past a PDU that has to begin there, to end at or before `end`, and to be LAST
/// exactly at `end`.
#[inline]
fn advance(next: &mut u32, end: u32, datao: u32, datal: u32, last: bool) -> Result<(), Violation> {
    let pdu_end = u64::from(datao) + u64::from(datal);
    if datao != *next || datal == 0 || pdu_end > u64::from(end) {
        return Err(Violation::out_of_range());
    }
    if last != (pdu_end == u64::from(end)) {
        return Err(Violation::flags());
    }
    *next = pdu_end as u32;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const R2T_8K: R2T = R2T {
        cccid: 7,
        ttag: 3,
        r2to: 4096,
        r2tl: 8192,
    };

    fn data(datao: u32, datal: u32, last: bool) -> H2CData {
        H2CData {
            cccid: 7,
            ttag: 3,
            datao,
            datal,
            last,
        }
    }

    #[test]
    fn data_in_order() {
        let mut transfer = H2cTransfer::new(&R2T_8K);
        assert_eq!(transfer.accept(&data(4096, 4096, false)), Ok(()));
        assert_eq!(
            (transfer.remaining(), transfer.is_complete()),
            (4096, false)
        );
        assert_eq!(transfer.accept(&data(8192, 4096, true)), Ok(()));
        assert!(transfer.is_complete());
        assert_eq!(
            transfer
                .accept(&data(12288, 1, true))
                .expect_err("past the end")
                .fes
                .0,
            4
        );
    }

    #[test]
    fn data_that_do_not_belong() {
        for (bad, fes, fei) in [
            (
                H2CData {
                    ttag: 0,
                    ..data(4096, 8192, true)
                },
                2,
                0,
            ),
            (
                H2CData {
                    cccid: 8,
                    ..data(4096, 8192, true)
                },
                2,
                0,
            ),
            (data(0, 8192, true), 4, 0),
            (data(4100, 8188, true), 4, 0),
            (data(4096, 8193, true), 4, 0),
            (data(4096, 0, false), 4, 0),
            (data(4096, u32::MAX, true), 4, 0),
            (data(4096, u32::MAX - 4095, true), 4, 0),
            (data(4096, 4096, true), 1, 1),
            (data(4096, 8192, false), 1, 1),
        ] {
            let mut transfer = H2cTransfer::new(&R2T_8K);
            let violation = transfer.accept(&bad).expect_err("refused");
            assert_eq!((violation.fes.0, violation.fei), (fes, fei), "{bad:?}");
            assert_eq!(transfer.remaining(), 8192, "a refused PDU changes nothing");
        }
    }

    #[test]
    fn host_side() {
        let mut transfer = C2hTransfer::new(8192);
        let pdu = |datao, datal, last| C2HData {
            cccid: 1,
            datao,
            datal,
            last,
            success: false,
        };
        assert_eq!(
            transfer
                .accept(&pdu(4096, 4096, true))
                .expect_err("gap")
                .fes
                .0,
            4
        );
        assert_eq!(transfer.accept(&pdu(0, 4096, false)), Ok(()));
        assert_eq!(
            transfer
                .accept(&pdu(4096, 8192, true))
                .expect_err("too long")
                .fes
                .0,
            4
        );
        assert_eq!(transfer.accept(&pdu(4096, 4096, true)), Ok(()));
        assert!(transfer.is_complete());

        assert_eq!(R2T_8K.check(4096, 12288), Ok(()));
        for (requested, length) in [(4096, 12287), (0, 12288), (8192, 12288)] {
            assert_eq!(
                R2T_8K.check(requested, length).expect_err("refused").fes.0,
                4
            );
        }
        let far = R2T {
            r2to: u32::MAX,
            r2tl: u32::MAX,
            ..R2T_8K
        };
        assert_eq!(far.check(u32::MAX, u32::MAX).expect_err("refused").fes.0, 4);
    }
}
