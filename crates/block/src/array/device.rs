//! An array as a device: an I/O becomes one for each set that it touches.

use std::rc::Rc;

use flashyard_runtime::Parts;

use super::Array;
use super::geometry::{self, Piece};
use super::set::At;
use super::shared::Shared;
use crate::gate::Span as Range;
use crate::range::locate_io;
use crate::{
    Copies, Device, Done, Health, Info, Io, IoError, IoFuture, Limits, Tag, Turns, WholeRows,
};

impl Shared {
    fn info(&self) -> Info {
        let record = self.record.borrow();
        let members = self.members.borrow();
        let infos = members.iter().filter(|it| it.is_active());
        let infos: Vec<Info> = infos
            .filter_map(|it| Some(it.device.as_ref()?.info()))
            .collect();
        let block_size = record.geometry.block_size;
        let sets = record.geometry.spans.first().map_or(1, |span| span.sets);
        let rows = record.geometry.rows();
        let stripe = match sets {
            1 => rows.map_or(0, |rows| (rows.row() / u64::from(block_size)) as u32),
            sets => sets * (geometry::STRIPE / u64::from(block_size)) as u32,
        };
        let most = |of: fn(&Info) -> u32| infos.iter().map(of).max().unwrap_or(0);
        Info {
            block_size,
            blocks: record.geometry.bytes() / u64::from(block_size),
            volatile_cache: infos.iter().any(|it| it.volatile_cache),
            read_only: infos.iter().any(|it| it.read_only),
            deallocate: infos.iter().any(|it| it.deallocate),
            limits: Limits {
                write_granularity: most(|it| it.limits.write_granularity),
                optimal_write: stripe.max(most(|it| it.limits.optimal_write)),
                atomic_write: 1,
                deallocate_granularity: most(|it| it.limits.deallocate_granularity),
            },
        }
    }

    fn start(self: &Rc<Self>, tag: Tag, io: Io, at: u64, bytes: u64) -> IoFuture {
        if let Io::Flush = io {
            let mut all = IoFuture::all(&self.rt);
            for set in self.sets.borrow().iter() {
                all.push(set.submit(tag, At { at: 0, bytes: 0 }, Io::Flush));
            }
            return all.into_io();
        }
        if bytes == 0 {
            return IoFuture::ready(Ok(Done::EMPTY));
        }
        match self.piece(at, bytes) {
            Some((set, piece)) if piece.bytes == bytes => set.submit(tag, piece, io),
            Some(_) => self.start_pieces(tag, io, at, bytes),
            None => IoFuture::ready(Err(IoError::OutOfRange)),
        }
    }

    fn start_pieces(self: &Rc<Self>, tag: Tag, io: Io, at: u64, bytes: u64) -> IoFuture {
        let mut all = IoFuture::all(&self.rt);
        let pieces = || {
            let (this, mut done) = (Rc::clone(self), 0);
            std::iter::from_fn(move || {
                let (set, piece) = this.piece(at + done, bytes - done)?;
                let from = done as usize;
                done += piece.bytes;
                (piece.bytes > 0).then_some((set, piece, from))
            })
        };
        match io {
            Io::Read { into, .. } => {
                let mut parts = Parts::of(into);
                for (set, piece, _) in pieces() {
                    let into = parts.cut(piece.bytes as usize);
                    all.push(set.submit(tag, piece, Io::Read { lba: 0, into }));
                }
                all.read_into(parts)
            }
            Io::Write { data, fua, .. } => {
                for (set, piece, from) in pieces() {
                    let data = data.slice(from..from + piece.bytes as usize);
                    all.push(set.submit(tag, piece, Io::Write { lba: 0, data, fua }));
                }
                all.into_io()
            }
            Io::Zero { how, .. } => {
                let found = self.record.borrow().geometry.by_set(at, bytes);
                for Piece { set, at, bytes } in found {
                    let Some(set) = self.sets.borrow().get(set).cloned() else {
                        continue;
                    };
                    let zero = Io::Zero {
                        lba: 0,
                        blocks: bytes / u64::from(set.block_size),
                        how,
                    };
                    all.push(set.submit(tag, At { at, bytes }, zero));
                }
                all.into_io()
            }
            _ => IoFuture::ready(Ok(Done::EMPTY)),
        }
    }
}

