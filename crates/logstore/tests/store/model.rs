//! What volumes promise: which versions each chunk may have, now and after a cut.

use std::collections::{BTreeMap, BTreeSet};

use flashyard_logstore::{Lineage, Outcome, Request};

/// What was written; 0 for zeroes.
pub type Version = u64;

/// What a host asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    Write {
        lineage: Lineage,
        chunk: u64,
        count: u32,
        durable: bool,
    },
    Trim {
        lineage: Lineage,
        chunk: u64,
        count: u64,
    },
    Read {
        lineage: Lineage,
        chunk: u64,
        count: u32,
    },
    Flush {
        lineage: Lineage,
    },
}

#[derive(Clone, Copy, Debug)]
struct Write {
    request: Request,
    version: Version,
    answered: bool,
}

/// Writes to a chunk, from the newest that is certainly durable on.
#[derive(Clone, Debug)]
struct Chunk {
    passed: usize,
    writes: Vec<Write>,
    /// Writes from before a cut of which one counts, and it was not seen yet which.
    unsure: usize,
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    version: Version,
    /// Of a flush: the newest answered write of each chunk.
    from: Vec<usize>,
    /// Of a read: what each chunk may be when it begins.
    allowed: Vec<Vec<Version>>,
}

#[derive(Debug, Default)]
pub struct Model {
    volumes: BTreeMap<Lineage, Vec<Chunk>>,
    /// Snapshots, with their volume.
    snapshots: BTreeMap<Lineage, Lineage>,
    /// Snapshots that were asked for: their volume, and what each chunk may be.
    coming: BTreeMap<Lineage, (Lineage, Vec<Vec<Version>>)>,
    asked: BTreeMap<Request, Asked>,
    next: Version,
    /// Writes that were answered that the pool is full.
    pub full: u64,
    /// Volumes of which some versions are zeroes.
    pub packed: BTreeSet<Lineage>,
    /// Reads that were answered with a media error, and whether they may be.
    pub media_errors: u64,
    pub may_lose: bool,
    pub may_be_read_only: bool,
}

impl Chunk {
    fn answered(&self) -> usize {
        let newest = self.writes.iter().rposition(|write| write.answered);
        self.passed + newest.unwrap_or(0)
    }

    /// What may be read now: the newest answered write, and those in flight.
    fn visible(&self) -> Vec<Version> {
        let answered = self.answered() - self.passed;
        let from = if answered < self.unsure { 0 } else { answered };
        let writes = self.writes[from..].iter();
        writes.map(|write| write.version).collect()
    }

    /// One of these, and it does not change any more.
    fn one_of(versions: &[Version]) -> Self {
        let writes = versions.iter().map(|&version| Write {
            request: 0,
            version,
            answered: true,
        });
        Self {
            passed: 0,
            writes: writes.collect(),
            unsure: if versions.len() > 1 {
                versions.len()
            } else {
                0
            },
        }
    }

    fn pass(&mut self, passes: usize) {
        let gone = passes.saturating_sub(self.passed);
        self.writes.drain(..gone);
        self.passed += gone;
        self.unsure = self.unsure.saturating_sub(gone);
    }
}

/// Whether a version is all zeroes, where volumes have such.
pub fn is_zero(version: Version) -> bool {
    version.is_multiple_of(11)
}

/// What a version is read as.
fn as_read(packed: bool, version: Version) -> Version {
    if packed && is_zero(version) {
        0
    } else {
        version
    }
}

impl Model {
    pub fn create(&mut self, lineage: Lineage, chunks: u64) {
        let zeroes = Write {
            request: 0,
            version: 0,
            answered: true,
        };
        let chunk = Chunk {
            passed: 0,
            writes: vec![zeroes],
            unsure: 0,
        };
        self.volumes.insert(lineage, vec![chunk; chunks as usize]);
    }

    pub fn delete(&mut self, lineage: Lineage) {
        self.snapshots.remove(&lineage);
        self.volumes.remove(&lineage);
    }

    /// Only these volumes are still there.
    pub fn keep(&mut self, there: &BTreeSet<Lineage>) {
        let coming: Vec<Lineage> = self.coming.keys().copied().collect();
        for snapshot in coming {
            if there.contains(&snapshot) {
                self.end_snapshot(snapshot);
            }
        }
        self.coming.clear();
        self.volumes.retain(|lineage, _| there.contains(lineage));
        self.snapshots.retain(|lineage, _| there.contains(lineage));
    }

    /// What a chunk of a read may be.
    pub fn allowed(&self, request: Request, place: u32) -> Vec<Version> {
        let Some(asked) = self.asked.get(&request) else {
            return Vec::new();
        };
        let allowed = asked.allowed.get(place as usize);
        allowed.cloned().unwrap_or_default()
    }

    pub fn volumes(&self) -> Vec<(Lineage, u64)> {
        let volumes = self.volumes.iter();
        volumes
            .map(|(lineage, chunks)| (*lineage, chunks.len() as u64))
            .collect()
    }

    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    pub fn version_of(&self, request: Request) -> Version {
        self.asked[&request].version
    }

