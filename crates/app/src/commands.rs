//! The commands that talk to a running target: typed words become a request, the answer a table.

mod audit;
mod events;
mod function;
mod health;
mod place;
mod pool;
mod snapshots;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api;
use crate::cli::{
    ApplyArgs, BackupArgs, DeviceArgs, DeviceCommand, ExportArgs, MoveGoalArgs, OnOff,
    PartitionArgs, PartitionCommand, Reach, RestoreArgs, TargetArgs, TargetCommand, TargetSetArgs,
    TenantArgs, TenantCommand, UnitsArgs, VolumeArgs, VolumeCommand, WhyArgs,
};
use crate::control::{
    AppliedView, Destination, How, KindName, NewForm, Page, Request, TenantChange, VolumeChange,
    VolumesOf,
};
use crate::failure::{Failure, Invalid};
use crate::json;
use crate::out::{say, say_line};
use crate::spec::{
    CompressionName, ContentName, DeviceSpec, Document, FlatDevice, KeyText, PartitionSpec, Size,
    TargetSettings, TenantSpec, VolumeSpec, is_file,
};
use crate::state;
use crate::table;
use crate::why;

pub use audit::audit;
pub use events::events;
pub use function::function;
pub use health::{health, metrics, status};
pub use place::{default_state, place};
pub use pool::pool;
pub use snapshots::snapshot;

/// `flashyard device …`.
pub fn device(args: DeviceArgs) -> Result<(), Failure> {
    let request = match args.command {
        DeviceCommand::List => Request::List(KindName::Device, Page::first()),
        DeviceCommand::Show { name } => Request::Show(KindName::Device, name),
        DeviceCommand::Calibrate { name, destroy } => {
            return calibrate(&args.reach, name, destroy);
        }
        DeviceCommand::Set { name, change } => match change.policy {
            Some(policy) => Request::SetDevice { name, policy },
            None => Request::SetFaults {
                name,
                faults: change.fault,
            },
        },
        DeviceCommand::Delete {
            name,
            erase: true,
            yes,
        } => {
            if !yes {
                return Err(Invalid::Destroys(KindName::Device, name).into());
            }
            Request::EraseKey(name)
        }
        DeviceCommand::Delete { name, .. } => Request::Delete(KindName::Device, name),
        DeviceCommand::Start { name } => Request::StartDevice(name),
        DeviceCommand::Rekey { name, key } => Request::Rekey {
            name,
            key: from_here(key)?,
        },
        DeviceCommand::Create {
            name,
            kind,
            size,
            block_size,
            path,
            address,
            subnqn,
            nsid,
            profile,
            condition,
            store,
            seed,
            dilation,
            units,
            device,
            key,
            force,
            fault,
            policy,
        } => {
            let key = key.map(from_here).transpose()?;
            let path = path.map(|path| absolute(&path)).transpose()?;
            let profile = match profile {
                Some(profile) if is_file(&profile) => Some(absolute(&profile)?),
                profile => profile,
            };
            let flat = FlatDevice {
                size,
                block_size,
                path,
                address,
                subnqn,
                nsid,
                profile,
                condition,
                store,
                seed,
                dilation,
                units,
                device,
                key,
                faults: Some(fault).filter(|faults| !faults.is_empty()),
                policy,
                ..FlatDevice::new(name, kind)
            };
            let spec = DeviceSpec::try_from(flat)?;
            match force {
                true => Request::CreateDeviceOver(spec),
                false => Request::CreateDevice(spec),
            }
        }
    };
    run(&args.reach, &request)
}

/// `flashyard device calibrate NAME`.
fn calibrate(reach: &Reach, device: String, destroy: bool) -> Result<(), Failure> {
    let request = Request::Calibrate {
        device,
        destroy,
        progress: io::stderr().is_terminal(),
    };
    follow(reach, &request, "measuring")
}

