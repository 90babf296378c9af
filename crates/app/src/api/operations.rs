//! What can be asked over HTTP: every operation with its method and path, and how its parts become
//! a request. `call.rs` is the other direction.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use axum::http::Method;
use clap::ValueEnum;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use super::answer::text;
use crate::control::{
    ArrayChange, ArrayHow, ArrayOf, ErrorKind, HasKind, HealthAsk, HealthCode, How, KindName,
    NewVersion, Request, SnapshotAsk, SnapshotChange, SnapshotName,
};
use crate::spec::{Document, FaultSpec, KeyText, PolicyName, PoolSpec};

/// One thing that can be asked.
#[derive(Serialize)]
pub(super) struct Operation {
    #[serde(serialize_with = "method")]
    pub(super) method: Method,
    /// Behind the prefix; `{name}` and `{child}` are what it is about.
    pub(super) path: &'static str,
    /// One sentence for people.
    about: &'static str,
    /// Keys that its query may have.
    query: &'static [&'static str],
    #[serde(skip)]
    pub(super) read: fn(Parts) -> Result<Request, NotUnderstood>,
}

fn method<S: Serializer>(method: &Method, to: S) -> Result<S::Ok, S::Error> {
    method.as_str().serialize(to)
}

/// What a request over HTTP consists of.
#[derive(Default)]
pub(super) struct Parts {
    name: String,
    child: String,
    query: Query,
    body: Vec<u8>,
    /// The client wants to know how far it is.
    follow: bool,
}

/// All that may be in a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Query {
    #[serde(skip_serializing_if = "is_false")]
    pub(super) force: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) erase: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) connected: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) destroy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Why the parts are no request.
#[derive(Debug)]
pub(super) enum NotUnderstood {
    /// Something else than these in the query.
    Query(serde_urlencoded::de::Error, &'static [&'static str]),
    /// This is no key of the query here; these are.
    OtherKey(String, &'static [&'static str]),
    Body(serde_json::Error),
    /// There has to be one.
    NoBody,
    /// No code of what can be wrong.
    Code(String),
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = |f: &mut fmt::Formatter<'_>, keys: &[&str]| match keys {
            [] => f.write_str("this operation has no query"),
            keys => write!(f, "its keys are {}", keys.join(", ")),
        };
        match self {
            Self::Query(error, allowed) => {
                write!(f, "the query is not understood: {error}; ")?;
                keys(f, allowed)
            }
            Self::OtherKey(key, allowed) => {
                write!(f, "`{key}` is no key of the query here; ")?;
                keys(f, allowed)
            }
            Self::Body(error) => write!(f, "the body is not understood: {error}"),
            Self::Code(code) => {
                let all = HealthCode::value_variants()
                    .iter()
                    .map(HealthCode::to_string);
                let all: Vec<String> = all.collect();
                write!(f, "`{code}` is none of {}", all.join(", "))
            }
            Self::NoBody => f.write_str("the operation needs a JSON body"),
        }
    }
}

impl HasKind for NotUnderstood {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl Parts {
    /// What came with a request for `operation`.
    pub(super) fn new(
        operation: &Operation,
        mut names: HashMap<String, String>,
        query: Option<&str>,
        body: &[u8],
        follow: bool,
    ) -> Result<Self, NotUnderstood> {
        let allowed = operation.query;
        let refused = |error| NotUnderstood::Query(error, allowed);
        let query = query.unwrap_or_default();
        let keys: Vec<(String, String)> = serde_urlencoded::from_str(query).map_err(refused)?;
        if let Some((key, _)) = keys.iter().find(|(key, _)| !allowed.contains(&&**key)) {
            return Err(NotUnderstood::OtherKey(key.clone(), allowed));
        }
        Ok(Self {
            name: names.remove("name").unwrap_or_default(),
            child: names.remove("child").unwrap_or_default(),
            query: serde_urlencoded::from_str(query).map_err(refused)?,
            body: body.to_vec(),
            follow,
        })
    }

    fn body<T: DeserializeOwned>(&self) -> Result<T, NotUnderstood> {
        match self.body.is_empty() {
            true => Err(NotUnderstood::NoBody),
            false => serde_json::from_slice(&self.body).map_err(NotUnderstood::Body),
        }
    }

