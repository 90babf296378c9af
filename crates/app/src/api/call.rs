//! A request as an HTTP call: the other direction of `operations.rs`.

use axum::http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::answer::text;
use super::parts::{
    CopyTo, FoundPartitions, FoundPool, MuteFor, NewArray, NewConfiguration, NewFaults, NewKey,
    NewName, NewOwner, NewPolicy, NewPool, NewSettings, NewVolume, Query,
};
use crate::control::{
    AuditAsk, Destination, HealthAsk, HealthCode, KindName, NewForm, NewVersion, Page, Request,
    SnapshotAsk, SnapshotChange, SnapshotName,
};

/// An HTTP call.
pub(super) struct Call {
    pub(super) method: Method,
    /// Path and query, behind the prefix.
    pub(super) target: String,
    /// JSON, or nothing.
    pub(super) body: String,
    /// The answer is to tell how far it is.
    pub(super) follow: bool,
}

impl Call {
    /// How a request is asked.
    pub(super) fn of(request: &Request) -> Self {
        match request {
            Request::Status(page) => get("/status".to_owned()).with(&part(page, None)),
            Request::Health(HealthAsk::Show) => get("/health".to_owned()),
            Request::Health(HealthAsk::Mute(code, seconds)) => {
                let seconds = *seconds;
                put(muted(*code), MuteFor { seconds }.text())
            }
            Request::Health(HealthAsk::Unmute(code)) => delete(muted(*code)),
            Request::Metrics(_) => get("/metrics".to_owned()),
            Request::Traffic(page) => get("/traffic".to_owned()).with(&part(page, None)),
            Request::Activity(page) => get("/activity".to_owned()).with(&part(page, None)),
            Request::Events(ask) => Self {
                follow: ask.follow,
                ..get("/events".to_owned()).with(&Query {
                    after: ask.after.clone(),
                    ..Query::default()
                })
            },
            Request::Audit(ask) => get("/audit".to_owned()).with(&of_audit(ask)),
            Request::CreateIfMissing(create) => Self::of(create).with(&Query {
                if_missing: true,
                ..Query::default()
            }),
            Request::ShowTarget => get("/target".to_owned()),
            Request::SetTarget(settings) => {
                send(Method::PATCH, "/target".to_owned(), text(settings))
            }
            Request::List(kind, page) => get(format!("/{}", kind.plural())).with(&part(page, None)),
            Request::ListVolumes(of, page) => get("/volumes".to_owned()).with(&Query {
                tenant: of.tenant.clone(),
                pool: of.pool.clone(),
                ..part(page, None)
            }),
            Request::Show(kind, name) => get(of(*kind, name)),
            Request::Delete(kind, name) => delete(of(*kind, name)),
            Request::Export => get("/configuration".to_owned()),
            Request::Apply { file, how } => {
                let (file, how) = (file.clone(), *how);
                post(
                    "/configuration".to_owned(),
                    NewConfiguration { file, how }.text(),
                )
            }
            Request::Backup(path) => {
                let path = path.clone();
                post("/backup".to_owned(), CopyTo { path }.text())
            }
            Request::CreateDevice(_)
            | Request::CreateDeviceOver(_)
            | Request::Rekey { .. }
            | Request::EraseKey(_)
            | Request::StartDevice(_)
            | Request::CreateArray { .. }
            | Request::ChangeArray { .. }
            | Request::ImportPartitions { .. }
            | Request::SetDevice { .. }
            | Request::SetFaults { .. }
            | Request::Calibrate { .. }
            | Request::GrowPartition { .. }
            | Request::DeletePartition { .. } => of_device(request),
            Request::CreatePool { .. }
            | Request::ImportPool { .. }
            | Request::GrowPool(_)
            | Request::SetPool { .. }
            | Request::ErasePool(_)
            | Request::RekeyPool(..) => of_pool(request),
            Request::CreateTenant { .. }
            | Request::SetTenant { .. }
            | Request::RenameTenant { .. }
            | Request::Why { .. } => of_tenant(request),
            Request::ImportVolume(_)
            | Request::CreateVolume { .. }
            | Request::SetVolume { .. }
            | Request::RenameVolume { .. }
            | Request::MoveVolume { .. }
            | Request::MigrateVolume { .. }
            | Request::CancelMigration(_) => of_volume(request),
            Request::AskSnapshots(ask) => of_question(ask),
            Request::ChangeSnapshot(change) => of_snapshot(change),
            Request::CreateFunctions(all) => post("/functions".to_owned(), text(all)),
            Request::SetFunction { name, change } => {
                send(Method::PATCH, of(KindName::Function, name), text(change))
            }
            Request::DeleteFunction { name, connected } => {
                let connected = *connected;
                delete(of(KindName::Function, name)).with(&Query {
                    connected,
                    ..Query::default()
                })
            }
        }
    }

