//! Making what may be there already: whoever does not know whether an earlier request arrived asks
//! again, and gets what there is if it is what they ask for.

use serde_json::Value;

use super::fault::Refused;
use super::plan::{keys, plan};
use super::work::Work;
use super::{Fault, Service};
use crate::control::{
    Asker, KindName, Page, Request, SnapshotAsk, SnapshotChange, SnapshotName, View,
};
use crate::spec::{Document, Keys, Section, name_of};
use crate::state::Applied;

/// What holds where nothing is said, and a file that says nothing leaves as it is.
const UNSAID: &[(Section, &str, &str)] = &[
    (Section::Pool, "kind", "raw"),
    (Section::Volume, "compression", "none"),
];

/// What a request makes.
enum Made {
    /// Each is there or not, as tables of a configuration file.
    Each(Vec<(KindName, Keys)>),
    /// They are of one moment, so they are there together or not at all.
    Snapshots(Vec<SnapshotName>),
}

impl Service {
    /// Carries a request out that makes something, unless that is there with the same settings.
    pub(super) fn create_if_missing(
        &self,
        create: Request,
        asker: &dyn Asker,
    ) -> Result<View, Fault> {
        let Some(made) = made_by(&create) else {
            return self.handle_for(create, asker);
        };
        let look = || Work::begin(self, asker)?.look_for(&made);
        let found = look()?;
        if found.iter().all(Option::is_some) {
            return Ok(shown(&create, found));
        }
        let is_there: Vec<bool> = found.iter().map(Option::is_some).collect();
        match self.handle_for(without(create.clone(), &is_there), asker) {
            // Somebody else has made it meanwhile, or has something of it.
            Err(fault @ Fault::InUse(_)) => {
                let found = look()?;
                match found.iter().all(Option::is_some) {
                    true => Ok(shown(&create, found)),
                    false => Err(fault),
                }
            }
            // Of several some were there: all of them are shown.
            Ok(_) if is_there.contains(&true) => Ok(View::Made(Box::new(shown(&create, look()?)))),
            outcome => outcome.map(|view| View::Made(Box::new(view))),
        }
    }
}

/// What a request makes; nothing of what makes nothing that can be compared.
fn made_by(create: &Request) -> Option<Made> {
    let one = |kind, keys| Some(Made::Each(vec![(kind, keys)]));
    match create {
        Request::CreateDevice(spec) if spec.partition().is_some() => {
            one(KindName::Partition, keys(spec))
        }
        Request::CreateDevice(spec) => one(KindName::Device, keys(spec)),
        Request::CreatePool { spec, .. } => one(KindName::Pool, keys(spec)),
        Request::CreateTenant { spec, .. } => one(KindName::Tenant, keys(spec)),
        Request::CreateVolume { spec, .. } => one(KindName::Volume, keys(spec)),
        Request::CreateFunctions(specs) => {
            let specs = specs.iter().map(|it| (KindName::Function, keys(it)));
            Some(Made::Each(specs.collect()))
        }
        Request::CreateArray { of, .. } => {
            let device = (KindName::Device, keys(&of.device));
            let pool = of.pool.as_ref().map(|pool| (KindName::Pool, keys(pool)));
            Some(Made::Each([device].into_iter().chain(pool).collect()))
        }
        Request::ChangeSnapshot(SnapshotChange::Create(names)) => {
            Some(Made::Snapshots(names.clone()))
        }
        _ => None,
    }
}

/// The request without what is there already, where each is made by itself.
fn without(create: Request, is_there: &[bool]) -> Request {
    match create {
        Request::CreateFunctions(specs) => {
            let missing = specs
                .into_iter()
                .zip(is_there)
                .filter(|(_, there)| !**there);
            Request::CreateFunctions(missing.map(|(spec, _)| spec).collect())
        }
        create => create,
    }
}

/// What is there, as a request is answered that makes it.
fn shown(create: &Request, found: Vec<Option<View>>) -> View {
    let mut found: Vec<View> = found.into_iter().flatten().collect();
    match create {
        Request::CreateFunctions(specs) if specs.len() != 1 => View::List(found.into()),
        // Of an array with a pool the pool is shown.
        _ => found.pop().unwrap_or(View::Done),
    }
}

impl Work<'_> {
    /// Each of what a request makes, if it is there.
    fn look_for(&mut self, made: &Made) -> Result<Vec<Option<View>>, Fault> {
        match made {
            Made::Each(all) => {
                let all = all.iter();
                all.map(|(kind, asked)| self.there_already(*kind, asked))
                    .collect()
            }
            Made::Snapshots(names) => Ok(vec![self.snapshots_of_one_moment(names)?]),
        }
    }

    /// Snapshots with these names, if all of them are there and were made at one moment.
    fn snapshots_of_one_moment(&mut self, names: &[SnapshotName]) -> Result<Option<View>, Fault> {
        let mut all = Vec::new();
        for wanted in names {
            let ask = SnapshotAsk::List(Some(wanted.volume.clone()), Page::default());
            let View::Snapshots(there) = self.ask_snapshots(ask)? else {
                return Ok(None);
            };
            let name = wanted.to_string();
            let found = there.rows.into_iter().find(|it| it.name == name);
            let Some(found) = found else {
                return Ok(None);
            };
            all.push(found);
        }
        let is_one = all.windows(2).all(|two| two[0].made == two[1].made);
        Ok(is_one.then(|| View::Snapshots(all.into())))
    }

    /// What there is under a name, if it is what is asked for. It is held against that as a file
    /// would be that names it: what is not said has its default where there is one, and is as it is
    /// where there is none, such as an identity that the target gives.
    fn there_already(&self, kind: KindName, asked: &Keys) -> Result<Option<View>, Fault> {
        let (section, name) = (section_of(kind), name_of(asked));
        let exported = self.export();
        let Some(&now) = exported.by_name(section).get(name) else {
            return Ok(None);
        };
        let mut asked = asked.clone();
        for (of, key, default) in UNSAID {
            if *of == section && now.contains_key(*key) && !asked.contains_key(*key) {
                let of_pool = self.default_of_pool(&asked, key);
                let default = of_pool.unwrap_or_else(|| (*default).into());
                asked.insert((*key).to_owned(), default);
            }
        }
        let (mut file, mut applied) = (Document::default(), Applied::default());
        file.push(section, asked);
        applied.file.push(section, now.clone());
        let other = |what: String| Refused::Other(section, name.to_owned(), what).into();
        let plan = match plan(&file, &applied, &self.present(), false) {
            Err(Fault::Refused(Refused::Differs(_, _, key, now, wanted))) => {
                return Err(other(format!("{key}: {now} -> {wanted}")));
            }
            plan => plan?,
        };
        let keys = plan.changes.iter().flat_map(|change| &change.keys);
        let keys: Vec<String> = keys.map(ToString::to_string).collect();
        match keys
            .into_iter()
            .chain(plan.notes)
            .reduce(|all, one| format!("{all}, {one}"))
        {
            Some(what) => Err(other(what)),
            None => self.view_one(kind, name).map(Some),
        }
    }

    /// What the pool of a volume says at a key for those that do not.
    fn default_of_pool(&self, volume: &Keys, key: &str) -> Option<Value> {
        let pool = self.pool(volume.get("pool")?.as_str()?).ok()?.1;
        keys(&pool.spec).remove(key)
    }
}

fn section_of(kind: KindName) -> Section {
    match kind {
        KindName::Device | KindName::Partition => Section::Device,
        KindName::Pool => Section::Pool,
        KindName::Tenant => Section::Tenant,
        KindName::Volume => Section::Volume,
        KindName::Function => Section::Function,
    }
}
