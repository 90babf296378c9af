//! What can be asked over HTTP: every operation with its method and path, what its body is and what
//! it is answered with, and how its parts become a request. `call.rs` is the other direction.

use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::parts::{
    CopyTo, FoundPartitions, FoundPool, MuteFor, NewArray, NewConfiguration, NewFaults, NewKey,
    NewName, NewOwner, NewPolicy, NewPool, NewSettings, NewVolume, NotUnderstood, Parts,
};
use crate::control::{
    ActivityView, AppliedView, ArrayChange, AuditRecord, CalibrationView, Destination, DeviceView,
    DiffView, EventsAsk, EventsView, FoundPartitionsView, FunctionChange, FunctionView, HealthAsk,
    HealthView, ImportView, KindName, NewForm, PartitionView, PoolChange, PoolView, Request,
    SnapshotAsk, SnapshotChange, SnapshotName, SnapshotView, StatusView, TargetView, TenantChange,
    TenantView, TrafficView, VolumeChange, VolumeView, WhyView,
};
use crate::spec::{
    DeviceSpec, Document, FunctionSpec, PartitionSpec, PoolSpec, TargetSettings, TenantSpec,
    VolumeSpec,
};

/// One thing that can be asked.
#[derive(Serialize)]
pub(super) struct Operation {
    #[serde(serialize_with = "method")]
    pub(super) method: Method,
    /// Behind the prefix; `{name}` and `{child}` are what it is about.
    pub(super) path: &'static str,
    /// One sentence for people.
    pub(super) about: &'static str,
    /// Keys that its query may have.
    pub(super) query: &'static [&'static str],
    /// Its body, if it has one.
    #[serde(skip)]
    pub(super) body: Option<Form>,
    /// What it is answered with.
    #[serde(skip)]
    pub(super) answer: Form,
    #[serde(skip)]
    pub(super) read: fn(Parts) -> Result<Request, NotUnderstood>,
}

fn method<S: Serializer>(method: &Method, to: S) -> Result<S::Ok, S::Error> {
    method.as_str().serialize(to)
}

/// The JSON schema of something.
pub(super) type Form = fn(&mut SchemaGenerator) -> Schema;

fn of<T: JsonSchema>(all: &mut SchemaGenerator) -> Schema {
    all.subschema_for::<T>()
}

/// One or the other.
fn either<T: JsonSchema, U: JsonSchema>(all: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [of::<T>(all), of::<U>(all)] })
}

/// A device, or the pool on it, or what was found in that.
fn made_on_devices(all: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [of::<DeviceView>(all), of::<PoolView>(all), of::<ImportView>(all)]
    })
}

/// An operation that is a method, a path, keys of its query, a sentence, the type of its body if it
/// has one, which is an object or a list, the type of its answer, and a function.
macro_rules! operations {
    ($($method:ident $path:literal [$($key:literal),*] $about:literal
        $({list of $item:ty})? $(($body:ty))? -> $answer:expr => $read:expr;)*) => {
        /// All that can be asked.
        pub(super) const OPERATIONS: &[Operation] = &[$(Operation {
            method: Method::$method,
            path: $path,
            about: $about,
            query: &[$($key),*],
            body: operations!(@schema $(Vec<$item>)? $($body)?),
            answer: $answer,
            read: operations!(@read $(list $item)? $(object $body)?, $read),
        },)*];
    };
    (@schema) => { None };
    (@schema $body:ty) => { Some(of::<$body>) };
    (@read, $read:expr) => { $read };
    (@read list $item:ty, $read:expr) => {
        |parts| {
            let read: fn(Parts, Vec<$item>) -> Result<Request, NotUnderstood> = $read;
            let body = parts.list()?;
            read(parts, body)
        }
    };
    (@read object $body:ty, $read:expr) => {
        |parts| {
            let read: fn(Parts, $body) -> Result<Request, NotUnderstood> = $read;
            let body = parts.object()?;
            read(parts, body)
        }
    };
}

