//! What of the store belongs to configuration files: the file that was applied last, and what a
//! file changes that is being applied.

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Kind, State, StateError, TenantRecord, VolumeRecord, decode, encode};
use crate::spec::{
    DeviceSpec, Document, FunctionSpec, PoolSpec, Section, TargetSettings, TenantSpec, VolumeSpec,
    name_of,
};

/// The file that was applied last, and what was called otherwise since by hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Applied {
    /// Its tables, under the names that they have now.
    pub file: Document,
    /// Names that a file may still use for what has another one now.
    pub renamed: Vec<Renamed>,
    /// What the file has deleted, until that is done. It has a record of its own.
    #[serde(skip)]
    pub deleting: Vec<(Section, String)>,
    /// What the file names and was not made, because a device has it or may have it: it is to be
    /// imported. It has a record of its own.
    #[serde(skip)]
    pub to_import: Vec<(Section, String)>,
}

/// Something that was called otherwise by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renamed {
    /// Its kind.
    pub section: Section,
    /// What the file called it.
    pub old: String,
    /// What it is called now.
    pub new: String,
}

impl Applied {
    /// Notes that something is called otherwise from now on.
    pub fn rename(&mut self, section: Section, old: &str, new: &str) {
        let mut known = self.file.tables(section).iter();
        if known.any(|keys| name_of(keys) == old) {
            self.file.rename(section, old, new);
            let (old, new) = (old.to_owned(), new.to_owned());
            self.renamed.push(Renamed { section, old, new });
        }
        // What was renamed before and is renamed again, or back.
        for earlier in &mut self.renamed {
            if earlier.section == section && earlier.new == old {
                new.clone_into(&mut earlier.new);
            }
        }
        self.renamed.retain(|renamed| renamed.old != renamed.new);
    }

    /// Whether something is to be imported.
    pub fn is_to_import(&self, section: Section, name: &str) -> bool {
        let mut all = self.to_import.iter();
        all.any(|(of, one)| *of == section && one == name)
    }

    /// What something is called now that a file calls `name`.
    pub fn renamed(&self, section: Section, name: &str) -> Option<&str> {
        let mut all = self.renamed.iter();
        let found = all.find(|renamed| renamed.section == section && renamed.old == name);
        found.map(|renamed| renamed.new.as_str())
    }
}

/// An object as it was before a file changed it; nothing if the file makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// The settings of the target.
    Target(TargetSettings),
    /// A device.
    Device(String, Option<DeviceSpec>),
    /// A pool that is made.
    Pool(String),
    /// A pool that may be made, or taken over: it stays on its device.
    FoundPool(String),
    /// A pool that is changed.
    ChangedPool(PoolSpec),
    /// A tenant.
    Tenant(String, Option<TenantSpec>),
    /// A volume.
    Volume(String, Option<VolumeSpec>),
    /// A function.
    Function(String, Option<FunctionSpec>),
}

impl State {
    /// The file that was applied last.
    pub fn applied(&self) -> Result<Applied, StateError> {
        let applied: Option<Applied> = document(&self.connection, "applied")?;
        let deleting = document(&self.connection, "deleting")?;
        let to_import = document(&self.connection, "to_import")?;
        Ok(Applied {
            deleting: deleting.unwrap_or_default(),
            to_import: to_import.unwrap_or_default(),
            ..applied.unwrap_or_default()
        })
    }

    /// What a file was changing when the target was killed, as it was before.
    pub fn unfinished(&self) -> Result<Option<Vec<Before>>, StateError> {
        document(&self.connection, "unfinished")
    }

    /// Notes what a file is about to change, or what of it is left to be taken back: a start does
    /// that, until [`State::put_applied`].
    pub fn put_unfinished(&mut self, before: &[Before]) -> Result<(), StateError> {
        self.change(|transaction| put_list(transaction, "unfinished", before))
    }