/// Asks for what takes long, and shows how far it is: so much of `what`.
fn follow(reach: &Reach, request: &Request, what: &str) -> Result<(), Failure> {
    let bar = ProgressBar::new(0);
    let style = format!("{{bar:30}} {{pos}}/{{len}}  {{elapsed}}, {{eta}} left  {what}");
    bar.set_style(ProgressStyle::with_template(&style).expect("the template is a constant"));
    let place = place(reach)?;
    let answer: Result<Value, _> = api::ask_and_follow(&place, request, |progress| {
        bar.set_length(progress.of.into());
        bar.set_position(progress.done.into());
    });
    bar.finish_and_clear();
    match reach.json {
        true => json::print(request.noun(), &answer?),
        false => table::print_one(&answer?),
    }
    Ok(())
}

/// `flashyard partition …`.
pub fn partition(args: PartitionArgs) -> Result<(), Failure> {
    let cut = |device, units: UnitsArgs, op| PartitionSpec {
        device,
        channels: units.channels,
        units: units.units,
        count: units.count,
        op,
        given: Vec::new(),
        imported: false,
        unfinished: false,
    };
    let request = match args.command {
        PartitionCommand::List => Request::List(KindName::Partition, Page::first()),
        PartitionCommand::Show { name } => Request::Show(KindName::Partition, name),
        PartitionCommand::Delete {
            name,
            device,
            yes: true,
        } => match device {
            Some(device) => Request::DeletePartition { name, device },
            None => Request::Delete(KindName::Partition, name),
        },
        PartitionCommand::Delete { name, .. } => {
            return Err(Invalid::Destroys(KindName::Partition, name).into());
        }
        PartitionCommand::Import {
            name,
            device,
            policy,
            list,
        } => {
            let request = Request::ImportPartitions {
                device,
                name,
                policy,
                list,
            };
            return show(&args.reach, &request, table::print_found_partitions);
        }
        PartitionCommand::Grow { name, units } => Request::GrowPartition {
            name,
            more: cut(String::new(), units, "20%".to_owned()),
        },
        PartitionCommand::Create {
            name,
            device,
            units,
            op,
            policy,
        } => Request::CreateDevice(DeviceSpec::of_partition(
            name,
            cut(device, units, op),
            policy,
        )),
    };
    run(&args.reach, &request)
}

/// `flashyard volume …`.
pub fn volume(args: VolumeArgs) -> Result<(), Failure> {
    let request = volume_request(args.command)?;
    match request {
        Request::MigrateVolume { .. } => follow(&args.reach, &request, "MiB copied"),
        _ => run(&args.reach, &request),
    }
}

/// What `flashyard volume …` asks for.
pub fn volume_request(command: VolumeCommand) -> Result<Request, Invalid> {
    Ok(match command {
        VolumeCommand::List { tenant, pool } => {
            Request::ListVolumes(VolumesOf { tenant, pool }, Page::first())
        }
        VolumeCommand::Show { name } => Request::Show(KindName::Volume, name),
        VolumeCommand::Set { name, change } => Request::SetVolume {
            name,
            change: match (change.size, change.reserve, change.read_only) {
                (Some(size), ..) => VolumeChange::Size(size),
                (_, Some(reserve), _) => VolumeChange::Reserve(reserve),
                (.., read_only) => VolumeChange::ReadOnly(read_only == Some(OnOff::On)),
            },
        },
        VolumeCommand::Delete { name, yes: true } => Request::Delete(KindName::Volume, name),
        VolumeCommand::Delete { name, .. } => {
            return Err(Invalid::Destroys(KindName::Volume, name));
        }
        VolumeCommand::Create {
            name,
            pool,
            device,
            kind,
            compression,
            chunk,
            size,
            reserve,
            tenant,
            keep,
            erase,
            uuid,
            nguid,
            eui64,
            nsid,
            read_only,
            force,
        } => Request::CreateVolume {
            spec: VolumeSpec {
                name,
                pool,
                device,
                kind,
                compression,
                chunk,
                size,
                reserve: reserve.filter(|it| it.0 > 0),
                tenant,
                content: match (keep, erase) {
                    (true, _) => Some(ContentName::Keep),
                    (_, true) => Some(ContentName::Erase),
                    _ => None,
                },
                uuid,
                nguid,
                eui64,
                nsid,
                read_only: read_only.then_some(true),
            },
            force,
        },
        VolumeCommand::Import {
            name,
            pool,
            tenant,
            uuid,
            nsid,
            nguid,
            eui64,
            read_only,
        } => Request::ImportVolume(VolumeSpec {
            name,
            pool: Some(pool),
            tenant,
            uuid,
            nguid,
            eui64,
            nsid,
            read_only: read_only.then_some(true),
            ..VolumeSpec::default()
        }),
        VolumeCommand::Clone(args) => snapshots::clone_request(args),
        VolumeCommand::Rename { name, new } => Request::RenameVolume { name, new },
        VolumeCommand::Move {
            name,
            goal,
            background,
            compression,
            chunk,
            nsid,
            force,
            yes,
        } => match (destination(&goal, compression, chunk), goal.tenant) {
            (Some(to), _) => {
                let progress = io::stderr().is_terminal() && !background;
                Request::MigrateVolume {
                    name,
                    to,
                    background,
                    force,
                    progress,
                }
            }
            (None, Some(tenant)) if yes => Request::MoveVolume {
                name,
                tenant,
                nsid,
                force,
            },
            (None, Some(tenant)) => return Err(Invalid::GivesAway(name, tenant)),
            (None, None) => Request::CancelMigration(name),
        },
    })
}

