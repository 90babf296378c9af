//! Parity of the columns of a row: P, their sum, and Q, the sum of each times a power of 2 in a
//! field of 256 elements. With P any one column can be lost, with P and Q any two.
//!
//! Columns may differ in length: beyond its end a column counts as zeroes, which are neither stored
//! nor read. P and Q are as long as the longest column.
//!
//! Which columns are lost is known to the caller; parity cannot tell which one lies.

mod field;
mod kernels;

use std::error::Error;
use std::fmt;

use kernels::{Path, Source, combine};

/// Columns of data at most.
pub const MOST_COLUMNS: usize = 64;

/// A column that is there, or room for one that is not.
#[derive(Debug)]
pub enum Column<'a> {
    /// Its bytes.
    Known(&'a [u8]),
    /// It is lost; its bytes go here, as many as it has.
    Lost(&'a mut [u8]),
}

impl Column<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Known(bytes) => bytes.len(),
            Self::Lost(room) => room.len(),
        }
    }
}

/// Why nothing was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityError {
    /// P or Q is not as long as the longest column.
    Length,
    /// More columns than [`MOST_COLUMNS`].
    TooManyColumns,
    /// More is lost than the parity that is there makes up for.
    TooManyLost,
}

impl fmt::Display for ParityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("parity is not as long as the longest column"),
            Self::TooManyColumns => write!(f, "more than {MOST_COLUMNS} columns"),
            Self::TooManyLost => f.write_str("more columns are lost than parity makes up for"),
        }
    }
}

impl Error for ParityError {}

/// Computes parity, in the fastest way that this processor has.
#[derive(Clone, Copy, Debug)]
pub struct Parity {
    path: Path,
}

impl Default for Parity {
    fn default() -> Self {
        Self::new()
    }
}

impl Parity {
    /// The fastest way here. Looks at the processor, so it is to be kept.
    pub fn new() -> Self {
        let path = Path::available().first().copied();
        Self {
            path: path.unwrap_or(Path::Portable),
        }
    }

    /// Every way that this processor has, the fastest first: all give the same.
    pub fn every_way() -> Vec<Self> {
        let paths = Path::available().into_iter();
        paths.map(|path| Self { path }).collect()
    }

    /// How it computes, for figures.
    pub fn name(self) -> &'static str {
        match self.path {
            Path::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => "AVX-512 and GFNI",
        }
    }

    /// P of these columns, and Q if it is wanted.
    pub fn generate(
        self,
        data: &[&[u8]],
        p: &mut [u8],
        q: Option<&mut [u8]>,
    ) -> Result<(), ParityError> {
        let mut row = Row::default();
        for bytes in data {
            row.lens.push(bytes.len());
            row.known.push((row.known.len(), bytes));
        }
        row.p = Some(Column::Lost(p));
        row.q = q.map(Column::Lost);
        self.compute(row)
    }

    /// Fills all columns that are lost, P and Q among them; parity that is not there and not wanted
    /// is `None`. The error [`ParityError::TooManyLost`] leaves all as it was.
    pub fn reconstruct(
        self,
        data: &mut [Column],
        p: Option<Column>,
        q: Option<Column>,
    ) -> Result<(), ParityError> {
        let mut row = Row {
            p,
            q,
            ..Row::default()
        };
        for (place, column) in data.iter_mut().enumerate() {
            row.lens.push(column.len());
            match column {
                Column::Known(bytes) => row.known.push((place, bytes)),
                Column::Lost(room) => row.lost.push((place, room)),
            }
        }
        self.compute(row)
    }

    fn compute(self, mut row: Row) -> Result<(), ParityError> {
        if row.lens.len() > MOST_COLUMNS {
            return Err(ParityError::TooManyColumns);
        }
        row.lens.sort_unstable();
        row.lens.dedup();
        let longest = row.lens.last().copied().unwrap_or(0);
        let parity = [&row.p, &row.q].into_iter().flatten();
        if parity.map(Column::len).any(|len| len != longest) {
            return Err(ParityError::Length);
        }
        let mut start = 0;
        for end in std::mem::take(&mut row.lens) {
            // What is lost in one stretch of columns is never less than in the next one, so the
            // first one is refused, or none is.
            self.compute_stretch(&mut row, start..end)?;
            start = end;
        }
        Ok(())
    }

    /// Fills what is lost of a stretch in which every column has all bytes or none.
    fn compute_stretch(
        self,
        row: &mut Row,
        stretch: std::ops::Range<usize>,
    ) -> Result<(), ParityError> {
        if stretch.is_empty() {
            return Ok(());
        }
        let reaches = |len: usize| len >= stretch.end;
        let lost = row.lost.iter().filter(|(_, room)| reaches(room.len()));
        let lost: Vec<usize> = lost.map(|(place, _)| *place).collect();
        let terms = solve(&lost, state(row.p.as_ref()), state(row.q.as_ref()))?;
        let times = |each: &dyn Fn(&Term) -> u8| {
            let mut times = [0; 2];
            for (times, term) in times.iter_mut().zip(&terms) {
                *times = each(term);
            }
            times
        };
        let data = row.known.iter().filter(|(_, bytes)| reaches(bytes.len()));
        let data = data.map(|(place, bytes)| Source {
            bytes: &bytes[stretch.clone()],
            times: times(&|term| term.of_data(*place)),
        });
        let mut sources: Vec<Source> = data.collect();
        let mut outputs: Vec<&mut [u8]> = Vec::with_capacity(2);
        for (_, room) in &mut row.lost {
            if reaches(room.len()) {
                outputs.push(&mut room[stretch.clone()]);
            }
        }
        let p_times = times(&|term| term.p);
        let q_times = times(&|term| term.q);
        for (parity, times) in [(&mut row.p, p_times), (&mut row.q, q_times)] {
            match parity {
                Some(Column::Known(bytes)) => sources.push(Source {
                    bytes: &bytes[stretch.clone()],
                    times,
                }),
                Some(Column::Lost(room)) => outputs.push(&mut room[stretch.clone()]),
                None => {}
            }
        }
        sources.retain(|source| source.times != [0; 2]);
        if !outputs.is_empty() {
            combine(self.path, &sources, &mut outputs);
        }
        Ok(())
    }
}