operations! {
    GET "/status" ["limit", "after"] "Everything at a glance; with `limit` only so many tenants, and of other rows as many."
        -> of::<StatusView> => |p| Ok(Request::Status(p.page()?));
    GET "/health" [] "What is wrong, by stable codes, and what to do."
        -> of::<HealthView> => |_| {
        Ok(Request::Health(HealthAsk::Show))
    };
    PUT "/health/{name}/mute" [] "Has a code not count for some seconds."
        (MuteFor) -> of::<()> => |p, mute| {
        Ok(Request::Health(HealthAsk::Mute(p.code()?, mute.seconds)))
    };
    DELETE "/health/{name}/mute" [] "Has a code count again."
        -> of::<()> => |p| {
        Ok(Request::Health(HealthAsk::Unmute(p.code()?)))
    };
    GET "/metrics" []
        "Figures for Prometheus, as OpenMetrics text; as protobuf, with native histograms, for those who accept that."
        -> of::<String> => |p| Ok(Request::Metrics(p.metrics));
    GET "/traffic" ["limit", "after"]
        "What came to volumes since the target started, and how long it took; with `limit` those of so many tenants."
        -> of::<TrafficView> => |p| Ok(Request::Traffic(p.page()?));
    GET "/activity" ["limit", "after"]
        "What goes on: tenants and what was in their way in the last seconds, cores, connections; with `limit` so many tenants."
        -> of::<ActivityView> => |p| Ok(Request::Activity(p.page()?));
    GET "/events" ["after"]
        "What has happened, after the event `after`; as `text/event-stream` also what is still to come."
        -> of::<EventsView> => |p| {
        let after = p.query.after;
        Ok(Request::Events(EventsAsk { after, follow: p.follow }))
    };
    GET "/audit" ["limit", "after", "last", "who", "since"]
        "Who has changed something, or was refused, the oldest first, in parts of at most 1000."
        -> of::<Vec<AuditRecord>> => |p| Ok(Request::Audit(p.audit()?));
    GET "/target" [] "The target's own settings."
        -> of::<TargetView> => |_| Ok(Request::ShowTarget);
    PATCH "/target" [] "Changes settings of the target."
        (TargetSettings) -> of::<TargetView> => |_, settings| Ok(Request::SetTarget(settings));
    GET "/configuration" [] "The configuration file that makes what is there."
        -> of::<Document> => |_| Ok(Request::Export);
    POST "/configuration" [] "Applies a configuration file, or says what it would change."
        (NewConfiguration) -> of::<AppliedView> => |_, new| {
        let NewConfiguration { file, how } = new;
        Ok(Request::Apply { file, how })
    };
    POST "/backup" [] "Copies the state store to a file that is not there yet."
        (CopyTo) -> of::<()> => |_, copy| {
        Ok(Request::Backup(copy.path))
    };

    GET "/devices" ["limit", "after"] "All devices, by name."
        -> of::<Vec<DeviceView>> => |p| Ok(Request::List(KindName::Device, p.page()?));
    POST "/devices" ["force", "if_missing"] "Makes a device; `force` even over what another one holds."
        (DeviceSpec) -> either::<DeviceView, PartitionView> => |p, spec| {
        match (p.query.force, p.query.if_missing) {
            (true, true) => Err(NotUnderstood::Both("force", "if_missing")),
            (true, false) => Ok(Request::CreateDeviceOver(spec)),
            (false, _) => Ok(p.create(Request::CreateDevice(spec))),
        }
    };
    GET "/devices/{name}" [] "One device."
        -> of::<DeviceView> => |p| Ok(Request::Show(KindName::Device, p.name));
    DELETE "/devices/{name}" ["erase"] "Removes a device; `erase` forgets the key of its data."
        -> of::<()> => |p| {
        Ok(match p.query.erase {
            true => Request::EraseKey(p.name),
            false => Request::Delete(KindName::Device, p.name),
        })
    };
    PUT "/devices/{name}/key" [] "Replaces the key or passphrase of an encrypted device."
        (NewKey) -> of::<DeviceView> => |p, new| {
        Ok(Request::Rekey { name: p.name, key: new.key })
    };
    POST "/devices/{name}/start" [] "Opens a device that could not be opened, with what stands on it."
        -> of::<DeviceView> => |p| Ok(Request::StartDevice(p.name));
    PUT "/devices/{name}/policy" [] "Replaces the policy in front of a device."
        (NewPolicy) -> of::<DeviceView> => |p, new| {
        Ok(Request::SetDevice { name: p.name, policy: new.policy })
    };
    PUT "/devices/{name}/faults" [] "Replaces the faults that a device injects."
        (NewFaults) -> of::<DeviceView> => |p, new| {
        Ok(Request::SetFaults { name: p.name, faults: new.faults })
    };
    POST "/devices/{name}/calibration" ["destroy"] "Measures what a device can give."
        -> of::<CalibrationView> => |p| {
        Ok(Request::Calibrate {
            device: p.name,
            destroy: p.query.destroy,
            progress: p.follow,
        })
    };
    POST "/arrays" ["if_missing"] "Makes a device of others, and a pool on it."
        (NewArray) -> made_on_devices => |p, new| {
        let NewArray { of, how } = new;
        Ok(p.create(Request::CreateArray { of: Box::new(of), how }))
    };
    POST "/arrays/{name}" [] "Changes the members of an array or what a rebuild gets, or starts work on it."
        (ArrayChange) -> either::<PoolView, DeviceView> => |p, change| {
        Ok(Request::ChangeArray { name: p.name, change })
    };

    GET "/partitions" ["limit", "after"] "All partitions, by name."
        -> of::<Vec<PartitionView>> => |p| Ok(Request::List(KindName::Partition, p.page()?));
    POST "/partitions/import" [] "Takes partitions up that are on a device."
        (FoundPartitions) -> of::<FoundPartitionsView> => |_, found| {
        let FoundPartitions { device, name, policy, list } = found;
        Ok(Request::ImportPartitions { device, name, policy, list })
    };
    GET "/partitions/{name}" [] "One partition."
        -> of::<PartitionView> => |p| Ok(Request::Show(KindName::Partition, p.name));
    DELETE "/partitions/{name}" ["device"] "Deletes a partition with its data."
        -> of::<()> => |p| {
        Ok(match p.query.device {
            Some(device) => Request::DeletePartition { name: p.name, device },
            None => Request::Delete(KindName::Partition, p.name),
        })
    };
    POST "/partitions/{name}/growth" [] "Gives a partition more units."
        (PartitionSpec) -> of::<PartitionView> => |p, more| {
        Ok(Request::GrowPartition { name: p.name, more })
    };

    GET "/pools" ["limit", "after"] "All pools, by name."
        -> of::<Vec<PoolView>> => |p| Ok(Request::List(KindName::Pool, p.page()?));
    POST "/pools" ["force", "if_missing"] "Makes a pool; `force` even over what the device holds."
        (PoolSpec) -> of::<PoolView> => |p, spec| {
        let force = p.query.force;
        Ok(p.create(Request::CreatePool { spec, force }))
    };
    POST "/pools/import" [] "Takes a pool up that is on a device."
        (FoundPool) -> of::<ImportView> => |_, found| {
        let FoundPool { spec, tenant, list } = found;
        Ok(Request::ImportPool { spec, tenant, list })
    };
    GET "/pools/{name}" [] "One pool."
        -> of::<PoolView> => |p| Ok(Request::Show(KindName::Pool, p.name));
    POST "/pools/{name}/growth" [] "Has a pool use what its device has grown by."
        -> of::<PoolView> => |p| Ok(Request::GrowPool(p.name));
    PATCH "/pools/{name}" [] "Changes what a pool has for new volumes."
        (PoolChange) -> of::<PoolView> => |p, change| {
        Ok(Request::SetPool { name: p.name, change })
    };
    DELETE "/pools/{name}" ["erase"] "Deletes a pool without volumes; `erase` an encrypted one that cannot be opened, with them."
        -> of::<()> => |p| {
        Ok(match p.query.erase {
            true => Request::ErasePool(p.name),
            false => Request::Delete(KindName::Pool, p.name),
        })
    };
    PUT "/pools/{name}/key" [] "Replaces the key or passphrase of an encrypted pool."
        (NewKey) -> of::<PoolView> => |p, new| {
        Ok(Request::RekeyPool(p.name, new.key))
    };

    GET "/tenants" ["limit", "after"] "All tenants, by name."
        -> of::<Vec<TenantView>> => |p| Ok(Request::List(KindName::Tenant, p.page()?));
    POST "/tenants" ["force", "if_missing"] "Makes a tenant; `force` even if a device cannot give what it is promised."
        (TenantSpec) -> of::<TenantView> => |p, spec| {
        let force = p.query.force;
        Ok(p.create(Request::CreateTenant { spec, force }))
    };
    GET "/tenants/{name}" [] "One tenant."
        -> of::<TenantView> => |p| Ok(Request::Show(KindName::Tenant, p.name));
    PATCH "/tenants/{name}" ["force"] "Changes settings of a tenant."
        (TenantChange) -> of::<TenantView> => |p, change| {
        Ok(Request::SetTenant { name: p.name, change, force: p.query.force })
    };
    DELETE "/tenants/{name}" [] "Deletes a tenant without volumes."
        -> of::<()> => |p| {
        Ok(Request::Delete(KindName::Tenant, p.name))
    };
    PUT "/tenants/{name}/name" [] "Renames a tenant."
        (NewName) -> of::<TenantView> => |p, to| {
        Ok(Request::RenameTenant { name: p.name, new: to.new })
    };
    GET "/tenants/{name}/why" [] "Where the latency of a tenant comes from."
        -> of::<WhyView> => |p| {
        Ok(Request::Why { tenant: p.name })
    };

    GET "/volumes" ["tenant", "pool", "limit", "after"] "All volumes, or those of a tenant or in a pool, by name."
        -> of::<Vec<VolumeView>> => |p| Ok(Request::ListVolumes(p.volumes(), p.page()?));
    POST "/volumes" ["force", "if_missing"] "Makes a volume; `force` even if its tenant is promised too much there."
        (VolumeSpec) -> of::<VolumeView> => |p, spec| {
        let force = p.query.force;
        Ok(p.create(Request::CreateVolume { spec, force }))
    };
    POST "/volumes/import" [] "Takes a volume up that is in a pool."
        (VolumeSpec) -> of::<VolumeView> => |_, spec| {
        Ok(Request::ImportVolume(spec))
    };
    GET "/volumes/{name}" [] "One volume."
        -> of::<VolumeView> => |p| Ok(Request::Show(KindName::Volume, p.name));
    PATCH "/volumes/{name}" [] "Grows a volume, keeps space for it, or protects it from writes."
        (VolumeChange) -> of::<VolumeView> => |p, change| {
        Ok(Request::SetVolume { name: p.name, change })
    };
    DELETE "/volumes/{name}" [] "Deletes a volume with its data."
        -> of::<()> => |p| {
        Ok(Request::Delete(KindName::Volume, p.name))
    };
    PUT "/volumes/{name}/name" [] "Renames a volume."
        (NewName) -> of::<VolumeView> => |p, to| {
        Ok(Request::RenameVolume { name: p.name, new: to.new })
    };
    PUT "/volumes/{name}/tenant" ["force"] "Gives a volume to another tenant."
        (NewOwner) -> of::<VolumeView> => |p, owner| {
        let NewOwner { tenant, nsid } = owner;
        let force = p.query.force;
        Ok(Request::MoveVolume { name: p.name, tenant, nsid, force })
    };
    POST "/volumes/{name}/migration" ["force"] "Moves a volume to another pool while it is used."
        (NewPool) -> of::<VolumeView> => |p, pool| {
        let NewPool { to, background } = pool;
        Ok(Request::MigrateVolume {
            name: p.name,
            to: Destination::Pool(to),
            background,
            force: p.query.force,
            progress: p.follow,
        })
    };
    POST "/volumes/{name}/settings" ["force"] "Has a volume be kept otherwise in its mapped pool while it is used."
        (NewSettings) -> of::<VolumeView> => |p, new| {
        let NewSettings { compression, chunk, background } = new;
        Ok(Request::MigrateVolume {
            name: p.name,
            to: Destination::Form(NewForm { compression, chunk }),
            background,
            force: p.query.force,
            progress: p.follow,
        })
    };
    DELETE "/volumes/{name}/migration" [] "Leaves a moving volume where it is."
        -> of::<VolumeView> => |p| {
        Ok(Request::CancelMigration(p.name))
    };
    GET "/volumes/{name}/changes" ["since", "until", "from"] "What differs between two versions of a volume; a part, from byte `from` on."
        -> of::<DiffView> => |p| {
        Ok(Request::AskSnapshots(SnapshotAsk::Diff {
            volume: p.name,
            since: p.query.since,
            until: p.query.until,
            from: p.query.from.unwrap_or_default(),
        }))
    };
    GET "/volumes/{name}/snapshots/{child}" [] "A snapshot, with what deleting it would free."
        -> of::<SnapshotView> => |p| {
        Ok(Request::AskSnapshots(SnapshotAsk::Show(p.snapshot())))
    };
    DELETE "/volumes/{name}/snapshots/{child}" [] "Deletes a snapshot."
        -> of::<()> => |p| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Delete(p.snapshot())))
    };
    POST "/volumes/{name}/snapshots/{child}/restore" [] "Makes a volume what it was."
        -> of::<()> => |p| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Restore(p.snapshot())))
    };
    POST "/volumes/{name}/snapshots/{child}/clone" [] "Makes a volume of a snapshot."
        (NewVolume) -> of::<VolumeView> => |p, new| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Clone(p.version(new))))
    };
    POST "/volumes/{name}/snapshots/{child}/share" [] "Shows a snapshot to a tenant, read-only."
        (NewVolume) -> of::<VolumeView> => |p, new| {
        Ok(Request::ChangeSnapshot(SnapshotChange::Share(p.version(new))))
    };
    GET "/snapshots" ["volume", "limit", "after"] "All snapshots, or those of a volume."
        -> of::<Vec<SnapshotView>> => |p| {
        let page = p.page()?;
        Ok(Request::AskSnapshots(SnapshotAsk::List(p.query.volume, page)))
    };
    POST "/snapshots" ["if_missing"] "Makes snapshots of several volumes at one moment."
        {list of SnapshotName} -> of::<Vec<SnapshotView>> => |p, all| {
        Ok(p.create(Request::ChangeSnapshot(SnapshotChange::Create(all))))
    };

    GET "/functions" ["limit", "after"] "All functions, by name."
        -> of::<Vec<FunctionView>> => |p| Ok(Request::List(KindName::Function, p.page()?));
    POST "/functions" ["if_missing"] "Makes functions, all of them or none."
        {list of FunctionSpec} -> either::<FunctionView, Vec<FunctionView>> => |p, specs| {
        Ok(p.create(Request::CreateFunctions(specs)))
    };
    GET "/functions/{name}" [] "One function."
        -> of::<FunctionView> => |p| Ok(Request::Show(KindName::Function, p.name));
    PATCH "/functions/{name}" [] "Changes the socket of a function."
        (FunctionChange) -> of::<FunctionView> => |p, change| {
        Ok(Request::SetFunction { name: p.name, change })
    };
    DELETE "/functions/{name}" ["connected"] "Deletes a function; `connected` even while a virtual machine uses it."
        -> of::<()> => |p| {
        Ok(Request::DeleteFunction { name: p.name, connected: p.query.connected })
    };
}