/// Where a volume goes while its hosts use it, if it does.
fn destination(
    goal: &MoveGoalArgs,
    compression: Option<CompressionName>,
    chunk: Option<Size>,
) -> Option<Destination> {
    let form = NewForm { compression, chunk };
    let form = goal.to_settings.then_some(Destination::Form(form));
    goal.to.clone().map(Destination::Pool).or(form)
}

/// `flashyard tenant …`.
pub fn tenant(args: TenantArgs) -> Result<(), Failure> {
    let request = match args.command {
        TenantCommand::List => Request::List(KindName::Tenant, Page::first()),
        TenantCommand::Show { name } => Request::Show(KindName::Tenant, name),
        TenantCommand::Delete { name } => Request::Delete(KindName::Tenant, name),
        TenantCommand::Rename { name, new } => Request::RenameTenant { name, new },
        TenantCommand::Create {
            name,
            nqn,
            serial,
            model,
            hosts,
            class,
            weight,
            owed,
        } => Request::CreateTenant {
            spec: TenantSpec {
                name,
                nqn,
                serial,
                model,
                hosts,
                class,
                weight,
                guarantee: owed.guarantee,
                limit: owed.limit,
                latency_target: owed.latency_target,
                quota: owed.quota.into_iter().collect(),
            }
            .without_empty(),
            force: owed.force,
        },
        TenantCommand::Set {
            name,
            hosts,
            class,
            weight,
            owed,
        } => {
            let change = TenantChange {
                hosts: (!hosts.is_empty()).then_some(hosts),
                class,
                weight,
                guarantee: owed.guarantee,
                limit: owed.limit,
                latency_target: owed.latency_target,
                quota: owed.quota.into_iter().collect(),
            };
            if change == TenantChange::default() {
                return Err(Invalid::NothingToChange.into());
            }
            Request::SetTenant {
                name,
                change,
                force: owed.force,
            }
        }
    };
    run(&args.reach, &request)
}

/// `flashyard target …`.
pub fn target(args: TargetArgs) -> Result<(), Failure> {
    let request = match args.command {
        TargetCommand::Show => Request::ShowTarget,
        TargetCommand::Set(TargetSetArgs {
            nqn_prefix,
            cores,
            listen,
            max_transfer,
            io_queues,
            queue_depth,
            in_capsule,
            socket_folder,
        }) => Request::SetTarget(TargetSettings {
            nqn_prefix,
            cores: cores.map(usize::from),
            listen: (!listen.is_empty()).then_some(listen),
            max_transfer,
            io_queues,
            queue_depth,
            in_capsule,
            socket_folder: socket_folder.map(|folder| absolute(&folder)).transpose()?,
        }),
    };
    run(&args.reach, &request)
}

/// `flashyard why TENANT`.
pub fn why(args: WhyArgs) -> Result<(), Failure> {
    let WhyArgs { reach, tenant } = args;
    show(&reach, &Request::Why { tenant }, why::print_why)
}

