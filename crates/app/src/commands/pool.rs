//! `flashyard pool`.

use super::{from_here, run, show};
use crate::cli::{PoolArgs, PoolCommand, RebuildArgs};
use crate::control::{ArrayChange, ArrayHow, KindName, Page, PoolChange, RebuildChange, Request};
use crate::failure::{Failure, Invalid};
use crate::spec::{ArraySpec, DeviceSpec, KeyText, PolicyName, PoolSpec, VolumeKind};
use crate::table;

/// `flashyard pool …`.
pub fn pool(args: PoolArgs) -> Result<(), Failure> {
    let request = match args.command {
        PoolCommand::List => Request::List(KindName::Pool, Page::first()),
        PoolCommand::Show { name } => Request::Show(KindName::Pool, name),
        PoolCommand::Import {
            name,
            device: None,
            devices,
            degraded,
            block_size,
            tenant,
            key,
            list: _,
        } => {
            let array = ArraySpec::found_on(devices);
            let device = DeviceSpec::of_array(name, array, block_size, PolicyName::default());
            let form = encrypted(key)?;
            let request = Request::on_array(device, form, tenant, ArrayHow::found(degraded));
            return show(&args.reach, &request, table::print_import);
        }
        PoolCommand::Import {
            name,
            device: Some(device),
            tenant,
            key,
            list,
            ..
        } => {
            let (kind, key) = encrypted(key)?;
            let spec = PoolSpec {
                name,
                devices: vec![device],
                kind,
                key,
                compression: None,
                chunk: None,
            };
            let request = Request::ImportPool { spec, tenant, list };
            return show(&args.reach, &request, table::print_import);
        }
        PoolCommand::Start { name, degraded } => {
            Request::change_array(name, ArrayChange::Start { degraded })
        }
        PoolCommand::Add {
            name,
            devices,
            spare,
            force,
        } => match spare.is_empty() {
            true => Request::change_array(name, ArrayChange::Add { devices, force }),
            false => {
                let devices = spare;
                Request::change_array(name, ArrayChange::AddSpares { devices, force })
            }
        },
        PoolCommand::Replace {
            name,
            device: old,
            with: new,
            force,
        } => Request::change_array(name, ArrayChange::Replace { old, new, force }),
        PoolCommand::Remove { name, device } => {
            Request::change_array(name, ArrayChange::Remove { device })
        }
        PoolCommand::Scrub { name, stop } => {
            Request::change_array(name, ArrayChange::Scrub { stop })
        }
        PoolCommand::Grow { name } => Request::GrowPool(name),
        PoolCommand::Set { name, rebuild, .. } if rebuild.is_given() => {
            Request::change_array(name, ArrayChange::SetRebuild(rebuild.into()))
        }
        PoolCommand::Set { name, defaults, .. } => {
            let change = PoolChange {
                compression: defaults.compression,
                chunk: defaults.chunk,
            };
            Request::SetPool { name, change }
        }
        PoolCommand::Rekey { name, key } => Request::RekeyPool(name, from_here(key)?),
        PoolCommand::Delete {
            name,
            erase: true,
            yes,
        } => {
            if !yes {
                return Err(Invalid::Destroys(KindName::Pool, name).into());
            }
            Request::ErasePool(name)
        }
        PoolCommand::Delete { name, .. } => Request::Delete(KindName::Pool, name),
        PoolCommand::Create {
            name,
            device: None,
            devices,
            redundancy,
            copies,
            columns,
            safe_read,
            rebuild,
            spare,
            block_size,
            kind,
            key,
            defaults,
            force,
        } => {
            let mut array = ArraySpec {
                spares: spare,
                redundancy,
                copies,
                columns,
                safe_read: safe_read.then_some(true),
                ..ArraySpec::found_on(devices)
            };
            RebuildChange::from(rebuild).apply_to(&mut array);
            let device = DeviceSpec::of_array(name, array, block_size, PolicyName::default());
            let key = key.map(from_here).transpose()?;
            let mut request = Request::on_array(device, (kind, key), None, ArrayHow::made(force));
            if let Request::CreateArray { of, .. } = &mut request
                && let Some(pool) = &mut of.pool
            {
                (pool.compression, pool.chunk) = (defaults.compression, defaults.chunk);
            }
            request
        }
        PoolCommand::Create {
            name,
            device: Some(device),
            kind,
            key,
            defaults,
            force,
            ..
        } => Request::CreatePool {
            spec: PoolSpec {
                name,
                devices: vec![device],
                kind,
                key: key.map(from_here).transpose()?,
                compression: defaults.compression,
                chunk: defaults.chunk,
            },
            force,
        },
    };
    run(&args.reach, &request)
}

impl From<RebuildArgs> for RebuildChange {
    fn from(given: RebuildArgs) -> Self {
        Self {
            priority: given.rebuild_priority,
            limit: given.rebuild_limit,
        }
    }
}

/// What is said of a pool that is imported with a key: only mapped ones have one.
fn encrypted(key: Option<KeyText>) -> Result<(Option<VolumeKind>, Option<KeyText>), Invalid> {
    let kind = key.is_some().then_some(VolumeKind::Mapped);
    Ok((kind, key.map(from_here).transpose()?))
}