    fn code(&self) -> Result<HealthCode, NotUnderstood> {
        let code = HealthCode::from_str(&self.name, false);
        code.map_err(|_| NotUnderstood::Code(self.name.clone()))
    }

    fn snapshot(&self) -> SnapshotName {
        SnapshotName {
            volume: self.name.clone(),
            name: self.child.clone(),
        }
    }

    fn version(&self) -> Result<NewVersion, NotUnderstood> {
        let new: NewVolume = self.body()?;
        Ok(NewVersion {
            of: self.snapshot(),
            name: new.name,
            tenant: new.tenant,
            nsid: new.nsid,
        })
    }
}

/// The bodies that are not the specification of something.
macro_rules! bodies {
    ($($(#[$about:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name { $(pub(super) $field: $kind,)* }

        impl $name {
            pub(super) fn text(&self) -> String {
                text(self)
            }
        }
    )*};
}

bodies! {
    /// For how long.
    MuteFor { seconds: u64, }
    /// Another name.
    NewName { new: String, }
    /// Where a key or passphrase is.
    NewKey { key: KeyText, }
    /// The policy from now on.
    NewPolicy { policy: PolicyName, }
    /// The faults from now on.
    NewFaults { faults: Vec<FaultSpec>, }
    /// A device made of others, and how it begins.
    NewArray { of: ArrayOf, how: ArrayHow, }
    /// A pool that is on a device.
    FoundPool { spec: PoolSpec, tenant: Option<String>, list: bool, }
    /// Partitions that are on a device.
    FoundPartitions { device: String, name: Option<String>, policy: Option<PolicyName>, list: bool, }
    /// A tenant for a volume.
    NewOwner { tenant: String, nsid: Option<u32>, }
    /// A pool for a volume.
    NewPool { to: String, background: bool, }
    /// A volume that is made of a snapshot.
    NewVolume { name: String, tenant: Option<String>, nsid: Option<u32>, }
    /// Where a copy goes.
    CopyTo { path: PathBuf, }
    /// A configuration file, and how it is applied.
    NewConfiguration { file: Document, how: How, }
}

/// An operation that is a method, a path, a sentence, keys of its query, and a function.
macro_rules! operations {
    ($($method:ident $path:literal [$($key:literal),*] $about:literal => $read:expr;)*) => {
        /// All that can be asked.
        pub(super) const OPERATIONS: &[Operation] = &[$(Operation {
            method: Method::$method,
            path: $path,
            about: $about,
            query: &[$($key),*],
            read: $read,
        },)*];
    };
}

operations! {
    GET "/status" [] "Everything at a glance." => |_| Ok(Request::Status);
    GET "/health" [] "What is wrong, by stable codes, and what to do." => |_| {
        Ok(Request::Health(HealthAsk::Show))
    };
    PUT "/health/{name}/mute" [] "Has a code not count for some seconds." => |p| {
        Ok(Request::Health(HealthAsk::Mute(p.code()?, p.body::<MuteFor>()?.seconds)))
    };
    DELETE "/health/{name}/mute" [] "Has a code count again." => |p| {
        Ok(Request::Health(HealthAsk::Unmute(p.code()?)))
    };
    GET "/metrics" [] "Figures for Prometheus, as OpenMetrics text." => |_| Ok(Request::Metrics);
    GET "/traffic" [] "What came to volumes since the target started, and how long it took." => |_| {
        Ok(Request::Traffic)
    };
    GET "/target" [] "The target's own settings." => |_| Ok(Request::ShowTarget);
    PATCH "/target" [] "Changes settings of the target." => |p| Ok(Request::SetTarget(p.body()?));
    GET "/configuration" [] "The configuration file that makes what is there."
        => |_| Ok(Request::Export);
    POST "/configuration" [] "Applies a configuration file, or says what it would change." => |p| {
        let NewConfiguration { file, how } = p.body()?;
        Ok(Request::Apply { file, how })
    };
    POST "/backup" [] "Copies the state store to a file that is not there yet." => |p| {
        Ok(Request::Backup(p.body::<CopyTo>()?.path))
    };

    GET "/devices" [] "All devices." => |_| Ok(Request::List(KindName::Device));
    POST "/devices" ["force"] "Makes a device; `force` even over what another one holds." => |p| {
        let spec = p.body()?;
        Ok(match p.query.force {
            true => Request::CreateDeviceOver(spec),
            false => Request::CreateDevice(spec),
        })
    };
    GET "/devices/{name}" [] "One device." => |p| Ok(Request::Show(KindName::Device, p.name));
    DELETE "/devices/{name}" ["erase"] "Removes a device; `erase` forgets the key of its data." => |p| {
        Ok(match p.query.erase {
            true => Request::EraseKey(p.name),
            false => Request::Delete(KindName::Device, p.name),
        })
    };
    PUT "/devices/{name}/key" [] "Replaces the key or passphrase of an encrypted device." => |p| {
        let NewKey { key } = p.body()?;
        Ok(Request::Rekey { name: p.name, key })
    };
    PUT "/devices/{name}/policy" [] "Replaces the policy in front of a device." => |p| {
        let NewPolicy { policy } = p.body()?;
        Ok(Request::SetDevice { name: p.name, policy })
    };
    PUT "/devices/{name}/faults" [] "Replaces the faults that a device injects." => |p| {
        let NewFaults { faults } = p.body()?;
        Ok(Request::SetFaults { name: p.name, faults })
    };
    POST "/devices/{name}/calibration" ["destroy"] "Measures what a device can give." => |p| {
        Ok(Request::Calibrate {
            device: p.name,
            destroy: p.query.destroy,
            progress: p.follow,
        })
    };
    POST "/arrays" [] "Makes a device of others, and a pool on it." => |p| {
        let NewArray { of, how } = p.body()?;
        Ok(Request::CreateArray { of: Box::new(of), how })
    };
    POST "/arrays/{name}" [] "Changes the members of an array, or starts work on it." => |p| {
        let change: ArrayChange = p.body()?;
        Ok(Request::ChangeArray { name: p.name, change })
    };

    GET "/partitions" [] "All partitions." => |_| Ok(Request::List(KindName::Partition));
    POST "/partitions/import" [] "Takes partitions up that are on a device." => |p| {
        let FoundPartitions { device, name, policy, list } = p.body()?;
        Ok(Request::ImportPartitions { device, name, policy, list })
    };
    GET "/partitions/{name}" [] "One partition." => |p| Ok(Request::Show(KindName::Partition, p.name));
    DELETE "/partitions/{name}" ["device"] "Deletes a partition with its data." => |p| {
        Ok(match p.query.device {
            Some(device) => Request::DeletePartition { name: p.name, device },
            None => Request::Delete(KindName::Partition, p.name),
        })
    };
    POST "/partitions/{name}/growth" [] "Gives a partition more units." => |p| {
        let more = p.body()?;
        Ok(Request::GrowPartition { name: p.name, more })
    };

    GET "/pools" [] "All pools." => |_| Ok(Request::List(KindName::Pool));
    POST "/pools" ["force"] "Makes a pool; `force` even over what the device holds." => |p| {
        Ok(Request::CreatePool { spec: p.body()?, force: p.query.force })
    };
    POST "/pools/import" [] "Takes a pool up that is on a device." => |p| {
        let FoundPool { spec, tenant, list } = p.body()?;
        Ok(Request::ImportPool { spec, tenant, list })
    };
    GET "/pools/{name}" [] "One pool." => |p| Ok(Request::Show(KindName::Pool, p.name));
    DELETE "/pools/{name}" [] "Deletes a pool without volumes." => |p| {
        Ok(Request::Delete(KindName::Pool, p.name))
    };
    PUT "/pools/{name}/key" [] "Replaces the key or passphrase of an encrypted pool." => |p| {
        Ok(Request::RekeyPool(p.name.clone(), p.body::<NewKey>()?.key))
    };

    GET "/tenants" [] "All tenants." => |_| Ok(Request::List(KindName::Tenant));
    POST "/tenants" ["force"] "Makes a tenant; `force` even if a device cannot give what it is promised." => |p| {
        Ok(Request::CreateTenant { spec: p.body()?, force: p.query.force })
    };
    GET "/tenants/{name}" [] "One tenant." => |p| Ok(Request::Show(KindName::Tenant, p.name));
    PATCH "/tenants/{name}" ["force"] "Changes settings of a tenant." => |p| {
        let change = p.body()?;
        Ok(Request::SetTenant { name: p.name, change, force: p.query.force })
    };
    DELETE "/tenants/{name}" [] "Deletes a tenant without volumes." => |p| {
        Ok(Request::Delete(KindName::Tenant, p.name))
    };
    PUT "/tenants/{name}/name" [] "Renames a tenant." => |p| {
        let NewName { new } = p.body()?;
        Ok(Request::RenameTenant { name: p.name, new })
    };
    GET "/tenants/{name}/why" [] "Where the latency of a tenant comes from." => |p| {
        Ok(Request::Why { tenant: p.name })
    };

    GET "/volumes" [] "All volumes." => |_| Ok(Request::List(KindName::Volume));
    POST "/volumes" ["force"] "Makes a volume; `force` even if its tenant is promised too much there." => |p| {
        Ok(Request::CreateVolume { spec: p.body()?, force: p.query.force })
    };
    POST "/volumes/import" [] "Takes a volume up that is in a pool." => |p| {
        Ok(Request::ImportVolume(p.body()?))
    };
    GET "/volumes/{name}" [] "One volume." => |p| Ok(Request::Show(KindName::Volume, p.name));
    PATCH "/volumes/{name}" [] "Grows a volume, keeps space for it, or protects it from writes." => |p| {
        let change = p.body()?;
        Ok(Request::SetVolume { name: p.name, change })
    };
    DELETE "/volumes/{name}" [] "Deletes a volume with its data." => |p| {
        Ok(Request::Delete(KindName::Volume, p.name))
    };
    PUT "/volumes/{name}/name" [] "Renames a volume." => |p| {
        let NewName { new } = p.body()?;
        Ok(Request::RenameVolume { name: p.name, new })
    };
    PUT "/volumes/{name}/tenant" ["force"] "Gives a volume to another tenant." => |p| {
        let NewOwner { tenant, nsid } = p.body()?;
        let force = p.query.force;
        Ok(Request::MoveVolume { name: p.name, tenant, nsid, force })
    };
    POST "/volumes/{name}/migration" ["force"] "Moves a volume to another pool while it is used." => |p| {
        let NewPool { to, background } = p.body()?;
        Ok(Request::MigrateVolume {
            name: p.name,
            to,
            background,
            force: p.query.force,
            progress: p.follow,
        })
    };
    DELETE "/volumes/{name}/migration" [] "Leaves a moving volume where it is." => |p| {
        Ok(Request::CancelMigration(p.name))
    };
    GET "/volumes/{name}/changes" ["since", "until", "from"]
        "What differs between two versions of a volume; a part, from byte `from` on." => |p| {
        Ok(Request::AskSnapshots(SnapshotAsk::Diff {
            volume: p.name,
            since: p.query.since,
            until: p.query.until,
            from: p.query.from.unwrap_or_default(),
        }))
    };
    DELETE "/volumes/{name}/snapshots/{child}" [] "Deletes a snapshot." => |p| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Delete(p.snapshot())))
    };
    POST "/volumes/{name}/snapshots/{child}/restore" [] "Makes a volume what it was." => |p| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Restore(p.snapshot())))
    };
    POST "/volumes/{name}/snapshots/{child}/clone" [] "Makes a volume of a snapshot." => |p| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Clone(p.version()?)))
    };
    POST "/volumes/{name}/snapshots/{child}/share" [] "Shows a snapshot to a tenant, read-only." => |p| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Share(p.version()?)))
    };
    GET "/snapshots" ["volume"] "All snapshots, or those of a volume." => |p| {
        Ok(Request::AskSnapshots(SnapshotAsk::List(p.query.volume)))
    };
    POST "/snapshots" [] "Makes snapshots of several volumes at one moment." => |p| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Create(p.body()?)))
    };

    GET "/functions" [] "All functions." => |_| Ok(Request::List(KindName::Function));
    POST "/functions" [] "Makes functions, all of them or none." => |p| {
        Ok(Request::CreateFunctions(p.body()?))
    };
    GET "/functions/{name}" [] "One function." => |p| Ok(Request::Show(KindName::Function, p.name));
    PATCH "/functions/{name}" [] "Changes the socket of a function." => |p| {
        let change = p.body()?;
        Ok(Request::SetFunction { name: p.name, change })
    };
    DELETE "/functions/{name}" ["connected"] "Deletes a function; `connected` even while a virtual machine uses it." => |p| {
        Ok(Request::DeleteFunction { name: p.name, connected: p.query.connected })
    };
}
