//! Power cuts: at every write of a script, at random instants, and again while recovering.

use flashyard_flash::channel;
use flashyard_flash::ftl::Options;
use flashyard_time::Rng;

use crate::cuts::{SCRIPTS, cut_at, cut_everywhere};
use crate::load::{live, recover};
use crate::model::Model;
use crate::owner::Owner;

fn survives_random_cuts(
    name: &str,
    device: channel::Options,
    seed: u64,
    lives: u64,
    commands: u64,
) {
    let mut owner = Owner::on(name, 16, seed, device, Options::default());
    let mut model = Model::new(owner.ftl.capacity());
    let mut chance = Rng::new(seed);
    for _ in 0..lives {
        let commands = chance.below(commands);
        live(&mut model, &mut owner, &mut chance, commands, 16);
        owner.ftl.check().expect("the map is sound");
        recover(&mut model, &mut owner, &mut chance);
    }
}

const LIVES: u64 = if cfg!(debug_assertions) { 8 } else { 300 };

#[test]
fn one_shot_programs_cut_at_random() {
    survives_random_cuts("dct983", channel::Options::default(), 1, LIVES, 300);
}

#[test]
fn page_pairs_cut_at_random() {
    survives_random_cuts("cnex", channel::Options::default(), 2, LIVES, 400);
    survives_random_cuts("970pro", channel::Options::default(), 3, LIVES, 200);
}

#[test]
fn a_buffering_device_cut_at_random() {
    for (seed, buffer_protected) in [(4, false), (5, true)] {
        let device = channel::Options {
            buffered: true,
            buffer_protected,
            ..channel::Options::default()
        };
        survives_random_cuts("dct983", device, seed, LIVES, 300);
        survives_random_cuts("cnex", device, seed, LIVES, 300);
    }
}

#[test]
fn nothing_is_lost_whichever_write_is_cut() {
    for name in ["dct983", "cnex"] {
        for script in SCRIPTS {
            let all = cut_at(script, name, channel::Options::default(), None, &[]).writes;
            assert!(all > 50, "{script:?} writes {all} vectors only");
            let stride = if cfg!(debug_assertions) { 37 } else { 1 };
            for first in (0..all).step_by(stride) {
                let ended = cut_at(script, name, channel::Options::default(), Some(first), &[]);
                assert_eq!(ended.came, [true], "{script:?} at {first}");
            }
        }
    }
}

#[test]
fn nothing_is_lost_when_recoveries_are_cut_too() {
    let strides = if cfg!(debug_assertions) {
        (97, 5)
    } else {
        (29, 2)
    };
    for (name, buffered) in [("dct983", false), ("cnex", true)] {
        let device = channel::Options {
            buffered,
            ..channel::Options::default()
        };
        for script in SCRIPTS {
            let cuts = cut_everywhere(script, name, device, strides, true);
            assert!(cuts > 2, "{script:?} was cut {cuts} times only");
        }
    }
}
