//! Cuts the power of host FTLs at random instants, many times, and checks after each that nothing durable is lost and
//! nothing old comes back. `cargo run --release -p flashyard-flash --example ftl_cuts -- 100000 1`: so many cuts, from
//! this seed on. A failure says the seed that repeats it.

#[path = "../tests/ftl/load.rs"]
mod load;
#[path = "../tests/ftl/model.rs"]
mod model;
#[path = "../tests/ftl/owner.rs"]
mod owner;

use flashyard_flash::channel::{self, Faults};
use flashyard_flash::ftl::{Options, State};
use flashyard_time::Rng;

use model::Model;
use owner::Owner;

/// Cuts of one partition.
const LIVES: u64 = 100;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mut number = |default| match numbers.next() {
        None => default,
        Some(number) => number.expect("cuts and a seed, both numbers"),
    };
    let (cuts, first) = (number(10_000), number(1));
    let (mut done, mut seed, mut ended) = (0, first, 0);
    while done < cuts {
        println!("seed {seed}");
        let (lives, end) = partition(seed);
        done += lives;
        ended += u64::from(end);
        seed += 1;
    }
    println!(
        "{done} cuts of {} partitions, {ended} ran out of flash; nothing lost",
        seed - first
    );
}

/// Lives of one partition: how many, and whether its flash ran out.
fn partition(seed: u64) -> (u64, bool) {
    let mut chance = Rng::new(seed);
    let name = *chance
        .pick(&["dct983", "cnex", "970pro"])
        .expect("there are some");
    let fails = chance.chance(1, 3);
    let device = channel::Options {
        buffered: chance.chance(1, 3),
        buffer_protected: chance.chance(1, 2),
        faults: match fails {
            true => Faults {
                writes: 2_000,
                resets: 500,
                reads: 2_000,
                bad_chunks: 2_000,
            },
            false => Faults::default(),
        },
        ..channel::Options::default()
    };
    let mut owner = Owner::on(name, 20, seed, device, Options::default());
    let mut model = Model::new(owner.ftl.capacity());
    model.may_end = fails;
    for life in 0..LIVES {
        let commands = chance.below(200);
        load::live(&mut model, &mut owner, &mut chance, commands, 16);
        owner.ftl.check().expect("the map is sound");
        if owner.ftl.state() == State::ReadOnly {
            model.check_now(&mut owner);
            return (life + 1, true);
        }
        load::recover(&mut model, &mut owner, &mut chance);
    }
    (LIVES, false)
}