    pub fn ask_of(&self, request: Request) -> Option<Ask> {
        self.asked.get(&request).map(|asked| asked.ask)
    }

    fn chunks(&mut self, lineage: Lineage, chunk: u64, count: u64) -> &mut [Chunk] {
        let all = self.volumes.get_mut(&lineage).expect("it was created");
        &mut all[chunk as usize..(chunk + count) as usize]
    }

    /// A host asks; gives the first version of a write.
    pub fn begin(&mut self, request: Request, ask: Ask) -> Version {
        let version = self.next + 1;
        self.extend_reads(ask, version);
        let (mut from, mut allowed) = (Vec::new(), Vec::new());
        match ask {
            Ask::Write {
                lineage,
                chunk,
                count,
                ..
            } => {
                self.next += u64::from(count);
                let packed = self.packed.contains(&lineage);
                let chunks = self.chunks(lineage, chunk, u64::from(count));
                for (chunk, version) in chunks.iter_mut().zip(version..) {
                    chunk.writes.push(Write {
                        request,
                        version: as_read(packed, version),
                        answered: false,
                    });
                }
            }
            Ask::Trim {
                lineage,
                chunk,
                count,
            } => {
                for chunk in self.chunks(lineage, chunk, count) {
                    chunk.writes.push(Write {
                        request,
                        version: 0,
                        answered: false,
                    });
                }
            }
            Ask::Read {
                lineage,
                chunk,
                count,
            } => {
                let chunks = self.chunks(lineage, chunk, u64::from(count));
                allowed.extend(chunks.iter().map(Chunk::visible));
            }
            Ask::Flush { lineage } => {
                from.extend(self.volumes[&lineage].iter().map(Chunk::answered));
            }
        }
        self.asked.insert(
            request,
            Asked {
                ask,
                version,
                from,
                allowed,
            },
        );
        version
    }

    /// A snapshot is asked for: it may have what is in flight.
    pub fn begin_snapshot(&mut self, volume: Lineage, snapshot: Lineage) {
        let chunks = self.volumes[&volume].iter().map(Chunk::visible).collect();
        self.coming.insert(snapshot, (volume, chunks));
    }

    /// It is there, and does not change from now on.
    pub fn end_snapshot(&mut self, snapshot: Lineage) {
        let (volume, chunks) = self.coming.remove(&snapshot).expect("it was asked for");
        let chunks = chunks.iter().map(|versions| Chunk::one_of(versions));
        self.volumes.insert(snapshot, chunks.collect());
        self.snapshots.insert(snapshot, volume);
    }

    pub fn is_snapshot(&self, volume: Lineage) -> bool {
        self.snapshots.contains_key(&volume)
    }

    /// The snapshots of a volume, the oldest first.
    pub fn snapshots_of(&self, volume: Lineage) -> Vec<Lineage> {
        let all = self.snapshots.iter().filter(|(_, of)| **of == volume);
        all.map(|(snapshot, _)| *snapshot).collect()
    }

    /// A volume that begins as a snapshot.
    pub fn clone_snapshot(&mut self, snapshot: Lineage, clone: Lineage) {
        let chunks = self.volumes[&snapshot].clone();
        self.volumes.insert(clone, chunks);
    }

    /// A volume may be what a snapshot is, from now on or after a cut.
    pub fn begin_restore(&mut self, volume: Lineage, snapshot: Lineage) {
        let chunks = self.volumes[&snapshot].clone();
        for (chunk, from) in self
            .chunks(volume, 0, chunks.len() as u64)
            .iter_mut()
            .zip(&chunks)
        {
            let writes = from.visible().into_iter().map(|version| Write {
                request: 0,
                version,
                answered: false,
            });
            chunk.writes.extend(writes);
        }
    }

    pub fn end_restore(&mut self, volume: Lineage, snapshot: Lineage) {
        let mut chunks = self.volumes[&snapshot].clone();
        let beyond = self.volumes[&volume].len();
        chunks.resize(beyond, Chunk::one_of(&[0]));
        self.volumes.insert(volume, chunks);
    }

    /// What each chunk of a volume is, if that is known for certain.
    pub fn content(&self, volume: Lineage) -> Vec<Version> {
        let chunks = self.volumes[&volume].iter();
        let newest = |chunk: &Chunk| {
            let visible = chunk.visible();
            assert!(
                visible.windows(2).all(|two| two[0] == two[1]),
                "it is known"
            );
            visible[0]
        };
        chunks.map(newest).collect()
    }

    /// Reads and snapshots that have begun may have this write.
    fn extend_reads(&mut self, ask: Ask, version: Version) {
        let (lineage, chunks, step) = match ask {
            Ask::Write {
                lineage,
                chunk,
                count,
                ..
            } => (lineage, chunk..chunk + u64::from(count), 1),
            Ask::Trim {
                lineage,
                chunk,
                count,
            } => (lineage, chunk..chunk + count, 0),
            Ask::Read { .. } | Ask::Flush { .. } => return,
        };
        let packed = self.packed.contains(&lineage);
        let seen = |at: u64| step * as_read(packed, version + at - chunks.start);
        for (volume, all) in self.coming.values_mut() {
            for (at, allowed) in (0..).zip(all) {
                if *volume == lineage && chunks.contains(&at) {
                    allowed.push(seen(at));
                }
            }
        }
        for asked in self.asked.values_mut() {
            let Ask::Read {
                lineage: read,
                chunk,
                ..
            } = asked.ask
            else {
                continue;
            };
            for (at, allowed) in (chunk..).zip(&mut asked.allowed) {
                if read == lineage && chunks.contains(&at) {
                    allowed.push(seen(at));
                }
            }
        }
    }

