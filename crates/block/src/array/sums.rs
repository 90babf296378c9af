//! What the columns of rows are to each other: parity that is made, columns that are computed, and
//! which one does not agree with the others. Pure but for memory.
//!
//! Columns stand by their role: the data, then P, then Q.

use flashyard_codec::parity::{Column, Parity};
use flashyard_runtime::{Buf, Shared as Bytes};

use super::rows::{At, Rows, UNIT};

/// Columns of a stretch of rows by role; nothing where one is not known.
pub(super) type Columns = Vec<Option<Buf>>;

/// The columns of whole rows with these data, parity included; nothing for want of memory.
pub(super) fn encode(rows: &Rows, parity: Parity, range: At, data: &Bytes) -> Option<Vec<Bytes>> {
    let bytes = rows.stretch(range).bytes as usize;
    let mut columns: Vec<Bytes> = Vec::with_capacity(rows.columns);
    if bytes == UNIT as usize {
        // One row: its blocks lie there as they are wanted.
        let parts = (0..rows.data()).map(|role| data.slice(role * bytes..(role + 1) * bytes));
        columns.extend(parts);
    } else {
        let mut bufs = Vec::with_capacity(rows.data());
        for _ in 0..rows.data() {
            bufs.push(Buf::take(bytes)?);
        }
        let mut from = 0;
        for (role, at, length) in rows.pieces(range) {
            bufs[role][at..at + length].copy_from_slice(&data[from..from + length]);
            from += length;
        }
        columns.extend(bufs.into_iter().map(Bytes::from));
    }
    let slices: Vec<&[u8]> = columns.iter().map(|column| &**column).collect();
    let mut p = Buf::take(bytes)?;
    let mut q = match rows.parity {
        1 => None,
        _ => Some(Buf::take(bytes)?),
    };
    let made = parity.generate(&slices, &mut p, q.as_deref_mut());
    debug_assert_eq!(made, Ok(()), "columns are of the same length");
    columns.push(p.into());
    columns.extend(q.map(Bytes::from));
    Some(columns)
}

/// Computes the columns that are wanted and not known; false if too few are known, or for want of
/// memory.
pub(super) fn fill(
    rows: &Rows,
    parity: Parity,
    columns: &mut Columns,
    wanted: impl Fn(usize) -> bool,
) -> bool {
    let Some(bytes) = columns.iter().flatten().map(|buf| buf.len()).next() else {
        return false;
    };
    let mut made: Vec<(usize, Buf)> = Vec::new();
    for (role, column) in columns.iter().enumerate() {
        // All data that are lost are computed together.
        if column.is_none() && (role < rows.data() || wanted(role)) {
            let Some(buf) = Buf::take(bytes) else {
                return false;
            };
            made.push((role, buf));
        }
    }
    if !made.iter().any(|(role, _)| wanted(*role)) {
        return true;
    }
    let filled = {
        let mut lost = made.iter_mut();
        let mut column = |role: usize| match &columns[role] {
            Some(known) => Some(Column::Known(known)),
            None if role < rows.data() || wanted(role) => {
                lost.next().map(|(_, room)| Column::Lost(room))
            }
            None => None,
        };
        let mut data: Vec<Column> = (0..rows.data()).filter_map(&mut column).collect();
        let p = column(rows.data());
        let q = (rows.parity > 1).then(|| column(rows.data() + 1)).flatten();
        parity.reconstruct(&mut data, p, q).is_ok()
    };
    if filled {
        for (role, buf) in made {
            columns[role] = Some(buf);
        }
    }
    filled
}

/// A block that was changed so that its row agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) role: usize,
    /// Its first byte in the column.
    pub(super) from: usize,
    /// Whether the row says that this block was wrong. If not, any block of it may have been.
    pub(super) was_wrong: bool,
}

/// Makes the rows of a stretch agree, all of whose columns are known; gives what is changed.
///
/// P alone does not say which column is wrong, so P is changed. With P and Q a single column that
/// is wrong shows; where several are, P and Q are changed.
pub(super) fn agree(rows: &Rows, parity: Parity, columns: &mut [Buf]) -> Option<Vec<Changed>> {
    let bytes = columns.first().map_or(0, |column| column.len());
    let mut right = vec![Buf::take(bytes)?];
    if rows.parity > 1 {
        right.push(Buf::take(bytes)?);
    }
    generate(rows, parity, columns, &mut right);
    let mut changed = Vec::new();
    for at in (0..bytes).step_by(UNIT as usize) {
        let block = at..at + UNIT as usize;
        let wrong = |which: usize| {
            right[which][block.clone()] != columns[rows.data() + which][block.clone()]
        };
        let wrong: Vec<usize> = (0..rows.parity).filter(|which| wrong(*which)).collect();
        if wrong.len() == 2
            && let Some((role, found)) = single(rows, parity, columns, at)
        {
            columns[role][block].copy_from_slice(&found);
            changed.push(Changed {
                role,
                from: at,
                was_wrong: true,
            });
            continue;
        }
        let was_wrong = wrong.len() < rows.parity;
        for which in wrong {
            columns[rows.data() + which][block.clone()]
                .copy_from_slice(&right[which][block.clone()]);
            changed.push(Changed {
                role: rows.data() + which,
                from: at,
                was_wrong,
            });
        }
    }
    Some(changed)
}

fn generate(rows: &Rows, parity: Parity, columns: &[Buf], into: &mut [Buf]) {
    let data: Vec<&[u8]> = columns[..rows.data()].iter().map(|buf| &**buf).collect();
    let made = match into {
        [p, q] => parity.generate(&data, p, Some(q)),
        [p] => parity.generate(&data, p, None),
        _ => Ok(()),
    };
    debug_assert_eq!(made, Ok(()), "columns are of the same length");
}

