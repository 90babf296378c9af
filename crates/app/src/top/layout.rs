//! Which columns are shown, and how wide. Pure.

/// What a column wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Those with larger ranks are left out first.
    pub(super) rank: u8,
    /// It is not shown with less.
    pub(super) least: usize,
    /// With this all of it can be read.
    pub(super) most: usize,
}

/// Between two columns.
pub(super) const GAP: usize = 2;

/// Columns of up to this rank are shown with all that is in them before others are shown at all.
const FOREMOST: u8 = 7;

/// How wide each column is, in the order of the wishes; nothing where it is left out. Columns
/// are taken by their ranks as long as there is room, so a column is never left out for one of a
/// larger rank; what is left over goes to those that were cut, the same ranks first. The first
/// one is always there.
pub(super) fn widths(wishes: &[Wish], room: usize) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|at| wishes[*at].rank);
    let foremost = order.partition_point(|at| wishes[*at].rank <= FOREMOST);
    let mut taken = Taken {
        wishes,
        widths: vec![None; wishes.len()],
        left: room,
    };
    let (foremost, others) = order.split_at(foremost);
    if taken.take(foremost) {
        taken.take(others);
    }
    taken.widths
}

struct Taken<'a> {
    wishes: &'a [Wish],
    widths: Vec<Option<usize>>,
    left: usize,
}

impl Taken<'_> {
    /// Takes as many of these as there is room for, and gives them what is left over. Whether all
    /// were taken.
    fn take(&mut self, order: &[usize]) -> bool {
        let mut taken = 0;
        for at in order {
            let least = self.wishes[*at].least;
            let is_first = self.widths.iter().all(Option::is_none);
            let (gap, width) = match is_first {
                true => (0, least.min(self.left)),
                false => (GAP, least),
            };
            if gap + width > self.left {
                break;
            }
            self.widths[*at] = Some(width);
            self.left -= gap + width;
            taken += 1;
        }
        for at in &order[..taken] {
            let width = self.widths[*at].unwrap_or_default();
            let more = self.wishes[*at].most.saturating_sub(width).min(self.left);
            self.widths[*at] = Some(width + more);
            self.left -= more;
        }
        taken == order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(rank: u8, least: usize, most: usize) -> Wish {
        Wish { rank, least, most }
    }

    #[test]
    fn columns_are_left_out_by_rank_and_what_is_left_over_is_used() {
        let all = [wish(0, 6, 12), wish(3, 4, 4), wish(1, 5, 5), wish(2, 8, 30)];
        for (room, want) in [
            (200, [Some(12), Some(4), Some(5), Some(30)]),
            (57, [Some(12), Some(4), Some(5), Some(30)]),
            (40, [Some(12), Some(4), Some(5), Some(13)]),
            (29, [Some(6), Some(4), Some(5), Some(8)]),
            (28, [Some(11), None, Some(5), Some(8)]),
            (23, [Some(6), None, Some(5), Some(8)]),
            (22, [Some(12), None, Some(5), None]),
            (13, [Some(6), None, Some(5), None]),
            (12, [Some(12), None, None, None]),
            (1, [Some(1), None, None, None]),
            (0, [Some(0), None, None, None]),
        ] {
            assert_eq!(widths(&all, room), want, "{room}");
        }
        assert!(widths(&[], 80).is_empty());
        // What matters most is read whole before anything else is shown.
        let all = [wish(0, 6, 6), wish(8, 4, 4), wish(7, 5, 20)];
        for (room, want) in [
            (33, [Some(6), None, Some(20)]),
            (34, [Some(6), Some(4), Some(20)]),
            (20, [Some(6), None, Some(12)]),
        ] {
            assert_eq!(widths(&all, room), want, "{room}");
        }
    }

    /// Nothing is wider than the room, whatever it is.
    #[test]
    fn all_of_it_is_within_the_room() {
        let all: Vec<Wish> = (0..12).map(|n| wish(n, n as usize + 3, 20)).collect();
        for room in 0..400 {
            let shown: Vec<usize> = widths(&all, room).into_iter().flatten().collect();
            let gaps = GAP * (shown.len() - 1);
            assert!(shown.iter().sum::<usize>() + gaps <= room, "{room}");
        }
    }
}
