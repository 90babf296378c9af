//! `flashyard snapshot`.

use serde_json::Value;

use super::{place, run, show};
use crate::api;
use crate::cli::{CloneArgs, Reach, SnapshotArgs, SnapshotCommand};
use crate::control::{
    DiffView, NewVersion, Page, Request, SnapshotAsk, SnapshotChange, SnapshotView, Version,
};
use crate::failure::{Failure, Invalid};
use crate::json;
use crate::out::{say, say_line};
use crate::table::Table;
use crate::units;

/// `flashyard snapshot …`.
pub fn snapshot(args: SnapshotArgs) -> Result<(), Failure> {
    let change = match args.command {
        SnapshotCommand::List { volume } => {
            return list(&args.reach, SnapshotAsk::List(volume, Page::first()));
        }
        SnapshotCommand::Show { snapshot } => {
            let ask = SnapshotAsk::Show(snapshot);
            return run(&args.reach, &Request::AskSnapshots(ask));
        }
        SnapshotCommand::Diff { old, new } => {
            let (since, until) = match new {
                None => (None, Some(old.name)),
                Some(Version::Now(volume)) if volume == old.volume => (Some(old.name), None),
                Some(Version::Snapshot(new)) if new.volume == old.volume => {
                    (Some(old.name), Some(new.name))
                }
                Some(_) => return Err(Invalid::OtherVolume(old.volume).into()),
            };
            return diff(&args.reach, old.volume, since, until);
        }
        SnapshotCommand::Create { snapshots } => {
            let request = Request::ChangeSnapshot(SnapshotChange::Create(snapshots));
            return show(&args.reach, &request, print_list);
        }
        SnapshotCommand::Restore { snapshot, yes } => match yes {
            true => SnapshotChange::Restore(snapshot),
            false => return Err(Invalid::LosesSince(snapshot).into()),
        },
        SnapshotCommand::Delete { snapshot, yes } => match yes {
            true => SnapshotChange::Delete(snapshot),
            false => return Err(Invalid::LosesSnapshot(snapshot).into()),
        },
        SnapshotCommand::Share {
            tenant: Some(tenant),
            snapshot,
            yes: false,
            ..
        } => return Err(Invalid::ShowsSnapshot(snapshot, tenant).into()),
        SnapshotCommand::Share {
            snapshot,
            name,
            tenant,
            nsid,
            ..
        } => SnapshotChange::Share(NewVersion {
            of: snapshot,
            name,
            tenant,
            nsid,
        }),
    };
    run(&args.reach, &Request::ChangeSnapshot(change))
}

/// What `flashyard volume clone` asks for.
pub fn clone_request(args: CloneArgs) -> Request {
    Request::ChangeSnapshot(SnapshotChange::Clone(NewVersion {
        of: args.snapshot,
        name: args.name,
        tenant: args.tenant,
        nsid: args.nsid,
    }))
}

fn list(reach: &Reach, ask: SnapshotAsk) -> Result<(), Failure> {
    show(reach, &Request::AskSnapshots(ask), print_list)
}

fn print_list(all: &Vec<SnapshotView>) {
    if all.is_empty() {
        say_line!("no snapshots yet: `flashyard snapshot create --help` shows how to make one");
        return;
    }
    let mut table = Table::new(&[
        "name",
        "size",
        "own",
        "shared",
        "made",
        "clones",
        "shared as",
    ]);
    let names = |all: &[String]| match all.is_empty() {
        true => "-".to_owned(),
        false => all.join(" "),
    };
    for one in all {
        table.row(vec![
            one.name.clone(),
            units::size(one.size),
            units::size(one.own_bytes),
            units::size(one.shared_bytes),
            one.made.clone().unwrap_or_else(|| "-".to_owned()),
            names(&one.clones),
            names(&one.shared_as),
        ]);
    }
    say!("{}", table.render());
}

/// Asks for one part after the other.
fn diff(
    reach: &Reach,
    volume: String,
    since: Option<String>,
    until: Option<String>,
) -> Result<(), Failure> {
    let place = place(reach)?;
    let mut all = DiffView::default();
    let mut from = Some(0);
    while let Some(at) = from {
        let ask = SnapshotAsk::Diff {
            volume: volume.clone(),
            since: since.clone(),
            until: until.clone(),
            from: at,
        };
        let part: DiffView = api::ask(&place, &Request::AskSnapshots(ask))?;
        all.changed_bytes += part.changed_bytes;
        all.ranges.extend(part.ranges);
        from = part.next_bytes;
    }
    if reach.json {
        json::print("", &serde_json::to_value(&all).unwrap_or(Value::Null));
        return Ok(());
    }
    let mut table = Table::new(&["offset", "length"]);
    for range in &all.ranges {
        table.row(vec![
            range.offset_bytes.to_string(),
            units::size(range.length_bytes),
        ]);
    }
    if !all.ranges.is_empty() {
        say!("{}", table.render());
    }
    say_line!("{} changed", units::size(all.changed_bytes));
    Ok(())
}