/// The columns of a row, sorted by what is there.
#[derive(Default)]
struct Row<'a> {
    lens: Vec<usize>,
    known: Vec<(usize, &'a [u8])>,
    lost: Vec<(usize, &'a mut [u8])>,
    p: Option<Column<'a>>,
    q: Option<Column<'a>>,
}

/// Parity of a row, as far as what can be computed depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Known,
    Wanted,
    Absent,
}

fn state(parity: Option<&Column>) -> State {
    match parity {
        Some(Column::Known(_)) => State::Known,
        Some(Column::Lost(_)) => State::Wanted,
        None => State::Absent,
    }
}

/// How something lost follows from the rest: `p` times the sum of P and of all known columns, and
/// `q` times that of Q and of all known columns times their powers. Parity that is not there counts
/// as zero in these sums.
struct Term {
    p: u8,
    q: u8,
}

impl Term {
    /// The coefficient of a known column.
    fn of_data(&self, place: usize) -> u8 {
        self.p ^ field::multiply(self.q, field::power(place))
    }
}

/// The terms of all that is lost: the columns, then P and Q where they are wanted; two at most.
fn solve(lost: &[usize], p: State, q: State) -> Result<Vec<Term>, ParityError> {
    use State::{Known, Wanted};
    let mut terms = match (lost, p, q) {
        ([], ..) => Vec::new(),
        ([_], Known, _) => vec![Term { p: 1, q: 0 }],
        ([x], _, Known) => {
            let q = field::inverse(field::power(*x));
            vec![Term { p: 0, q }]
        }
        ([x, y], Known, Known) => {
            let [x, y] = [field::power(*x), field::power(*y)];
            // From x + y = P' and gx x + gy y = Q'.
            let q = field::inverse(x ^ y);
            let term = |other| Term {
                p: field::multiply(other, q),
                q,
            };
            vec![term(y), term(x)]
        }
        _ => return Err(ParityError::TooManyLost),
    };
    // A column that is lost beside parity: that parity is the known columns and what the other one
    // gives for the lost one.
    let beside = terms.first().map_or(0, |term| term.q);
    if p == Wanted {
        terms.push(Term { p: 1, q: beside });
    }
    if q == Wanted {
        let p = lost.first().map_or(0, |x| field::power(*x));
        terms.push(Term { p, q: 1 });
    }
    match terms.len() {
        ..=2 => Ok(terms),
        _ => Err(ParityError::TooManyLost),
    }
}
