//! A pool takes up a device that has become larger: new segments join behind the others, in the cut
//! that says so. Until its superblocks are durable no lane writes to them, and what volumes may use
//! stays as it was; then it is as if they had always been there.
//!
//! Superblocks that stood at the end of the device stay where they are, and the segments over them
//! are not used. The segment table keeps its pages while they suffice; else it takes numbers behind
//! all others.

use core::ops::Range;

use super::io::{Refused, Request};
use super::segments::{Geometry, Growth};
use super::state::{Limits, Store};
use crate::format::rows::PageRef;
use crate::format::superblock::{Features, Grown, Superblock};

/// Segments up to which a pool grows: each takes memory, and some turns go through all.
const MOST_SEGMENTS: u64 = 1 << 20;

impl Store {
    /// What the pool can become on a device of so many blocks, of which those in `kept` are not for
    /// segments that come; nothing if that is no more than it is.
    pub fn growth(&self, device_blocks: u64, kept: Range<u64>) -> Option<Growth> {
        let now = self.segments.geometry;
        let end = device_blocks.min(1 << PageRef::PLACE_BITS);
        let fits = end.saturating_sub(now.first_block) / u64::from(now.segment_blocks);
        let segments = fits.min(MOST_SEGMENTS) as u32;
        if segments <= now.segments {
            return None;
        }
        let geometry = Geometry { segments, ..now };
        let growth = Growth {
            segments,
            unused: match self.superblock.grown {
                Some(_) => self.segments.unused(),
                None => covered(geometry, now.segments, kept),
            },
        };
        // A little more may not even hold what a longer log needs of the map.
        let more = self.limits_of(&growth)?.capacity > self.limits.capacity;
        more.then_some(growth)
    }

    /// Takes up the device; done when that is durable.
    pub fn grow(&mut self, request: Request, growth: Growth) -> Result<(), Refused> {
        self.may_change()?;
        if self.checkpoint.growth.is_some() {
            return Err(Refused::Busy);
        }
        self.checkpoint.growth = Some((request, growth));
        Ok(())
    }

    fn limits_of(&self, growth: &Growth) -> Option<Limits> {
        let geometry = Geometry {
            segments: growth.segments - growth.unused.len() as u32,
            ..self.segments.geometry
        };
        Limits::new(geometry, &self.options)
    }

    /// Segments join at this cut.
    pub(super) fn take_growth(&mut self) {
        let Some((request, growth)) = self.checkpoint.growth.take() else {
            return;
        };
        self.checkpoint.limits = self.limits_of(&growth);
        self.segments.grow(growth.segments, growth.unused);
        let pages = self.segments.pages();
        if pages as usize > self.pages.system.segments.len() {
            for page in self.pages.move_segment_table(pages) {
                self.drop_page(page);
            }
        }
        self.checkpoint.serving.push(request);
    }

    /// What a superblock says of the segments that there are.
    pub(super) fn describe_growth(&self, next: &mut Superblock) {
        let segments = self.segments.geometry.segments;
        if segments == next.segments {
            return;
        }
        let (unused, system) = (self.segments.unused(), &self.pages.system);
        next.segments = segments;
        next.segment_pages = self.segments.pages();
        next.features = next.features.with(Features::GROWN);
        next.grown = Some(Grown {
            segment_page: system.segments.start,
            catalogue_page: system.catalogue.start,
            unused: (unused.start, unused.len() as u32),
        });
    }

    /// The superblock that says so is durable.
    pub(super) fn finish_growth(&mut self) {
        if let Some(limits) = self.checkpoint.limits.take() {
            self.limits = limits;
        }
    }
}

/// The segments from `first` on that lie over these blocks.
fn covered(geometry: Geometry, first: u32, blocks: Range<u64>) -> Range<u32> {
    let touches = |&segment: &u32| {
        let from = geometry.block(segment);
        from < blocks.end && blocks.start < from + u64::from(geometry.segment_blocks)
    };
    let mut over = (first..geometry.segments).filter(touches);
    let Some(start) = over.next() else {
        return 0..0;
    };
    start..over.next_back().unwrap_or(start) + 1
}