    /// What is at a path, behind the prefix.
    pub(super) fn get(target: String) -> Self {
        get(target)
    }

    fn with(mut self, query: &Query) -> Self {
        let query = serde_urlencoded::to_string(query).expect("queries are plain data");
        if !query.is_empty() {
            let before = if self.target.contains('?') { '&' } else { '?' };
            self.target = format!("{}{before}{query}", self.target);
        }
        self
    }

    fn forced(self, force: bool) -> Self {
        self.with(&Query {
            force,
            ..Query::default()
        })
    }

    fn followed(mut self, follow: bool) -> Self {
        self.follow = follow;
        self
    }
}

fn of_device(request: &Request) -> Call {
    let device = |name| of(KindName::Device, name);
    match request {
        Request::CreateDevice(spec) => post("/devices".to_owned(), text(spec)),
        Request::CreateDeviceOver(spec) => post("/devices".to_owned(), text(spec)).forced(true),
        Request::Rekey { name, key } => {
            let key = key.clone();
            put(device(name) + "/key", NewKey { key }.text())
        }
        Request::StartDevice(name) => post(device(name) + "/start", String::new()),
        Request::EraseKey(name) => delete(device(name)).with(&Query {
            erase: true,
            ..Query::default()
        }),
        Request::CreateArray { of, how } => {
            let (of, how) = ((**of).clone(), *how);
            post("/arrays".to_owned(), NewArray { of, how }.text())
        }
        Request::ChangeArray { name, change } => {
            post(format!("/arrays/{}", encoded(name)), text(change))
        }
        Request::SetDevice { name, policy } => {
            let policy = *policy;
            put(device(name) + "/policy", NewPolicy { policy }.text())
        }
        Request::SetFaults { name, faults } => {
            let faults = faults.clone();
            put(device(name) + "/faults", NewFaults { faults }.text())
        }
        Request::Calibrate {
            device: name,
            destroy,
            progress,
        } => {
            let destroy = *destroy;
            let query = Query {
                destroy,
                ..Query::default()
            };
            let call = post(device(name) + "/calibration", String::new());
            call.with(&query).followed(*progress)
        }
        other => of_partition(other),
    }
}

fn of_partition(request: &Request) -> Call {
    match request {
        Request::ImportPartitions {
            device,
            name,
            policy,
            list,
        } => {
            let found = FoundPartitions {
                device: device.clone(),
                name: name.clone(),
                policy: *policy,
                list: *list,
            };
            post("/partitions/import".to_owned(), found.text())
        }
        Request::GrowPartition { name, more } => {
            post(of(KindName::Partition, name) + "/growth", text(more))
        }
        Request::DeletePartition { name, device } => {
            let device = Some(device.clone());
            delete(of(KindName::Partition, name)).with(&Query {
                device,
                ..Query::default()
            })
        }
        other => unreachable!("{other:?} is about no device"),
    }
}

fn of_pool(request: &Request) -> Call {
    match request {
        Request::CreatePool { spec, force } => post("/pools".to_owned(), text(spec)).forced(*force),
        Request::ImportPool { spec, tenant, list } => {
            let found = FoundPool {
                spec: spec.clone(),
                tenant: tenant.clone(),
                list: *list,
            };
            post("/pools/import".to_owned(), found.text())
        }
        Request::GrowPool(name) => post(of(KindName::Pool, name) + "/growth", String::new()),
        Request::SetPool { name, change } => {
            send(Method::PATCH, of(KindName::Pool, name), text(change))
        }
        Request::ErasePool(name) => delete(of(KindName::Pool, name)).with(&Query {
            erase: true,
            ..Query::default()
        }),
        Request::RekeyPool(name, key) => {
            let key = key.clone();
            put(of(KindName::Pool, name) + "/key", NewKey { key }.text())
        }
        other => unreachable!("{other:?} is about no pool"),
    }
}

fn of_tenant(request: &Request) -> Call {
    let tenant = |name| of(KindName::Tenant, name);
    match request {
        Request::CreateTenant { spec, force } => {
            post("/tenants".to_owned(), text(spec)).forced(*force)
        }
        Request::SetTenant {
            name,
            change,
            force,
        } => send(Method::PATCH, tenant(name), text(change)).forced(*force),
        Request::RenameTenant { name, new } => {
            let new = new.clone();
            put(tenant(name) + "/name", NewName { new }.text())
        }
        Request::Why { tenant: name } => get(tenant(name) + "/why"),
        other => unreachable!("{other:?} is about no tenant"),
    }
}

