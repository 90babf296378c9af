//! The parts of a request over HTTP, and what is wrong with those that are none.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;

use axum::http::HeaderValue;
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::answer::text;
use crate::control::{
    ArrayHow, ArrayOf, AuditAsk, ErrorKind, HasKind, HealthCode, How, LIMIT_MAX, MetricsForm,
    NewVersion, NotASnapshot, Page, Request, SnapshotName, VolumesOf,
};
use crate::spec::{CompressionName, Document, FaultSpec, KeyText, PolicyName, PoolSpec, Size};
use crate::units;

/// What a request over HTTP consists of.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) child: String,
    pub(super) query: Query,
    body: Vec<u8>,
    /// The client wants to know how far it is.
    pub(super) follow: bool,
    /// In which form it takes figures for Prometheus.
    pub(super) metrics: MetricsForm,
}

/// All that may be in a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Query {
    /// Even if it breaks a promise, or what is there is lost.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) force: bool,
    /// If it is there already with the same settings, that is no error.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) if_missing: bool,
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
    /// Only those of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
    /// Only those in this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pool: Option<String>,
    /// Only those of this volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) volume: Option<String>,
    /// The older snapshot; of the audit log, the date or moment in UTC from which on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<String>,
    /// The newer snapshot; the volume as it is if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<String>,
    /// Where the part begins, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<u64>,
    /// At most so many.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<usize>,
    /// What was told last: an event, or the last of the part of a list before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
    /// Only so many, the newest.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<usize>,
    /// Only of this user, token or certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) who: Option<String>,
}

/// What is around the address of the next part of a list in the header `Link` (RFC 8288).
const NEXT: (&str, &str) = ("<?", ">; rel=\"next\"");

impl Query {
    /// Where the part of a list is that is behind this one.
    pub(super) fn link_behind(&self, after: &str) -> HeaderValue {
        let after = Some(after.to_owned());
        let query = Self {
            after,
            ..self.clone()
        };
        let query = serde_urlencoded::to_string(query).expect("queries are plain data");
        let link = format!("{}{query}{}", NEXT.0, NEXT.1);
        HeaderValue::try_from(link).expect("what is encoded is ASCII")
    }
}

/// The query of the next part of a list, from the header that names it.
pub(super) fn query_of_link(link: &HeaderValue) -> Option<&str> {
    let link = link.to_str().ok()?;
    link.strip_prefix(NEXT.0)?.strip_suffix(NEXT.1)
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
    /// One of these keys, or the other.
    Both(&'static str, &'static str),
    /// No number of rows.
    Limit(usize),
    /// A part of a list of snapshots is behind one of them.
    After(NotASnapshot),
    /// A part of the audit log is behind a number.
    Number(ParseIntError),
    /// No moment in UTC.
    Moment(String),
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
            Self::Limit(limit) => write!(
                f,
                "`limit` or `last` is {limit}, and a part of a list has 1 to {LIMIT_MAX} rows: leave it out for the whole list"
            ),
            Self::Both(one, other) => {
                write!(
                    f,
                    "the query has `{one}` and `{other}`: leave one of them out"
                )
            }
            Self::After(why) => write!(f, "`after` is not understood: {why}"),
            Self::Number(why) => write!(
                f,
                "`after` is not understood: {why}; give the number of a record"
            ),
            Self::Moment(text) => write!(
                f,
                "`since` is `{text}`: write it like 2026-11-23 or 2026-11-23T19:20:01Z"
            ),
            Self::NoBody => f.write_str("the operation needs a JSON body"),
            Self::Form(wanted) => write!(f, "the body has to be {wanted} of JSON"),
        }
    }
}

impl From<NotASnapshot> for NotUnderstood {
    fn from(why: NotASnapshot) -> Self {
        Self::After(why)
    }
}

impl From<ParseIntError> for NotUnderstood {
    fn from(why: ParseIntError) -> Self {
        Self::Number(why)
    }
}

/// A name is any text.
impl From<Infallible> for NotUnderstood {
    fn from(never: Infallible) -> Self {
        match never {}
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
            metrics: MetricsForm::default(),
        })
    }

    /// Figures for Prometheus are wanted like this.
    pub(super) fn in_form(self, metrics: MetricsForm) -> Self {
        Self { metrics, ..self }
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
                serde_json::from_slice(&self.body).map_err(|error| self.not_understood(error))
            }
            Some(_) if begin == b'[' => Err(NotUnderstood::Form("a list")),
            Some(_) => Err(NotUnderstood::Form("an object")),
        }
    }

    /// That it is no JSON goes before what is wrong in it.
    fn not_understood(&self, error: serde_json::Error) -> NotUnderstood {
        let syntax = serde_json::from_slice::<IgnoredAny>(&self.body).err();
        NotUnderstood::Body(syntax.unwrap_or(error))
    }

    /// The part of a list that is asked for.
    pub(super) fn page<A: FromStr>(&self) -> Result<Page<A>, NotUnderstood>
    where
        NotUnderstood: From<A::Err>,
    {
        let Query { limit, after, .. } = &self.query;
        if let Some(limit) = limit.filter(|it| !(1..=LIMIT_MAX).contains(it)) {
            return Err(NotUnderstood::Limit(limit));
        }
        let after = after.as_deref().map(str::parse).transpose()?;
        Ok(Page {
            limit: *limit,
            after,
        })
    }

    /// The volumes that are asked for.
    pub(super) fn volumes(&self) -> VolumesOf {
        VolumesOf {
            tenant: self.query.tenant.clone(),
            pool: self.query.pool.clone(),
        }
    }

    /// The records of the audit log that are asked for.
    pub(super) fn audit(&self) -> Result<AuditAsk, NotUnderstood> {
        let Page { limit, after } = self.page()?;
        let Query {
            last, who, since, ..
        } = self.query.clone();
        if let Some(last) = last.filter(|it| !(1..=LIMIT_MAX).contains(it)) {
            return Err(NotUnderstood::Limit(last));
        }
        if let Some(text) = since.as_ref().filter(|text| !units::is_moment(text)) {
            return Err(NotUnderstood::Moment(text.clone()));
        }
        Ok(AuditAsk {
            limit,
            after,
            last,
            who,
            since,
        })
    }

    pub(super) fn code(&self) -> Result<HealthCode, NotUnderstood> {
        let code = HealthCode::from_str(&self.name, false);
        code.map_err(|_| NotUnderstood::Code(self.name.clone()))
    }

    /// A request that makes something, as the query wants it.
    pub(super) fn create(&self, create: Request) -> Request {
        match self.query.if_missing {
            true => Request::CreateIfMissing(Box::new(create)),
            false => create,
        }
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
