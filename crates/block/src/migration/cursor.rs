//! What of a volume has been copied, and which writes are in flight. Pure: it decides who has to
//! wait for whom, and what both sides get.
//!
//! A write has two steps, the source and then, if it begins below the cursor, the target. Writes
//! that overlap do each step in the order in which they came, so both sides end with the same
//! content. The cursor moves over a piece only if no write to it was in flight since its copying
//! began: otherwise the piece is copied once more.

/// Blocks from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Names a write that is in flight, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Source,
    Target,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    ticket: Ticket,
    span: Span,
    step: Step,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Blocks below are on both sides, but for what writes still bring.
    at: u64,
    end: u64,
    /// The piece that is being copied while writes to it go on, and whether there was one.
    piece: Option<(Span, bool)>,
    /// The target may hold something below this. Behind it is as it was made: all zeroes.
    touched: u64,
    next: u64,
    /// In order of arrival.
    writes: Vec<Write>,
}

impl Cursor {
    /// Nothing of `end` blocks is copied but those below `at`; the target may hold something below
    /// `touched`.
    pub(super) fn new(at: u64, touched: u64, end: u64) -> Self {
        Self {
            at,
            end,
            piece: None,
            touched: touched.max(at),
            next: 0,
            writes: Vec::new(),
        }
    }

    /// Blocks that are copied.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether the target may hold something in this range.
    pub(super) fn is_touched(&self, span: Span) -> bool {
        span.start < self.touched
    }

    /// The target is about to get something there.
    pub(super) fn touch(&mut self, span: Span) {
        self.touched = self.touched.max(span.end);
    }

