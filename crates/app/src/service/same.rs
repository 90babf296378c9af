//! Making what may be there already: whoever does not know whether an earlier request arrived asks
//! again, and gets what there is if it is what they ask for.

use serde_json::Value;

use super::fault::Refused;
use super::plan::{keys, plan};
use super::work::Work;
use super::{Fault, Service};
use crate::control::{Asker, KindName, Request, View};
use crate::spec::{Document, Keys, Section, name_of};
use crate::state::Applied;

/// What holds where nothing is said, and a file that says nothing leaves as it is.
const UNSAID: &[(Section, &str, &str)] = &[
    (Section::Pool, "kind", "raw"),
    (Section::Volume, "compression", "none"),
];

impl Service {
    /// Carries a request out that makes something, unless that is there with the same settings.
    pub(super) fn create_if_missing(
        &self,
        create: Request,
        asker: &dyn Asker,
    ) -> Result<View, Fault> {
        let Some((kind, asked)) = made_by(&create) else {
            return self.handle_for(create, asker);
        };
        let look = || Work::begin(self, asker)?.there_already(kind, &asked);
        if let Some(view) = look()? {
            return Ok(view);
        }
        match self.handle_for(create, asker) {
            // Somebody else has made it meanwhile, or has something of it.
            Err(fault @ Fault::InUse(_)) => look()?.ok_or(fault),
            outcome => outcome.map(|view| View::Made(Box::new(view))),
        }
    }
}

/// What a request makes, as a table of a configuration file.
fn made_by(create: &Request) -> Option<(KindName, Keys)> {
    Some(match create {
        Request::CreateDevice(spec) if spec.partition().is_some() => {
            (KindName::Partition, keys(spec))
        }
        Request::CreateDevice(spec) => (KindName::Device, keys(spec)),
        Request::CreatePool { spec, .. } => (KindName::Pool, keys(spec)),
        Request::CreateTenant { spec, .. } => (KindName::Tenant, keys(spec)),
        Request::CreateVolume { spec, .. } => (KindName::Volume, keys(spec)),
        _ => return None,
    })
}

impl Work<'_> {
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
