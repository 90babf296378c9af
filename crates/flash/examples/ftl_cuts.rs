//! Host FTLs under power cuts and on media that fail: after each cut nothing durable may be lost
//! and nothing old come back. A failure says the seed or the write that repeats it.
//!
//! `cargo run --release -p flashyard-flash --example ftl_cuts -- 100000 1`: so many cuts at random
//! instants, from this seed on. `-- swarm 1000 1`: so many partitions on media that fail in many
//! ways, each until its flash runs out. `-- scripts 1 1`: cuts at every so many of the writes of
//! scripts, and each time at every so many of the writes after the recovery, and once more after
//! that.

#[path = "../tests/ftl/cuts.rs"]
mod cuts;
#[path = "../tests/ftl/load.rs"]
mod load;
#[path = "../tests/ftl/model.rs"]
mod model;
#[path = "../tests/ftl/owner.rs"]
mod owner;
#[path = "../tests/ftl/swarm.rs"]
mod swarm;

use flashyard_flash::channel::{self, Faults};
use flashyard_flash::ftl::{Options, State};
use flashyard_time::Rng;

use model::Model;
use owner::Owner;

/// Cuts of one partition, and lives of one in a swarm at most.
const LIVES: u64 = 100;
const SWARM_LIVES: u64 = 200;

fn main() {
    let mut words = std::env::args().skip(1).peekable();
    let mode = words.next_if(|word| word.parse::<u64>().is_err());
    let mut numbers = words.map(|word| word.parse::<u64>());
    let mut number = |default| match numbers.next() {
        None => default,
        Some(number) => number.expect("two numbers"),
    };
    match mode.as_deref() {
        None => random_cuts(number(10_000), number(1)),
        Some("swarm") => swarms(number(200), number(1)),
        Some("scripts") => scripts((number(10) as usize, number(4) as usize)),
        Some(other) => panic!("`{other}` is not known: say swarm or scripts, or numbers only"),
    }
}

fn random_cuts(cuts: u64, first: u64) {
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

fn swarms(partitions: u64, first: u64) {
    let (mut lives, mut ended, mut refused, mut saved) = (0, 0, 0, 0);
    let (mut rotted, mut lost, mut stale) = (0, 0, 0);
    for seed in first..first + partitions {
        println!("seed {seed}");
        let fate = swarm::swarm(seed, SWARM_LIVES, seed % 2 == 0);
        lives += fate.lives;
        ended += u64::from(fate.ended);
        refused += u64::from(fate.refused);
        saved += u64::from(fate.ended && fate.saved);
        rotted += fate.rotted;
        lost += fate.lost;
        stale += fate.stale;
    }
    println!(
        "{partitions} partitions, {lives} lives; {ended} ran out of flash, {saved} of them with all that was \
         acknowledged made durable; {refused} said that they could not be recovered"
    );
    println!(
        "{rotted} sectors with data went bad; {lost} units were found lost at the end, and {stale} put back to older \
         data after a cut"
    );
}

fn scripts(strides: (usize, usize)) {
    let mut all = 0;
    for name in ["dct983", "cnex", "970pro"] {
        for buffered in [false, true] {
            let device = channel::Options {
                buffered,
                ..channel::Options::default()
            };
            for script in cuts::SCRIPTS {
                let cuts = cuts::cut_everywhere(script, name, device, strides, true);
                println!("{name}, buffered {buffered}, {script:?}: {cuts} cuts");
                all += cuts;
            }
        }
    }
    println!("{all} cuts; nothing lost");
}