    /// No write is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.writes.is_empty()
    }

    /// A write has come, or the copying of a piece that bars writes.
    pub(super) fn enter(&mut self, span: Span) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        if let Some((piece, written)) = &mut self.piece {
            *written |= piece.overlaps(span);
        }
        let step = Step::Source;
        self.writes.push(Write { ticket, span, step });
        ticket
    }

    /// Whether no earlier write has yet to reach the source where this one goes.
    pub(super) fn may_write_source(&self, ticket: Ticket) -> bool {
        self.earlier(ticket).all(|write| write.step != Step::Source)
    }

    /// The source has the write. Whether the target is to get it too; if not, it has ended.
    pub(super) fn on_source_written(&mut self, ticket: Ticket) -> bool {
        let Some(write) = self.writes.iter_mut().find(|it| it.ticket == ticket) else {
            return false;
        };
        let mirrored = write.span.start < self.at;
        match mirrored {
            true => {
                write.step = Step::Target;
                self.touched = self.touched.max(write.span.end);
            }
            false => self.leave(ticket),
        }
        mirrored
    }

    /// Whether no earlier write is in flight where this one goes.
    pub(super) fn may_write_target(&self, ticket: Ticket) -> bool {
        self.earlier(ticket).next().is_none()
    }

    /// A write has ended.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.writes.retain(|write| write.ticket != ticket);
    }

    /// The next piece, of at most `blocks` blocks; none when all is copied.
    pub(super) fn next_piece(&self, blocks: u64) -> Option<Span> {
        let end = self.end.min(self.at.saturating_add(blocks));
        let start = self.at;
        (start < end).then_some(Span { start, end })
    }

    /// Begins to copy a piece while writes to it go on; false if one is in flight already.
    pub(super) fn begin(&mut self, piece: Span) -> bool {
        let free = !self.writes.iter().any(|write| write.span.overlaps(piece));
        self.piece = free.then_some((piece, false));
        free
    }

    /// The piece is on both sides: the cursor moves over it, unless there was a write to it.
    pub(super) fn end(&mut self) -> bool {
        match self.piece.take() {
            Some((piece, false)) => {
                self.at = piece.end;
                true
            }
            _ => false,
        }
    }

    /// A piece that barred writes is on both sides.
    pub(super) fn end_barred(&mut self, ticket: Ticket) {
        let piece = self.writes.iter().find(|write| write.ticket == ticket);
        self.at = piece.map_or(self.at, |piece| piece.span.end);
        self.leave(ticket);
    }

    /// Writes in flight that came before, and overlap.
    fn earlier(&self, ticket: Ticket) -> impl Iterator<Item = &Write> {
        let own = self.writes.iter().find(|write| write.ticket == ticket);
        let own = own.map(|write| write.span);
        let before = self
            .writes
            .iter()
            .take_while(move |write| write.ticket < ticket);
        before.filter(move |write| own.is_some_and(|own| own.overlaps(write.span)))
    }
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    const BLOCKS: u64 = 24;

    /// Two sides of which each write changes one step at a time, in any order that the cursor
    /// allows; a piece is read and written in two steps of its own.
    struct Model {
        cursor: Cursor,
        source: [u32; BLOCKS as usize],
        target: [u32; BLOCKS as usize],
        writes: Vec<(Ticket, Span, u32, bool)>,
        copy: Option<Copy>,
        /// Writes that had to wait for something.
        waited: u32,
        /// Pieces that were copied once more.
        again: u32,
    }

    struct Copy {
        piece: Span,
        ticket: Option<Ticket>,
        read: Option<Vec<u32>>,
    }

    impl Model {
        fn new(rng: &mut Rng) -> Self {
            let source = std::array::from_fn(|_| rng.below(3) as u32);
            let at = rng.below(BLOCKS / 2);
            let touched = at + rng.below(BLOCKS - at);
            let target = std::array::from_fn(|block| match block as u64 {
                block if block < at => source[block as usize],
                block if block < touched => rng.below(3) as u32,
                _ => 0,
            });
            Self {
                cursor: Cursor::new(at, touched, BLOCKS),
                source,
                target,
                writes: Vec::new(),
                copy: None,
                waited: 0,
                again: 0,
            }
        }

        fn begin_write(&mut self, rng: &mut Rng, value: u32) {
            let start = rng.below(BLOCKS);
            let end = start + 1 + rng.below((BLOCKS - start).min(6));
            let span = Span {
                start,
                end: end.min(BLOCKS),
            };
            let ticket = self.cursor.enter(span);
            self.writes.push((ticket, span, value, false));
        }

        fn step_write(&mut self, at: usize) {
            let (ticket, span, value, on_source) = self.writes[at];
            let range = span.start as usize..span.end as usize;
            if on_source {
                if !self.cursor.may_write_target(ticket) {
                    self.waited += 1;
                    return;
                }
                self.target[range].fill(value);
                self.cursor.leave(ticket);
                self.writes.remove(at);
                return;
            }
            if !self.cursor.may_write_source(ticket) {
                self.waited += 1;
                return;
            }
            self.source[range].fill(value);
            match self.cursor.on_source_written(ticket) {
                true => self.writes[at].3 = true,
                false => drop(self.writes.remove(at)),
            }
        }

        fn step_copy(&mut self, rng: &mut Rng) {
            let Some(copy) = &mut self.copy else {
                let Some(piece) = self.cursor.next_piece(4) else {
                    return;
                };
                let ticket = match rng.below(2) == 0 && self.cursor.begin(piece) {
                    true => None,
                    false => Some(self.cursor.enter(piece)),
                };
                self.copy = Some(Copy {
                    piece,
                    ticket,
                    read: None,
                });
                return;
            };
            if let Some(ticket) = copy.ticket
                && !self.cursor.may_write_target(ticket)
            {
                self.waited += 1;
                return;
            }
            let range = copy.piece.start as usize..copy.piece.end as usize;
            let Some(read) = copy.read.take() else {
                copy.read = Some(self.source[range].to_vec());
                return;
            };
            // Zeroes that the target has already are not written.
            if self.cursor.is_touched(copy.piece) || read.iter().any(|block| *block != 0) {
                self.target[range].copy_from_slice(&read);
                self.cursor.touch(copy.piece);
            }
            match copy.ticket {
                Some(ticket) => self.cursor.end_barred(ticket),
                None if !self.cursor.end() => self.again += 1,
                None => {}
            }
            self.copy = None;
        }
    }

    /// Whatever the order of steps: when nothing is in flight, both sides are the same below the
    /// cursor, and everything ends.
    #[test]
    fn both_sides_end_with_the_same_content() {
        let (mut waited, mut again) = (0, 0);
        for seed in 0..4000 {
            let mut rng = Rng::new(seed);
            let mut model = Model::new(&mut rng);
            for value in 3..80 {
                match rng.below(3) {
                    0 => model.begin_write(&mut rng, value),
                    1 if !model.writes.is_empty() => {
                        let at = rng.below(model.writes.len() as u64) as usize;
                        model.step_write(at);
                    }
                    _ => model.step_copy(&mut rng),
                }
            }
            // No more come: all that is there ends, for no write waits in a circle.
            let mut steps = 0;
            while !model.writes.is_empty() || model.cursor.next_piece(1).is_some() {
                for at in (0..model.writes.len()).rev() {
                    model.step_write(at);
                }
                model.step_copy(&mut rng);
                steps += 1;
                assert!(steps < 1000, "seed {seed}: a write waits without end");
            }
            assert_eq!(model.source, model.target, "seed {seed}");
            assert!(model.cursor.is_quiet() && model.cursor.at() == BLOCKS);
            waited += model.waited;
            again += model.again;
        }
        assert!(waited > 1000 && again > 1000, "{waited} {again}");
    }

    #[test]
    fn a_write_waits_only_for_what_it_overlaps() {
        let span = |start, end| Span { start, end };
        let mut cursor = Cursor::new(10, 10, 20);
        let piece = cursor.enter(span(10, 14));
        let (below, spanning, above) = (
            cursor.enter(span(0, 10)),
            cursor.enter(span(9, 11)),
            cursor.enter(span(14, 16)),
        );
        assert!(cursor.may_write_target(piece));
        assert!(cursor.may_write_source(below) && cursor.may_write_source(above));
        assert!(!cursor.may_write_source(spanning));
        assert!(cursor.on_source_written(below) && !cursor.on_source_written(above));
        // It came after `below`, which it overlaps, and its bar has gone.
        cursor.end_barred(piece);
        assert!(cursor.may_write_source(spanning) && cursor.on_source_written(spanning));
        assert!(!cursor.may_write_target(spanning));
        cursor.leave(below);
        assert!(cursor.may_write_target(spanning));
    }
}