    /// All that a file changes is changed, but for volumes that are to be so large: this makes it
    /// so for good.
    pub fn put_applied<'a>(
        &mut self,
        applied: &Applied,
        sized: impl Iterator<Item = &'a VolumeRecord>,
    ) -> Result<(), StateError> {
        let content = encode(applied);
        self.change(|transaction| {
            for record in sized {
                super::put_volume(transaction, &record.spec)?;
            }
            transaction.execute(PUT_DOCUMENT, params!["applied", content])?;
            put_list(transaction, "deleting", &applied.deleting)?;
            put_list(transaction, "to_import", &applied.to_import)?;
            put_list::<Before>(transaction, "unfinished", &[])
        })
    }

    /// Notes what of the file that was applied last is to be imported.
    pub fn put_to_import(&mut self, list: &[(Section, String)]) -> Result<(), StateError> {
        self.change(|transaction| put_list(transaction, "to_import", list))
    }

    /// Gives the subsystems of tenants that have no NQN of their own, as earlier versions stored
    /// them, the one that they have had, for good.
    pub fn fix_nqns(&mut self, prefix: &str) -> Result<(), StateError> {
        let tenants = self.inventory()?.tenants.into_values();
        let nameless = tenants.filter(|record| record.spec.nqn.is_none());
        let named = nameless.map(|record| TenantSpec {
            nqn: Some(format!("{prefix}:{}", record.spec.name)),
            ..record.spec
        });
        let named: Vec<TenantSpec> = named.collect();
        match named.is_empty() {
            true => Ok(()),
            false => self.put_tenants(&named, |_| Ok(())),
        }
    }

    /// Adds or changes tenants, all in one change, if `accept` takes their records; a new one gets
    /// its number here.
    pub fn put_tenants<E: From<StateError>>(
        &mut self,
        specs: &[TenantSpec],
        accept: impl FnOnce(&[TenantRecord]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.change(|transaction| {
            let put = |spec| super::put_tenant(transaction, spec);
            let records = specs.iter().map(put).collect::<Result<Vec<_>, _>>()?;
            accept(&records)
        })
    }

    /// Adds volumes in phase `creating`, all in one change, and gives each the UUID and the
    /// namespace number (1 to `most`) that it asks for, or others.
    pub fn add_volumes(
        &mut self,
        specs: &[VolumeSpec],
        most: u32,
    ) -> Result<Vec<VolumeRecord>, StateError> {
        self.change(|transaction| {
            let add = |spec| super::add_volume(transaction, spec, most);
            specs.iter().map(add).collect()
        })
    }
}

impl Before {
    /// What it is about, unless that is the target itself.
    fn object(&self) -> Option<(Kind, &str)> {
        match self {
            Self::Target(_) => None,
            Self::Device(name, _) => Some((Kind::Device, name)),
            Self::Pool(name) | Self::FoundPool(name) => Some((Kind::Pool, name)),
            Self::ChangedPool(spec) => Some((Kind::Pool, &spec.name)),
            Self::Tenant(name, _) => Some((Kind::Tenant, name)),
            Self::Volume(name, _) => Some((Kind::Volume, name)),
            Self::Function(name, _) => Some((Kind::Function, name)),
        }
    }
}

/// An object has gone, or has another name: what files have left to be done to its name is not to
/// be done to whatever gets that name next.
pub(super) fn forget_name(
    transaction: &Transaction<'_>,
    kind: Kind,
    name: &str,
) -> Result<(), StateError> {
    if let Some(mut left) = document::<Vec<Before>>(transaction, "unfinished")? {
        left.retain(|before| before.object() != Some((kind, name)));
        put_list(transaction, "unfinished", &left)?;
    }
    if let Some(mut left) = document::<Vec<(Section, String)>>(transaction, "deleting")? {
        left.retain(|(section, one)| *section != kind.section() || one != name);
        put_list(transaction, "deleting", &left)?;
    }
    Ok(())
}

/// Stores a list; an empty one is none.
fn put_list<T: Serialize>(
    transaction: &Transaction<'_>,
    name: &str,
    list: &[T],
) -> Result<(), StateError> {
    match list.is_empty() {
        true => transaction.execute("DELETE FROM document WHERE name = ?1", [name])?,
        false => transaction.execute(PUT_DOCUMENT, params![name, encode(&list)])?,
    };
    Ok(())
}

/// Stores something under a name.
pub(super) fn put_document(
    transaction: &Transaction<'_>,
    name: &str,
    content: &impl Serialize,
) -> Result<(), StateError> {
    transaction.execute(PUT_DOCUMENT, params![name, encode(content)])?;
    Ok(())
}

/// What the store has under a name.
pub(super) fn document<T: DeserializeOwned>(
    connection: &Connection,
    name: &str,
) -> Result<Option<T>, StateError> {
    let sql = "SELECT content FROM document WHERE name = ?1";
    let found: Option<String> = connection
        .query_row(sql, [name], |row| row.get(0))
        .optional()?;
    found.as_deref().map(decode).transpose()
}

