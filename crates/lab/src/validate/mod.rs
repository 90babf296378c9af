//! Whether a drive does what theory and public figures say: twenty tests, each a few measurements
//! against oracles.
//!
//! An oracle is a closed form of the profile's own numbers, or a figure that was published; none is
//! fitted to the model. Where the two differ by nature the row says so in its tolerance and its
//! note: bounds of a queueing network are met from one side, and greedy collection does a little
//! better than the closed form for large blocks.

mod bench;
mod channel_power;
mod curves;
mod drives;
mod open_channel;
mod oracle;
mod power;
mod reads;
mod row;
mod soundness;
mod variants;
mod writes;

pub use bench::{CpuClock, Extent};
pub use row::Row;

use bench::Bench;

/// What the tests are about; test 1 is the first.
pub const TESTS: [&str; 20] = [
    "latency of an idle drive",
    "each stage as the bottleneck",
    "reads at rising queue depth",
    "reads that arrive at random",
    "overload and recovery",
    "sequential writes",
    "write amplification of greedy collection",
    "write amplification in order of age, of hot and cold data, with deallocation",
    "rate of fragmented writes",
    "DCT 983",
    "970 PRO",
    "CNEX open-channel drive",
    "scaled down, and made instead of written",
    "a read meets a busy die",
    "accounts of the dies",
    "determinism and invariants",
    "power cuts",
    "another simulator",
    "tail latency against load",
    "speed of simulation",
];

/// The rows of one test. A number without a test has none, nor has test 20 without a clock or in a
/// build that is not optimised.
pub fn run_test(number: u8, extent: Extent, clock: Option<CpuClock<'_>>) -> Vec<Row> {
    let bench = Bench::new(extent);
    let mut rows = match number {
        1 => reads::unloaded(&bench),
        2 => reads::bounds(&bench),
        3 => reads::queue_depths(&bench),
        4 => reads::random_arrivals(&bench),
        5 => reads::overload(&bench),
        6 => writes::sequential(&bench),
        7 => writes::greedy(&bench),
        8 => writes::by_age_and_kind(&bench),
        9 => writes::fragmented(&bench),
        10 => drives::dct983(&bench),
        11 => drives::pro970(&bench),
        12 => open_channel::cnex(&bench),
        13 => soundness::scaled_and_made(&bench),
        14 => reads::busy_die(&bench),
        15 => soundness::accounts(&bench),
        16 => soundness::determinism(&bench),
        17 => power::cuts(&bench),
        18 => drives::other_simulator(&bench),
        19 => curves::tails(&bench),
        20 => clock.map_or_else(Vec::new, |clock| soundness::speed(&bench, clock)),
        _ => Vec::new(),
    };
    for row in &mut rows {
        row.number = number;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quick_row_passes_or_is_explained() {
        let numbers = 1..TESTS.len() as u8;
        let rows: Vec<Row> = numbers
            .flat_map(|number| run_test(number, Extent::Quick, None))
            .collect();
        let failed: Vec<_> = rows
            .iter()
            .filter(|row| !row.pass() && !row.explained)
            .collect();
        assert!(failed.is_empty(), "{failed:#?}");
        for number in 1..20 {
            let tested = rows.iter().any(|row| row.number == number);
            assert!(tested, "test {number} has no rows");
        }
    }
}
