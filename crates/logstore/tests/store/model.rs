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
    asked: BTreeMap<Request, Asked>,
    next: Version,
    /// Writes that were answered that the pool is full.
    pub full: u64,
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

    fn pass(&mut self, passes: usize) {
        let gone = passes.saturating_sub(self.passed);
        self.writes.drain(..gone);
        self.passed += gone;
        self.unsure = self.unsure.saturating_sub(gone);
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
        self.volumes.remove(&lineage);
    }

    /// Only these volumes are still there.
    pub fn keep(&mut self, there: &BTreeSet<Lineage>) {
        self.volumes.retain(|lineage, _| there.contains(lineage));
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
                let chunks = self.chunks(lineage, chunk, u64::from(count));
                for (chunk, version) in chunks.iter_mut().zip(version..) {
                    chunk.writes.push(Write {
                        request,
                        version,
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

    /// Reads that have begun may see this write.
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
                    allowed.push(if step == 0 {
                        0
                    } else {
                        version + at - chunks.start
                    });
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
