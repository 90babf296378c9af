//! What a command does with the file that holds its device: data are read while the model reads,
//! and written when it has programmed or erased. The command is complete when both are done.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use flashyard_block::IoError;
use flashyard_flash::channel::{ChunkInfo, ChunkState, MOST_ADDRESSES, Metadata, Op};

use super::file_store::{FileStore, Sealed, Staged};
use super::image::{Fate, PIECE};

/// Data of sectors that were read.
#[derive(Debug, Default)]
pub(super) enum Pages {
    /// Where they are always.
    #[default]
    InMemory,
    /// Here, those of the places with a bit, one behind the other.
    Loaded { places: u64, bytes: Vec<u8> },
}

/// What is left to do when the model has finished.
#[derive(Debug, Default)]
pub(super) enum Work {
    #[default]
    Nothing,
    /// Write units, and the place of the first sector of each run among the addresses.
    Write(Vec<(usize, Staged)>),
    Reset(Vec<u64>),
}

/// Something to do with the file.
#[derive(Debug)]
pub(super) enum Job {
    /// What was programmed, and chunks that ended before they were full.
    Write {
        runs: Vec<Sealed>,
        ended: Vec<ChunkInfo>,
    },
    /// Chunks whose erase has ended, well or not.
    Reset(Vec<ChunkInfo>),
    /// Sectors to be read, those with a bit.
    Read { addresses: Vec<u64>, wanted: u64 },
}

impl Pages {
    /// No data, though they are not in memory.
    pub fn nothing() -> Self {
        Self::Loaded {
            places: 0,
            bytes: Vec::new(),
        }
    }

    /// Data of a place among the addresses; nothing when they are not here.
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        match self {
            Self::Loaded { places, bytes } if places >> place & 1 == 1 => {
                let before = (places & ((1 << place) - 1)).count_ones() as usize;
                bytes.get(before * PIECE..(before + 1) * PIECE)
            }
            _ => None,
        }
    }
}

impl Work {
    /// What a command that the device has taken has to do with the file later.
    pub fn begin(store: &FileStore, op: Op<'_>, addresses: &[u64], accepted: u64) -> Self {
        match op {
            Op::Write { metadata } => Self::stage(store, addresses, metadata, accepted),
            Op::Reset => Self::Reset(addresses.to_vec()),
            Op::Read | Op::Copy { .. } => Self::Nothing,
        }
    }

    /// Room for runs of write units of a chunk, out of `addresses`, those that were `accepted`.
    fn stage(store: &FileStore, addresses: &[u64], metadata: &[Metadata], accepted: u64) -> Self {
        let chunk = |place: usize| Some(store.image().chunk_of(addresses[place])?.0);
        let mut runs = Vec::new();
        let mut from = 0;
        while from < addresses.len() {
            let goes_on = |to: usize| {
                let follows = addresses[to] == addresses[from] + (to - from) as u64;
                follows && chunk(to) == chunk(from) && accepted >> to & 1 == 1
            };
            let end = (from + 1..addresses.len()).find(|&to| !goes_on(to));
            let end = end.unwrap_or(addresses.len());
            if accepted >> from & 1 == 1 {
                let zeros = [Metadata::default(); MOST_ADDRESSES];
                let metadata = metadata.get(from..end).unwrap_or(&zeros[..end - from]);
                runs.push((from, store.stage(addresses[from], metadata)));
            }
            from = end;
        }
        Self::Write(runs)
    }

    /// Stores data of a sector of a write.
    pub fn store(&mut self, store: &FileStore, address: u64, data: &[u8]) {
        let Self::Write(runs) = self else {
            return;
        };
        let sector_of = |run: &Staged| {
            let sector = address.checked_sub(run.first)?;
            (sector < run.metadata.len() as u64).then_some(sector as usize)
        };
        let found = runs
            .iter_mut()
            .find_map(|(_, run)| Some((sector_of(run)?, run)));
        if let Some((sector, run)) = found {
            store.sector_of(run, sector).copy_from_slice(data);
        }
    }