    /// The store did not take it.
    pub fn refuse(&mut self, request: Request) {
        if let Some(asked) = self.asked.remove(&request) {
            self.withdraw(request, asked.ask);
        }
    }

    /// A write that was not done.
    fn withdraw(&mut self, request: Request, ask: Ask) {
        let (Ask::Write { lineage, .. } | Ask::Trim { lineage, .. }) = ask else {
            return;
        };
        // It keeps its place, so that others keep theirs, as what the one before it wrote.
        for chunk in self.volumes.get_mut(&lineage).into_iter().flatten() {
            let place = chunk
                .writes
                .iter()
                .position(|write| write.request == request);
            if let Some(place) = place.filter(|_| request != 0) {
                let before = place.checked_sub(1).map(|place| chunk.writes[place]);
                if let Some(before) = before {
                    chunk.writes[place].version = before.version;
                    chunk.writes[place].request = 0;
                } else {
                    chunk.writes[place].answered = false;
                }
            }
        }
    }

    /// A request has ended; false if it is not one of data.
    pub fn end(
        &mut self,
        request: Request,
        outcome: Outcome,
        got: &BTreeMap<u32, Version>,
    ) -> bool {
        let Some(asked) = self.asked.remove(&request) else {
            return false;
        };
        match (asked.ask, outcome) {
            (Ask::Write { .. }, Outcome::NoSpace) => {
                self.full += 1;
                self.withdraw(request, asked.ask);
            }
            (Ask::Write { .. } | Ask::Trim { .. } | Ask::Flush { .. }, Outcome::ReadOnly) => {
                assert!(self.may_be_read_only, "the device is good");
            }
            (Ask::Read { .. }, Outcome::MediaError) => {
                assert!(self.may_lose, "the medium is good: {:?}", asked.ask);
                self.media_errors += 1;
            }
            (
                Ask::Read {
                    lineage,
                    chunk,
                    count,
                },
                Outcome::Success,
            ) => {
                assert_eq!(got.len(), count as usize, "every chunk was given");
                for (place, allowed) in (0..).zip(&asked.allowed) {
                    let at = chunk + u64::from(place);
                    self.see(lineage, at, allowed, got[&place]);
                }
            }
            (_, Outcome::Success) => self.succeed(request, &asked),
            (ask, outcome) => panic!("{ask:?} ends as {outcome:?}"),
        }
        true
    }

    fn succeed(&mut self, request: Request, asked: &Asked) {
        let (lineage, chunk, count, durable) = match asked.ask {
            Ask::Write {
                lineage,
                chunk,
                count,
                durable,
            } => (lineage, chunk, u64::from(count), durable),
            Ask::Trim {
                lineage,
                chunk,
                count,
            } => (lineage, chunk, count, false),
            Ask::Flush { lineage } => {
                let chunks = self.volumes.get_mut(&lineage).into_iter().flatten();
                for (chunk, passes) in chunks.zip(&asked.from) {
                    chunk.pass(*passes);
                }
                return;
            }
            Ask::Read { .. } => return,
        };
        if !self.volumes.contains_key(&lineage) {
            return;
        }
        for chunk in self.chunks(lineage, chunk, count) {
            let mut writes = chunk.writes.iter_mut().enumerate();
            let found = writes.find(|(_, write)| write.request == request);
            if let Some((place, write)) = found {
                write.answered = true;
                if durable {
                    chunk.pass(chunk.passed + place);
                }
            }
        }
    }

    /// A chunk was read that could be so when that began.
    fn see(&mut self, lineage: Lineage, at: u64, allowed: &[Version], version: Version) {
        let Some(all) = self.volumes.get_mut(&lineage) else {
            return;
        };
        let chunk = &mut all[at as usize];
        assert!(
            allowed.contains(&version),
            "chunk {at} of {lineage:?} reads as {version}, not one of {allowed:?}, {:?}",
            chunk.writes
        );
        let old = &chunk.writes[..chunk.unsure];
        if old.iter().any(|write| write.version == version) {
            // What was seen after a cut stays.
            for write in &mut chunk.writes[..chunk.unsure] {
                (write.request, write.version, write.answered) = (0, version, true);
            }
            chunk.unsure = 0;
        }
    }

    /// The power went: nobody is answered any more, and each chunk is as one of its writes.
    pub fn forget_requests(&mut self) {
        self.asked.clear();
        for chunk in self.volumes.values_mut().flatten() {
            chunk.unsure = if chunk.writes.len() > 1 {
                chunk.writes.len()
            } else {
                0
            };
        }
    }
}
