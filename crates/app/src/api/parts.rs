//! The parts of a request over HTTP, and what is wrong with those that are none.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answer::text;
use crate::control::{
    ArrayHow, ArrayOf, ErrorKind, HasKind, HealthCode, How, NewVersion, SnapshotName,
};
use crate::spec::{CompressionName, Document, FaultSpec, KeyText, PolicyName, PoolSpec, Size};

/// What a request over HTTP consists of.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) child: String,
    pub(super) query: Query,
    body: Vec<u8>,
    /// The client wants to know how far it is.
    pub(super) follow: bool,
}

/// All that may be in a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Query {
    /// Even if it breaks a promise, or what is there is lost.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) force: bool,
    /// Forget the key of its data as well.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) erase: bool,
    /// Even while a virtual machine uses it.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) connected: bool,
    /// Measure by writing: the content is lost.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) destroy: bool,
    /// The device that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
    /// Only those of this volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume: Option<String>,
    /// The older snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// The newer snapshot; the volume as it is if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// Where the part begins, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<u64>,
    /// The last event that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
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
    /// It has to be this.
    Form(&'static str),
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
            Self::Form(wanted) => write!(f, "the body has to be {wanted} of JSON"),
        }
    }
}

impl HasKind for NotUnderstood {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

impl Parts {
    /// What came with a request; its query may have these keys.
    pub(super) fn new(
        allowed: &'static [&'static str],
        mut names: HashMap<String, String>,
        query: Option<&str>,
        body: &[u8],
        follow: bool,
    ) -> Result<Self, NotUnderstood> {
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

    /// Whoever comes back names the last event that they have got.
    pub(super) fn after_event(mut self, id: Option<String>) -> Self {
        self.query.after = id.or(self.query.after);
        self
    }

    pub(super) fn object<T: DeserializeOwned>(&self) -> Result<T, NotUnderstood> {
        self.body(b'{')
    }

    pub(super) fn list<T: DeserializeOwned>(&self) -> Result<Vec<T>, NotUnderstood> {
        self.body(b'[')
    }

    /// The body, which begins like this: the values of an object would be taken from a list, too,
    /// whose order means nothing here.
    fn body<T: DeserializeOwned>(&self, begin: u8) -> Result<T, NotUnderstood> {
        match self.body.trim_ascii_start().first() {
            None => Err(NotUnderstood::NoBody),
            Some(&found) if found == begin => {
                serde_json::from_slice(&self.body).map_err(NotUnderstood::Body)
            }
            Some(_) if begin == b'[' => Err(NotUnderstood::Form("a list")),
            Some(_) => Err(NotUnderstood::Form("an object")),
        }
    }

    pub(super) fn code(&self) -> Result<HealthCode, NotUnderstood> {
        let code = HealthCode::from_str(&self.name, false);
        code.map_err(|_| NotUnderstood::Code(self.name.clone()))
    }

    pub(super) fn snapshot(&self) -> SnapshotName {
        SnapshotName {
            volume: self.name.clone(),
            name: self.child.clone(),
        }
    }

    pub(super) fn version(&self, new: NewVolume) -> NewVersion {
        NewVersion {
            of: self.snapshot(),
            name: new.name,
            tenant: new.tenant,
            nsid: new.nsid,
        }
    }
}

/// The bodies that are not the specification of something.
macro_rules! bodies {
    ($($(#[$about:meta])* $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Serialize, Deserialize, JsonSchema)]
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
    /// How a volume is kept.
    NewSettings { compression: Option<CompressionName>, chunk: Option<Size>, background: bool, }
    /// A volume that is made of a snapshot.
    NewVolume { name: String, tenant: Option<String>, nsid: Option<u32>, }
    /// Where a copy goes.
    CopyTo { path: PathBuf, }
    /// A configuration file, and how it is applied.
    NewConfiguration { file: Document, how: How, }
}