/// `flashyard apply FILE`.
pub fn apply(args: &ApplyArgs) -> Result<(), Failure> {
    let request = Request::Apply {
        file: Document::read(&args.file).map_err(Invalid::File)?,
        how: How {
            plan: args.plan,
            prune: args.prune,
            yes: args.yes,
            import: args.import,
            force: args.force,
        },
    };
    show(&args.reach, &request, |applied: &AppliedView| {
        say_applied(applied);
        if applied.changes.is_empty() {
            say_line!("nothing to do: the target has everything the file says");
        }
        for risk in applied.risks.iter().filter(|_| !applied.done) {
            say_line!("needs --yes: {risk}");
        }
    })
}

/// `flashyard export`.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let place = place(&args.reach)?;
    let file: Document = api::ask(&place, &Request::Export)?;
    match (&args.output, args.reach.json) {
        (Some(path), json) => {
            let written = fs::write(path, file.to_toml());
            written.map_err(|error| Invalid::Unwritable(path.clone(), error))?;
            if json {
                json::print("", &serde_json::json!({ "path": path }));
            }
        }
        (None, true) => json::print("", &file),
        (None, false) => say!("{}", file.to_toml()),
    }
    Ok(())
}

/// `flashyard backup FILE`.
pub fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let file = absolute(&args.file.to_string_lossy())?;
    run(&args.reach, &Request::Backup(PathBuf::from(file)))
}

/// `flashyard restore FILE`.
pub fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let state = args.reach.state.clone().unwrap_or_else(default_state);
    let kept = state::restore(&state, &args.file, args.yes)?;
    match (args.reach.json, kept) {
        (true, kept) => json::print("", &serde_json::json!({ "kept": kept })),
        (false, Some(kept)) => say_line!("done; what was there is {}", kept.display()),
        (false, None) => say_line!("done"),
    }
    Ok(())
}

/// What a file has changed, or would.
pub fn say_applied(applied: &AppliedView) {
    let prefix = if applied.done { "done:" } else { "would" };
    for change in &applied.changes {
        say_line!("{prefix} {change}");
    }
    for note in &applied.notes {
        say_line!("note: {note}");
    }
}

fn run(reach: &Reach, request: &Request) -> Result<(), Failure> {
    show(reach, request, |answer: &Value| match (request, answer) {
        (Request::List(kind, _), Value::Array(rows)) => table::print_list(*kind, rows),
        (Request::ListVolumes(of, _), Value::Array(rows)) => print_volumes(of, rows),
        (Request::CreateFunctions(_), Value::Array(rows)) => {
            table::print_list(KindName::Function, rows);
        }
        (_, Value::Null) => say_line!("done"),
        (_, value) => table::print_one(value),
    })
}

/// There may be others where only some were asked for.
fn print_volumes(of: &VolumesOf, rows: &[Value]) {
    let tenant = of.tenant.iter().map(|name| format!(" of tenant {name}"));
    let pool = of.pool.iter().map(|name| format!(" in pool {name}"));
    let which: String = tenant.chain(pool).collect();
    match rows.is_empty() && !which.is_empty() {
        true => say_line!("no volume{which}"),
        false => table::print_list(KindName::Volume, rows),
    }
}

/// Asks the target, and prints what it answers: for programs as it is, for people by `print`.
fn show<T: DeserializeOwned>(
    reach: &Reach,
    request: &Request,
    print: impl FnOnce(&T),
) -> Result<(), Failure> {
    let place = place(reach)?;
    if reach.json {
        json::print(request.noun(), &api::ask::<Value>(&place, request)?);
    } else {
        print(&api::ask(&place, request)?);
    }
    Ok(())
}

/// Where a key is, with a path that means the same elsewhere.
fn from_here(key: KeyText) -> Result<KeyText, Invalid> {
    let here = std::env::current_dir().map_err(|error| Invalid::Path(".".to_owned(), error))?;
    Ok(key.within(&here))
}

/// Paths are meant from where the user stands, which is not where the target runs.
fn absolute(path: &str) -> Result<String, Invalid> {
    let absolute =
        std::path::absolute(path).map_err(|error| Invalid::Path(path.to_owned(), error))?;
    Ok(absolute.to_string_lossy().into_owned())
}
