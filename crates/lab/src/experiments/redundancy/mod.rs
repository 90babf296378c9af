//! A volume on emulated drives that fail: how it is built, filled and read, for the experiments
//! that ask what redundancy costs and gives.

mod load;

use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::SharedDevice;
use flashyard_block::array::{Array, Layout, NewMember, Options};
use flashyard_block::fault::FaultDevice;
use flashyard_block::pool::{Kind, Pool};
use flashyard_drives::flash::Store;
use flashyard_drives::{FlashDevice, FlashOptions};
use flashyard_engine::{Limits, Target, TargetConfig};
use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, World};

pub(super) use load::{Mix, Tally, fill, once_each, run};

use super::drive;
use crate::experiment::Refused;

pub(super) const BLOCK: usize = 4096;

/// What stands between a volume and its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stack {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Drives; one means no array.
    pub(super) drives: usize,
    /// How many of them have parity; each has all data if none does.
    pub(super) parity: usize,
    /// Reads compare all copies.
    pub(super) safe_read: bool,
}

impl Stack {
    pub(super) const fn raw(name: &'static str, drives: usize, safe_read: bool) -> Self {
        Self {
            name,
            kind: Kind::Raw,
            drives,
            parity: 0,
            safe_read,
        }
    }

    pub(super) const fn mapped(name: &'static str, drives: usize, parity: usize) -> Self {
        Self {
            name,
            kind: Kind::Mapped,
            drives,
            parity,
            safe_read: false,
        }
    }
}

/// Which drives.
#[derive(Clone)]
pub(super) struct Drives {
    pub(super) profile: Profile,
    pub(super) condition: Condition,
    gib: u64,
    seed: u64,
}

impl Drives {
    /// Drives of each of these profiles; refused if they cannot be so large.
    pub(super) fn of(
        profiles: &[&str],
        condition: Condition,
        (gib, seed): (u64, u64),
    ) -> Result<Vec<Self>, Refused> {
        let drives = drive::profiles(profiles)?.into_iter().map(|profile| {
            let drives = Self {
                profile,
                condition,
                gib,
                seed,
            };
            drives.model(0).map(|_| drives)
        });
        drives.collect()
    }

    pub(super) fn label(&self) -> String {
        format!("{} {}", self.profile.name, self.condition)
    }

    fn model(&self, number: u64) -> Result<Device, Refused> {
        drive::build(&self.profile, self.gib, self.seed + number, self.condition)
    }

    /// Another drive, behind a layer that can make it fail.
    pub(super) fn another(&self, rt: &Rt, number: u64) -> Rc<FaultDevice> {
        let model = self.model(number).expect("its size was tried before");
        let options = FlashOptions {
            block_size: BLOCK as u32,
            store: Store::Memory,
            dilation: 1,
        };
        let drive = FlashDevice::new(rt, model, options).expect("its size was tried before");
        Rc::new(FaultDevice::new(
            rt,
            Rc::new(drive),
            self.seed + number,
            Vec::new(),
        ))
    }

    /// Runs `main` in a simulated world of its own. Gives what it gives and the world's digest.
    pub(super) fn in_world<T: 'static, F>(&self, main: impl FnOnce(Rt) -> F) -> (T, u64)
    where
        F: Future<Output = T> + 'static,
    {
        let world = World::new(Config {
            max_steps: u64::MAX,
            ..Config::calm(self.seed)
        });
        let machine = world.machine(1);
        let found = world.run(&machine, main);
        (found, world.digest())
    }
}

/// A target of one core.
pub(super) fn target() -> Arc<Target> {
    Target::new(TargetConfig {
        nqn_prefix: "nqn.2026-11.dev.flashyard".into(),
        target_uuid: [1; 16],
        limits: Limits::default(),
        cores: 1,
    })
}

/// A volume and what it stands on.
pub(super) struct Site {
    pub(super) drives: Vec<Rc<FaultDevice>>,
    pub(super) array: Option<Rc<Array>>,
    pub(super) volume: SharedDevice,
    pool: Pool,
}

impl Site {
    /// A volume of so many MiB.
    pub(super) async fn new(rt: &Rt, (stack, drives): (Stack, &Drives), mib: u64) -> Self {
        let count = stack.drives as u64;
        let layers: Vec<_> = (0..count).map(|it| drives.another(rt, it)).collect();
        let array = match stack.drives {
            1 => None,
            _ => Some(Rc::new(members(rt, stack, &layers).await)),
        };
        let below: SharedDevice = match &array {
            Some(array) => array.clone(),
            None => layers[0].clone(),
        };
        let pool = Pool::create_kind(rt, below, [2; 16], stack.kind, true).await;
        let pool = pool.expect("there is room for its superblock");
        let made = pool.create_volume("v", [3; 16], mib << 20).await;
        let volume = made.expect("there is room");
        Self {
            drives: layers,
            array,
            volume,
            pool,
        }
    }

    /// Ends all of it.
    pub(super) async fn close(self) {
        drop(self.volume);
        self.pool.close().await;
        if let Some(array) = self.array {
            array.close().await;
        }
    }
}

/// The member that stands on drive `number`.
pub(super) fn member(number: usize, drive: &Rc<FaultDevice>) -> NewMember {
    NewMember {
        name: format!("ssd{number}"),
        device: drive.clone(),
    }
}

async fn members(rt: &Rt, stack: Stack, layers: &[Rc<FaultDevice>]) -> Array {
    let members = layers.iter().enumerate();
    let members = members.map(|(number, it)| member(number, it)).collect();
    let layout = Layout {
        copies: stack.drives,
        parity: stack.parity,
        safe_read: stack.safe_read,
    };
    let made = Array::create(rt, members, [1; 16], layout, Options::default(), true).await;
    made.expect("the drives work")
}