fn of_volume(request: &Request) -> Call {
    let volume = |name| of(KindName::Volume, name);
    match request {
        Request::ImportVolume(spec) => post("/volumes/import".to_owned(), text(spec)),
        Request::CreateVolume { spec, force } => {
            post("/volumes".to_owned(), text(spec)).forced(*force)
        }
        Request::SetVolume { name, change } => send(Method::PATCH, volume(name), text(change)),
        Request::RenameVolume { name, new } => {
            let new = new.clone();
            put(volume(name) + "/name", NewName { new }.text())
        }
        Request::MoveVolume {
            name,
            tenant,
            nsid,
            force,
        } => {
            let (tenant, nsid) = (tenant.clone(), *nsid);
            put(volume(name) + "/tenant", NewOwner { tenant, nsid }.text()).forced(*force)
        }
        Request::MigrateVolume {
            name,
            to,
            background,
            force,
            progress,
        } => {
            let (volume, background) = (volume(name), *background);
            let call = match to.clone() {
                Destination::Pool(to) => {
                    post(volume + "/migration", NewPool { to, background }.text())
                }
                Destination::Form(NewForm { compression, chunk }) => {
                    let settings = NewSettings {
                        compression,
                        chunk,
                        background,
                    };
                    post(volume + "/settings", settings.text())
                }
            };
            call.forced(*force).followed(*progress)
        }
        Request::CancelMigration(name) => delete(volume(name) + "/migration"),
        other => unreachable!("{other:?} is about no volume"),
    }
}

fn of_question(ask: &SnapshotAsk) -> Call {
    match ask {
        SnapshotAsk::List(volume, page) => {
            get("/snapshots".to_owned()).with(&part(page, volume.clone()))
        }
        SnapshotAsk::Show(one) => get(path_of(one)),
        SnapshotAsk::Diff {
            volume,
            since,
            until,
            from,
        } => get(of(KindName::Volume, volume) + "/changes").with(&Query {
            since: since.clone(),
            until: until.clone(),
            from: (*from > 0).then_some(*from),
            ..Query::default()
        }),
    }
}

fn of_audit(ask: &AuditAsk) -> Query {
    Query {
        limit: ask.limit,
        after: ask.after.map(|number| number.to_string()),
        last: ask.last,
        who: ask.who.clone(),
        since: ask.since.clone(),
        ..Query::default()
    }
}

/// The query of a part of a list.
fn part<A: ToString>(page: &Page<A>, volume: Option<String>) -> Query {
    Query {
        volume,
        limit: page.limit,
        after: page.after.as_ref().map(A::to_string),
        ..Query::default()
    }
}

fn of_snapshot(change: &SnapshotChange) -> Call {
    let new = |version: &NewVersion| {
        let NewVersion {
            name, tenant, nsid, ..
        } = version.clone();
        NewVolume { name, tenant, nsid }.text()
    };
    match change {
        SnapshotChange::Create(all) => post("/snapshots".to_owned(), text(all)),
        SnapshotChange::Delete(one) => delete(path_of(one)),
        SnapshotChange::Restore(one) => post(path_of(one) + "/restore", String::new()),
        SnapshotChange::Clone(version) => post(path_of(&version.of) + "/clone", new(version)),
        SnapshotChange::Share(version) => post(path_of(&version.of) + "/share", new(version)),
    }
}

fn path_of(one: &SnapshotName) -> String {
    let volume = of(KindName::Volume, &one.volume);
    format!("{volume}/snapshots/{}", encoded(&one.name))
}

/// The path of one of a kind.
fn of(kind: KindName, name: &str) -> String {
    format!("/{}/{}", kind.plural(), encoded(name))
}

fn muted(code: HealthCode) -> String {
    format!("/health/{code}/mute")
}

/// A name as a part of a path.
fn encoded(name: &str) -> impl std::fmt::Display {
    utf8_percent_encode(name, NON_ALPHANUMERIC)
}

fn get(target: String) -> Call {
    send(Method::GET, target, String::new())
}

fn delete(target: String) -> Call {
    send(Method::DELETE, target, String::new())
}

fn post(target: String, body: String) -> Call {
    send(Method::POST, target, body)
}

fn put(target: String, body: String) -> Call {
    send(Method::PUT, target, body)
}

fn send(method: Method, target: String, body: String) -> Call {
    Call {
        method,
        target,
        body,
        follow: false,
    }
}