impl Device for Array {
    fn info(&self) -> Info {
        self.shared.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let shared = &self.shared;
        if let Io::Flush = io {
            return match shared.gate.is_closed() {
                true => IoFuture::ready(Err(IoError::NotReady)),
                false => shared.start(tag, io, 0, 0),
            };
        }
        let (at, bytes) = match shared.locate(&io) {
            Ok(found) => found,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        if !matches!(io, Io::Read { .. }) {
            shared.blank.set(false);
        }
        let span = Range {
            start: at,
            end: at + bytes,
        };
        let below = Rc::clone(shared);
        match io {
            Io::CompareAndWrite(pair) => {
                let (fua, reader) = (pair.fua(), Rc::clone(&below));
                let read = move |into| reader.start(tag, Io::Read { lba: 0, into }, at, bytes);
                let write =
                    move |data| below.start(tag, Io::Write { lba: 0, data, fua }, at, bytes);
                let acts = (read, write);
                shared.gate.compare_and_write(span, false, pair, acts)
            }
            io => shared
                .gate
                .pass(span, false, move || below.start(tag, io, at, bytes)),
        }
    }

    fn health(&self) -> Health {
        let members = self.shared.members.borrow();
        let devices = members.iter().filter(|it| it.is_active());
        let devices = devices.filter_map(|it| Some(it.device.as_ref()?.health()));
        devices.fold(Health::default(), |worst, own| Health {
            spare: worst.spare.min(own.spare),
            worn_out: worst.worn_out || own.worn_out,
        })
    }

    fn moved(&self) -> Option<u64> {
        let members = self.shared.members.borrow();
        let devices = members.iter().filter_map(|it| it.device.as_ref());
        devices.map(|it| it.moved()).sum()
    }

    fn take_turns(&self, turns: &Rc<dyn Turns>) {
        self.shared.queue.set(turns);
    }

    fn is_blank(&self) -> bool {
        self.shared.blank.get()
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }

    fn rows(&self) -> Option<WholeRows> {
        let record = self.shared.record.borrow();
        let rows = record.geometry.rows()?;
        Some(WholeRows {
            from: rows.alike,
            bytes: rows.row(),
        })
    }

    fn read_for(&self, at: u64, bytes: u64) -> u64 {
        let record = self.shared.record.borrow();
        let rows = record.geometry.rows();
        let rows = rows.filter(|rows| at >= rows.alike);
        rows.map_or(bytes, |rows| rows.read_for(At { at, bytes }))
    }

    fn written_for(&self, at: u64, bytes: u64) -> u64 {
        let record = self.shared.record.borrow();
        match record.geometry.rows() {
            Some(rows) if at >= rows.alike => bytes / rows.data() as u64 * rows.columns as u64,
            _ => bytes * u64::from(record.copies),
        }
    }

    fn is_page_cached(&self) -> bool {
        let members = self.shared.members.borrow();
        let mut devices = members.iter().filter_map(|it| it.device.as_ref());
        devices.any(|it| it.is_page_cached())
    }
}

impl Shared {
    /// Where an I/O is, in bytes, without asking the members.
    fn locate(&self, io: &Io) -> Result<(u64, u64), IoError> {
        let record = self.record.borrow();
        let block_size = record.geometry.block_size;
        let info = Info {
            block_size,
            blocks: record.geometry.bytes() / u64::from(block_size),
            volatile_cache: false,
            read_only: false,
            deallocate: false,
            limits: Limits::default(),
        };
        locate_io(&info, io)
    }
}