    /// What to do now that the model is done; `failed` has a bit for each address that failed, and
    /// `chunk` tells how one is.
    pub fn job(
        self,
        store: &FileStore,
        failed: u64,
        chunk: impl Fn(u64) -> Option<ChunkInfo>,
    ) -> Option<Job> {
        match self {
            Self::Nothing => None,
            Self::Reset(addresses) => Some(Job::Reset(
                addresses.into_iter().filter_map(chunk).collect(),
            )),
            Self::Write(staged) => {
                let mut ended = Vec::new();
                let mut runs = Vec::new();
                for (from, staged) in staged {
                    let sectors = staged.metadata.len();
                    let good = (failed >> from).trailing_zeros() as usize;
                    if good < sectors {
                        let over = |info: &ChunkInfo| info.state != ChunkState::Open;
                        ended.extend(chunk(staged.first).filter(over));
                    }
                    runs.extend(store.seal(staged, good.min(sectors)));
                }
                Some(Job::Write { runs, ended })
            }
        }
    }
}

impl Job {
    /// Does it; durable at the end. Of a read, which sectors could not be read, and the others.
    pub async fn run(self, store: &FileStore) -> Result<(u64, Option<Pages>), IoError> {
        match self {
            Self::Read { addresses, wanted } => {
                let (failed, pages) = load(store, &addresses, wanted).await;
                return Ok((failed, Some(pages)));
            }
            Self::Write { runs, ended } => {
                for run in &runs {
                    store.write(run).await?;
                }
                for info in &ended {
                    end(store, info).await?;
                }
                store.flush().await?;
                for run in &runs {
                    store.flushed(run);
                }
                for run in &runs {
                    store.settle_full(run).await?;
                }
            }
            Self::Reset(chunks) => {
                for info in &chunks {
                    end(store, info).await?;
                }
                store.flush().await?;
                for info in &chunks {
                    if let Some((chunk, _)) = store.image().chunk_of(info.address) {
                        store.forget(chunk).await?;
                    }
                }
            }
        }
        Ok((0, None))
    }
}

/// Notes how a chunk is that has ended, or was erased.
async fn end(store: &FileStore, info: &ChunkInfo) -> Result<(), IoError> {
    let Some((chunk, _)) = store.image().chunk_of(info.address) else {
        return Ok(());
    };
    match info.state {
        ChunkState::Free => store.erase(chunk, info.resets).await,
        ChunkState::Offline => store.end(chunk, Fate::Offline).await,
        ChunkState::Closed => store.end(chunk, Fate::Closed(info.write_pointer)).await,
        ChunkState::Open => Ok(()),
    }
}

/// A sector that is read: its place among the addresses, its chunk, and its number there.
type Sought = (usize, u32, u32);

/// Reads the sectors with a bit in `places`; which of them could not be read, or are not what was
/// written.
async fn load(store: &FileStore, addresses: &[u64], places: u64) -> (u64, Pages) {
    let wanted = (0..addresses.len()).filter(|place| places >> place & 1 == 1);
    let sought: Vec<Sought> = wanted
        .filter_map(|place| {
            let (chunk, sector) = store.image().chunk_of(addresses[place])?;
            Some((place, chunk, sector))
        })
        .collect();
    let piece = |&(_, chunk, sector): &Sought| store.image().sector(chunk, sector);
    let mut bytes = vec![0; sought.len() * PIECE];
    let mut reads = Vec::new();
    let mut rest = &mut bytes[..];
    for run in sought.chunk_by(|one, next| piece(one) + 1 == piece(next)) {
        let (target, behind) = rest.split_at_mut(run.len() * PIECE);
        rest = behind;
        reads.push(Box::pin(async move {
            let read = store.read(piece(&run[0]), target).await.is_ok();
            let sectors = run.iter().zip(target.chunks_exact(PIECE));
            let bad = sectors.filter(|((_, chunk, sector), data)| {
                !read || !store.is_sound(*chunk, *sector, data)
            });
            bad.fold(0_u64, |bits, ((place, ..), _)| bits | 1 << place)
        }));
    }
    let failed = together(reads).await;
    (failed, Pages::Loaded { places, bytes })
}

/// Runs all at the same time; their results as one.
async fn together(mut all: Vec<Pin<Box<impl Future<Output = u64>>>>) -> u64 {
    let mut sum = 0;
    poll_fn(|context| {
        all.retain_mut(|one| match one.as_mut().poll(context) {
            Poll::Ready(bits) => {
                sum |= bits;
                false
            }
            Poll::Pending => true,
        });
        match all.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    sum
}