/// The only column of data that can be wrong in a row of which both P and Q do not agree, and what
/// it has to hold.
fn single(rows: &Rows, parity: Parity, columns: &[Buf], at: usize) -> Option<(usize, Vec<u8>)> {
    let block = at..at + UNIT as usize;
    let (p, q) = (rows.data(), rows.data() + 1);
    for role in 0..rows.data() {
        let (mut found, mut expected) = (vec![0; UNIT as usize], vec![0; UNIT as usize]);
        let mut data: Vec<Column> = Vec::new();
        let mut room = Some(&mut found);
        for (other, column) in columns[..rows.data()].iter().enumerate() {
            match room.take_if(|_| other == role) {
                Some(room) => data.push(Column::Lost(room)),
                None => data.push(Column::Known(&column[block.clone()])),
            }
        }
        let known = Column::Known(&columns[p][block.clone()]);
        let wanted = Column::Lost(&mut expected);
        let computed = parity.reconstruct(&mut data, Some(known), Some(wanted));
        drop(data);
        if computed.is_ok() && expected[..] == columns[q][block.clone()] {
            return Some((role, found));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    fn some(rows: &Rows, blocks: usize, rng: &mut Rng) -> (At, Vec<u8>, Vec<Vec<u8>>) {
        let range = At {
            at: rows.alike,
            bytes: blocks as u64 * rows.row(),
        };
        let mut data = Buf::take(range.bytes as usize).expect("memory");
        rng.fill_bytes(&mut data);
        let plain = data.to_vec();
        let columns = encode(rows, Parity::new(), range, &data.into()).expect("memory");
        let columns = columns.iter().map(|column| column.to_vec()).collect();
        (range, plain, columns)
    }

    fn buf(bytes: &[u8]) -> Buf {
        let mut buf = Buf::take(bytes.len()).expect("memory");
        buf.copy_from_slice(bytes);
        buf
    }

    fn shapes() -> [Rows; 5] {
        [(3, 1), (5, 1), (16, 1), (4, 2), (7, 2)]
            .map(|(columns, parity)| Rows::new(columns, parity, 1 << 20))
    }

    #[test]
    fn any_columns_that_parity_bears_are_computed_from_the_others() {
        let mut rng = Rng::new(1);
        for rows in shapes() {
            for blocks in [1, 3] {
                let (range, plain, columns) = some(&rows, blocks, &mut rng);
                let mut back = Vec::new();
                for (role, at, length) in rows.pieces(range) {
                    back.extend_from_slice(&columns[role][at..at + length]);
                }
                assert_eq!(back, plain);
                for one in 0..rows.columns {
                    for other in 0..rows.columns {
                        let lost = |role: usize| role == one || (rows.parity > 1 && role == other);
                        let known = columns.iter().enumerate();
                        let known = known.map(|(role, it)| (!lost(role)).then(|| buf(it)));
                        let mut known: Columns = known.collect();
                        assert!(fill(&rows, Parity::new(), &mut known, |_| true));
                        for (role, column) in known.iter().enumerate() {
                            let column = column.as_ref().expect("it was filled");
                            assert_eq!(**column, *columns[role], "{one} and {other} of {rows:?}");
                        }
                    }
                }
                let mut few: Columns = columns.iter().map(|it| Some(buf(it))).collect();
                few[..=rows.parity].fill_with(|| None);
                assert!(!fill(&rows, Parity::new(), &mut few, |_| true));
            }
        }
    }

    #[test]
    fn rows_agree_and_a_single_wrong_block_is_found_where_p_and_q_are() {
        let mut rng = Rng::new(2);
        for rows in shapes() {
            let (_, _, columns) = some(&rows, 3, &mut rng);
            for wrong in 0..rows.columns {
                let mut now: Vec<Buf> = columns.iter().map(|it| buf(it)).collect();
                let parity = Parity::new();
                assert_eq!(agree(&rows, parity, &mut now), Some(vec![]));
                now[wrong][5000] ^= 4;
                let changed = agree(&rows, parity, &mut now).expect("memory");
                // P alone does not say which.
                let was_wrong = rows.parity > 1;
                let expected = Changed {
                    role: if was_wrong { wrong } else { rows.data() },
                    from: 4096,
                    was_wrong,
                };
                assert_eq!(changed, [expected], "{rows:?}");
                assert_eq!(agree(&rows, parity, &mut now), Some(vec![]));
                if expected.role == wrong {
                    assert_eq!(*now[wrong], *columns[wrong]);
                }
            }
        }
    }

    #[test]
    fn of_two_wrong_blocks_in_a_row_none_is_said_to_be_the_one() {
        let mut rng = Rng::new(3);
        let rows = Rows::new(7, 2, 1 << 20);
        let (_, _, columns) = some(&rows, 1, &mut rng);
        let mut now: Vec<Buf> = columns.iter().map(|it| buf(it)).collect();
        now[0][70] ^= 4;
        now[3][900] ^= 1;
        let changed = agree(&rows, Parity::new(), &mut now).expect("memory");
        let roles: Vec<usize> = changed.iter().map(|it| it.role).collect();
        assert_eq!(roles, [rows.data(), rows.data() + 1]);
        assert!(changed.iter().all(|it| !it.was_wrong), "{changed:?}");
        assert_eq!(agree(&rows, Parity::new(), &mut now), Some(vec![]));
    }
}