/// Notes in the file that was applied last that something is called otherwise.
pub(super) fn rename_in_file(
    transaction: &Transaction<'_>,
    kind: Kind,
    old: &str,
    new: &str,
) -> Result<(), StateError> {
    forget_name(transaction, kind, old)?;
    if let Some(mut applied) = document::<Applied>(transaction, "applied")? {
        applied.rename(kind.section(), old, new);
        transaction.execute(PUT_DOCUMENT, params!["applied", encode(&applied)])?;
    }
    Ok(())
}

const PUT_DOCUMENT: &str = "INSERT INTO document (name, content) VALUES (?1, ?2) \
     ON CONFLICT (name) DO UPDATE SET content = ?2";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn applied(text: &str) -> Applied {
        Applied {
            file: Document::parse(text, Path::new("/")).expect("a good file"),
            ..Applied::default()
        }
    }

    #[test]
    fn what_is_renamed_is_known_by_both_names_until_it_is_renamed_back() {
        let mut applied = applied("[[tenant]]\nname = \"a\"\nweight = 3");
        applied.rename(Section::Tenant, "other", "x");
        assert_eq!(applied.renamed, []);
        applied.rename(Section::Tenant, "a", "b");
        applied.rename(Section::Tenant, "b", "c");
        assert_eq!(applied.renamed(Section::Tenant, "a"), Some("c"));
        assert_eq!(applied.file.by_name(Section::Tenant)["c"]["weight"], 3);
        applied.rename(Section::Tenant, "c", "a");
        assert_eq!(applied.renamed(Section::Tenant, "a"), None);
        assert_eq!(applied.file.by_name(Section::Tenant)["a"]["weight"], 3);
    }

    /// Whoever gets a name next is not what a file had left to be done about.
    #[test]
    fn what_has_gone_or_is_renamed_is_nothing_that_a_file_has_left() {
        let left = [
            Before::Tenant("a".to_owned(), None),
            Before::Volume("v".to_owned(), None),
            Before::Tenant("b".to_owned(), None),
        ];
        let mut state = State::in_memory().expect("a store");
        let gone = [
            (Section::Volume, "v"),
            (Section::Tenant, "a"),
            (Section::Tenant, "c"),
        ];
        let file = Applied {
            deleting: gone
                .map(|(section, name)| (section, name.to_owned()))
                .into(),
            ..applied("[[tenant]]\nname = \"d\"")
        };
        state.put_applied(&file, [].iter()).expect("applied");
        assert_eq!(state.applied().expect("applied"), file);
        state.put_unfinished(&left).expect("noted");
        state.remove(Kind::Volume, "v").expect("gone");
        let rest = [left[0].clone(), left[2].clone()];
        assert_eq!(state.unfinished().expect("noted"), Some(rest.to_vec()));
        assert_eq!(
            state.applied().expect("applied").deleting,
            file.deleting[1..]
        );
        let named = TenantSpec {
            name: "z".to_owned(),
            ..toml::from_str("name = \"a\"").expect("a tenant")
        };
        state.rename_tenant("a", &named).expect("renamed");
        assert_eq!(
            state.unfinished().expect("noted"),
            Some(vec![left[2].clone()])
        );
        assert_eq!(
            state.applied().expect("applied").deleting,
            file.deleting[2..]
        );
        state.remove(Kind::Tenant, "b").expect("gone");
        state.remove(Kind::Tenant, "c").expect("gone");
        assert_eq!(state.unfinished().expect("nothing"), None);
        assert_eq!(state.applied().expect("applied").deleting, []);
    }

    #[test]
    fn what_is_unfinished_is_forgotten_when_the_file_is_applied() {
        let mut state = State::in_memory().expect("a store");
        assert_eq!(state.applied().expect("none"), Applied::default());
        assert_eq!(state.unfinished().expect("none"), None);
        let before = [
            Before::Target(TargetSettings::default()),
            Before::Volume("v".to_owned(), None),
        ];
        state.put_unfinished(&before).expect("noted");
        assert_eq!(state.unfinished().expect("noted"), Some(before.to_vec()));
        let file = applied("[[tenant]]\nname = \"a\"");
        state.put_applied(&file, [].iter()).expect("applied");
        assert_eq!(state.applied().expect("applied"), file);
        assert_eq!(state.unfinished().expect("forgotten"), None);
    }
}
