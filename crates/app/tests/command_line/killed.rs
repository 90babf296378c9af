//! `kill -9` at random moments of a stream of changes, by file and by hand: every acknowledged
//! change is there after the next start, and none is half done.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flashyard_time::Rng;
use serde_json::Value;

use crate::rig::{Scratch, Target, path};

/// Kills in `make test`; `FLASHYARD_ROUNDS=50` makes it a thousand.
const KILLS: u64 = 20;
const TENANTS: u64 = 3;

/// What has been acknowledged, and what may have been done when the target was killed.
#[derive(Clone, Debug, Default, PartialEq)]
struct World {
    /// Weights of the tenants: a file sets all of them to one number, a command one of them.
    weights: BTreeMap<String, u64>,
    /// How many volumes a file has made.
    volumes: usize,
}

impl World {
    fn of(target: &Target) -> Self {
        let rows = |kind: &str| {
            target
                .json(&[kind, "list"])
                .as_array()
                .expect("a list")
                .clone()
        };
        let weight = |row: &Value| {
            let name = row["name"].as_str().expect("a name").to_owned();
            (name, row["weight"].as_u64().expect("a number"))
        };
        for volume in rows("volume") {
            assert_eq!(volume["state"], "online", "{volume}");
        }
        Self {
            weights: rows("tenant").iter().map(weight).collect(),
            volumes: rows("volume").len(),
        }
    }

    fn file(&self, weight: u64) -> String {
        let mut text =
            "[[device]]\nname = \"d\"\nkind = \"file\"\npath = \"d.img\"\nsize = \"256MiB\"\n\
                        [[pool]]\nname = \"p\"\ndevices = [\"d\"]\n"
                .to_owned();
        for tenant in 0..TENANTS {
            let table = format!("[[tenant]]\nname = \"t{tenant}\"\nweight = {weight}\n");
            text.push_str(&table);
        }
        for volume in 0..self.volumes {
            let tenant = volume as u64 % TENANTS;
            let table = format!(
                "[[volume]]\nname = \"v{volume}\"\npool = \"p\"\nsize = \"1MiB\"\ntenant = \"t{tenant}\"\n"
            );
            text.push_str(&table);
        }
        text
    }
}

/// Changes things until the target does not answer; gives what was acknowledged last, and what may
/// be there instead.
fn change_until_killed(
    target: &Target,
    scratch: &Scratch,
    mut world: World,
    rng: &mut Rng,
    killed: &AtomicBool,
) -> [World; 2] {
    loop {
        let (mut next, weight) = (world.clone(), 1 + rng.below(100));
        let done = if rng.below(2) == 0 {
            next.volumes = (next.volumes + 2) % 40 + 1;
            next.weights = (0..TENANTS).map(|t| (format!("t{t}"), weight)).collect();
            let file = scratch.file("changing.toml", &next.file(weight));
            target.run(&["apply", path(&file), "--prune", "--yes"])
        } else {
            let name = format!("t{}", rng.below(TENANTS));
            next.weights.insert(name.clone(), weight);
            target.run(&["tenant", "set", &name, "--weight", &weight.to_string()])
        };
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(killed.load(Ordering::Acquire), "refused: {said}");
            return [world, next];
        }
        world = next;
    }
}

#[test]
fn every_acknowledged_change_survives_and_none_is_half_done() {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    let rounds = rounds
        .and_then(|text| text.parse::<u64>().ok())
        .unwrap_or(1);
    let scratch = Scratch::new("killed");
    let mut rng = Rng::new(13);
    let mut target = Target::start(&scratch, &[]);
    let first = World {
        volumes: 1,
        ..World::default()
    };
    let file = scratch.file("changing.toml", &first.file(1));
    target.json(&["apply", path(&file)]);
    for kill in 0..KILLS * rounds {
        let world = World::of(&target);
        let wait = Duration::from_micros(rng.below(400_000));
        let (killed, id) = (AtomicBool::new(false), target.child.id().to_string());
        let possible = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(wait);
                killed.store(true, Ordering::Release);
                let kill = std::process::Command::new("kill")
                    .args(["-9", &id])
                    .status();
                assert!(kill.expect("kill exists").success());
            });
            change_until_killed(&target, &scratch, world, &mut rng, &killed)
        });
        target.kill();
        target = Target::start(&scratch, &[]);
        let found = World::of(&target);
        assert!(
            possible.contains(&found),
            "kill {kill}: {found:?} is none of {possible:?}"
        );
    }
    assert_eq!(target.terminate(), 0);
}
