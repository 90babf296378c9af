//! What a configuration file says, key by key. Which keys it has is a part of what it says: a key
//! that a file never had is left as it is, and one that it no longer has returns to its default.
//!
//! Three documents make the one that is to be: the file that was applied last, the file that is
//! applied now, and what is there ([`merge`]).

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::crypt::KeyText;
use super::{Config, SpecError, is_file};
use crate::units;

/// The keys of one table, with the tables in it.
pub type Keys = Map<String, Value>;

/// The kinds of table, in the order in which what they name is made.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// The `[target]` table, whose name is empty.
    Target,
    /// A `[[device]]` table.
    Device,
    /// A `[[pool]]` table.
    Pool,
    /// A `[[tenant]]` table.
    Tenant,
    /// A `[[volume]]` table.
    Volume,
    /// A `[[function]]` table.
    Function,
}

/// Tables of each kind, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Document(BTreeMap<Section, Vec<Keys>>);

impl Section {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Target,
        Self::Device,
        Self::Pool,
        Self::Tenant,
        Self::Volume,
        Self::Function,
    ];

    /// As it stands in a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Device => "device",
            Self::Pool => "pool",
            Self::Tenant => "tenant",
            Self::Volume => "volume",
            Self::Function => "function",
        }
    }

    /// Whether what a key says can change once its object is there.
    pub fn can_change(self, key: &str) -> bool {
        match self {
            Self::Volume => ["size", "reserve", "read_only"].contains(&key),
            _ => self.has_default(key),
        }
    }

    /// Whether a key returns to a default when a file no longer says it.
    pub fn has_default(self, key: &str) -> bool {
        match self {
            Self::Target => true,
            Self::Device => [
                "policy",
                "capability",
                "curve",
                "calibration",
                "faults",
                "rebuild_priority",
                "rebuild_limit",
            ]
            .contains(&key),
            Self::Pool => ["compression", "chunk"].contains(&key),
            Self::Tenant => !["name", "nqn", "serial", "model"].contains(&key),
            Self::Volume => ["reserve", "read_only"].contains(&key),
            Self::Function => ["mode", "owner", "group", "doorbells", "cores"].contains(&key),
        }
    }
}

impl Document {
    /// Reads a file's text, which may be found in `folder`: paths of devices and profiles are meant
    /// from there. The error names the place.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, SpecError> {
        Config::parse(text)?;
        // It is what `Config` has understood, so every table is where it belongs.
        let file: BTreeMap<Section, OneOrMany> =
            toml::from_str(text).map_err(|error| SpecError::Syntax(None, error.to_string()))?;
        let tables = file.into_iter().map(|(section, tables)| match tables {
            OneOrMany::One(keys) => (section, vec![keys]),
            OneOrMany::Many(tables) => (section, tables),
        });
        let mut document = Self(tables.collect());
        for section in [
            Section::Target,
            Section::Device,
            Section::Pool,
            Section::Function,
        ] {
            for keys in document.0.get_mut(&section).into_iter().flatten() {
                make_absolute(keys, folder);
            }
        }
        Ok(document)
    }

    /// Adds a table at the end.
    pub fn push(&mut self, section: Section, keys: Keys) {
        self.0.entry(section).or_default().push(keys);
    }

    /// Calls a table otherwise. Volumes follow their tenant.
    pub fn rename(&mut self, section: Section, old: &str, new: &str) {
        let mut tables = self.0.entry(section).or_default().iter_mut();
        if let Some(keys) = tables.find(|keys| name_of(keys) == old) {
            keys.insert("name".to_owned(), new.into());
        }
        if section == Section::Tenant {
            for volume in self.0.entry(Section::Volume).or_default() {
                if volume.get("tenant").is_some_and(|it| it == old) {
                    volume.insert("tenant".to_owned(), new.into());
                }
            }
        }
    }

    /// The tables of a kind, in the order of the file.
    pub fn tables(&self, section: Section) -> &[Keys] {
        self.0.get(&section).map(Vec::as_slice).unwrap_or_default()
    }

    /// The tables of a kind by name.
    pub fn by_name(&self, section: Section) -> BTreeMap<&str, &Keys> {
        let tables = self.tables(section).iter();
        tables.map(|keys| (name_of(keys), keys)).collect()
    }

    /// Its text, with sizes as people write them.
    pub fn to_toml(&self) -> String {
        let mut file = Keys::new();
        for section in Section::ALL {
            let mut tables = self.tables(section).iter().map(written);
            let value = match section {
                Section::Target => tables.next(),
                _ => Some(Value::Array(tables.collect())),
            };
            let value = value.filter(|value| value.as_array().is_none_or(|it| !it.is_empty()));
            if let Some(value) = value {
                file.insert(section.name().to_owned(), value);
            }
        }
        toml::to_string(&file).expect("tables of plain data")
    }

    /// What it says, in types; the first thing that cannot be is the error.
    pub fn to_config(&self) -> Result<Config, SpecError> {
        let mut file = Keys::new();
        for section in Section::ALL {
            let mut tables = self.tables(section).iter().cloned();
            let value = match section {
                Section::Target => Value::Object(tables.next().unwrap_or_default()),
                _ => tables.map(Value::Object).collect(),
            };
            file.insert(section.name().to_owned(), value);
        }
        let config: Config = serde_json::from_value(Value::Object(file))
            .map_err(|error| SpecError::Syntax(None, error.to_string()))?;
        config.check()?;
        Ok(config)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum OneOrMany {
    One(Keys),
    Many(Vec<Keys>),
}

/// The name that a table gives to its object; `[target]` has none.
pub fn name_of(keys: &Keys) -> &str {
    keys.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The devices that a table of a device names.
pub fn names_below(keys: &Keys) -> Vec<&str> {
    let one = keys.get("device").into_iter();
    let several = keys.get("devices").and_then(Value::as_array);
    let all = one.chain(several.into_iter().flatten());
    all.filter_map(Value::as_str).collect()
}

/// A table as it is written by hand.
fn written(table: &Keys) -> Value {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    let mut table = table.clone();
    let write = |value: &mut Value| {
        let bytes = value.as_u64().filter(|it| *it > 0);
        let unit = bytes.and_then(|bytes| {
            let mut units = UNITS.iter();
            units.find_map(|(unit, name)| {
                let whole = bytes.is_multiple_of(*unit);
                whole.then(|| format!("{}{name}", bytes / unit))
            })
        });
        if let Some(text) = unit {
            *value = Value::String(text);
        }
    };
    for key in units::SIZES {
        table.get_mut(key).into_iter().for_each(write);
    }
    let quotas = table.get_mut("quota").and_then(Value::as_object_mut);
    quotas
        .into_iter()
        .flatten()
        .for_each(|(_, value)| write(value));
    Value::Object(table)
}

/// Paths are meant from where the file is, which is not where the target runs.
fn make_absolute(keys: &mut Keys, folder: &Path) {
    if let Some(Value::String(text)) = keys.get_mut("key")
        && let Ok(key) = text.parse::<KeyText>()
    {
        *text = key.within(folder).to_string();
    }
    for (key, is_path) in [
        ("path", None),
        ("socket", None),
        ("socket_folder", None),
        ("profile", Some(is_file as fn(&str) -> bool)),
    ] {
        if let Some(Value::String(text)) = keys.get_mut(key)
            && is_path.is_none_or(|is_path| is_path(text))
        {
            *text = folder.join(&*text).to_string_lossy().into_owned();
        }
    }
}

/// What a table is to say: what is there (`now`), with what `file` says, and without what `applied`
/// said and `file` no longer does. A table in a table is merged likewise, key by key.
pub fn merge(now: &Keys, applied: &Keys, file: &Keys) -> Keys {
    let none = Keys::new();
    let table = |value: Option<&'_ Value>| value.and_then(Value::as_object).cloned();
    let mut merged = now.clone();
    for (key, was) in applied.iter().filter(|(key, _)| !file.contains_key(*key)) {
        match (table(now.get(key)), was.as_object()) {
            (Some(now), Some(was)) => {
                let rest = merge(&now, was, &none);
                match rest.is_empty() {
                    true => merged.remove(key),
                    false => merged.insert(key.clone(), Value::Object(rest)),
                };
            }
            _ => drop(merged.remove(key)),
        }
    }
    for (key, wanted) in file {
        let value = match (table(now.get(key)), wanted) {
            (Some(now), Value::Object(wanted)) => {
                let applied = table(applied.get(key)).unwrap_or_default();
                Value::Object(merge(&now, &applied, wanted))
            }
            _ => wanted.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

/// One key that differs, and what it says on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// With the table that it is in: `guarantee.read_iops`.
    pub key: String,
    /// What is there now; nothing if it says nothing.
    pub old: Option<Value>,
    /// What is to be.
    pub new: Option<Value>,
}

/// Where two tables differ, in the order of keys; lists and plain values as a whole.
pub fn differences(now: &Keys, wanted: &Keys) -> Vec<Difference> {
    let mut found = Vec::new();
    add_differences("", now, wanted, &mut found);
    found
}

fn add_differences(prefix: &str, now: &Keys, wanted: &Keys, found: &mut Vec<Difference>) {
    let none = Keys::new();
    let keys = now
        .keys()
        .chain(wanted.keys().filter(|key| !now.contains_key(*key)));
    let mut keys: Vec<&String> = keys.collect();
    keys.sort_unstable();
    for key in keys {
        let (old, new) = (now.get(key), wanted.get(key));
        let path = format!("{prefix}{key}");
        match (old, new) {
            (old, new) if old == new => {}
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                add_differences(&format!("{path}."), old, new, found);
            }
            (Some(Value::Object(old)), None) => {
                add_differences(&format!("{path}."), old, &none, found);
            }
            (None, Some(Value::Object(new))) => {
                add_differences(&format!("{path}."), &none, new, found);
            }
            (old, new) => found.push(Difference {
                key: path,
                old: old.cloned(),
                new: new.cloned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(value: Value) -> Keys {
        value.as_object().expect("a table").clone()
    }

    /// Each key by itself: what is there, what the last file said, what this one says, what is to
    /// be.
    #[test]
    fn the_rule_of_each_key() {
        let table = [
            ("never in a file, by hand", json!(7), None, None, json!(7)),
            ("new in the file", json!(1), None, Some(2), json!(2)),
            ("in both, as it was", json!(2), Some(2), Some(2), json!(2)),
            ("in both, by hand", json!(7), Some(2), Some(2), json!(2)),
            ("changed in the file", json!(2), Some(2), Some(3), json!(3)),
            ("changed in both", json!(7), Some(2), Some(3), json!(3)),
            (
                "no longer in the file",
                json!(2),
                Some(2),
                None,
                Value::Null,
            ),
            ("no longer, by hand", json!(7), Some(2), None, Value::Null),
            (
                "by hand gone, in the file",
                Value::Null,
                Some(2),
                Some(2),
                json!(2),
            ),
            ("gone in both", Value::Null, Some(2), None, Value::Null),
            ("nowhere", Value::Null, None, None, Value::Null),
        ];
        let one = |value: Option<Value>| {
            let value = value.filter(|value| !value.is_null());
            value.map_or_else(Keys::new, |value| keys(json!({ "weight": value })))
        };
        for (what, now, applied, file, wanted) in table {
            let (applied, file) = (applied.map(|it| json!(it)), file.map(|it| json!(it)));
            // As a key of a table, and of a table in it.
            let merged = merge(
                &one(Some(now.clone())),
                &one(applied.clone()),
                &one(file.clone()),
            );
            assert_eq!(merged, one(Some(wanted.clone())), "{what}");
            let nested = |value| keys(json!({ "limit": one(value), "other": 1 }));
            let merged = merge(&nested(Some(now)), &nested(applied), &nested(file));
            assert_eq!(
                merged.get("limit").cloned().unwrap_or_else(|| json!({})),
                Value::Object(one(Some(wanted))),
                "{what}, in a table"
            );
        }
    }

    #[test]
    fn a_table_that_is_gone_takes_what_it_said_and_no_more() {
        let now = keys(json!({ "guarantee": { "read_iops": 5, "write_iops": 3 }, "weight": 1 }));
        let applied = keys(json!({ "guarantee": { "read_iops": 5 } }));
        let merged = merge(&now, &applied, &Keys::new());
        assert_eq!(
            merged,
            keys(json!({ "guarantee": { "write_iops": 3 }, "weight": 1 }))
        );
        let all = keys(json!({ "guarantee": { "read_iops": 5, "write_iops": 3 } }));
        assert_eq!(
            merge(&now, &all, &Keys::new()),
            keys(json!({ "weight": 1 }))
        );
    }

    #[test]
    fn differences_name_the_key_with_its_table() {
        let now = keys(json!({ "weight": 1, "hosts": ["a"], "limit": { "iops": 4 } }));
        let wanted = keys(json!({ "weight": 2, "hosts": ["a"], "guarantee": { "iops": 3 } }));
        let found: Vec<_> = differences(&now, &wanted)
            .into_iter()
            .map(|it| (it.key, it.old, it.new))
            .collect();
        assert_eq!(
            found,
            [
                ("guarantee.iops".to_owned(), None, Some(json!(3))),
                ("limit.iops".to_owned(), Some(json!(4)), None),
                ("weight".to_owned(), Some(json!(1)), Some(json!(2))),
            ]
        );
        assert_eq!(differences(&now, &now), []);
    }

    const FILE: &str = r#"
        [target]
        cores = 2

        [[device]]
        name = "f0"
        kind = "file"
        path = "data/f0.img"
        size = "8MiB"

        [[device]]
        name = "e0"
        kind = "flash"
        size = "1GiB"
        profile = "dct983"

        [[pool]]
        name = "p"
        devices = ["f0"]

        [[tenant]]
        name = "db"
        limit = { read_iops = 5 }

        [[volume]]
        name = "v"
        pool = "p"
        size = "1MiB"
        tenant = "db"
    "#;

    #[test]
    fn a_file_is_read_with_its_keys_and_paths() {
        let document = Document::parse(FILE, Path::new("/etc/flashyard")).expect("a good file");
        let device = document.by_name(Section::Device)["f0"];
        assert_eq!(device["path"], "/etc/flashyard/data/f0.img");
        assert!(!device.contains_key("policy"));
        let drive = document.by_name(Section::Device)["e0"];
        assert_eq!(drive["profile"], "dct983");
        let tenant = document.by_name(Section::Tenant)["db"];
        assert!(!tenant.contains_key("hosts"));
        let target = document.by_name(Section::Target)[""];
        assert_eq!(*target, keys(json!({ "cores": 2 })));
        let config = document.to_config().expect("it was read");
        assert_eq!(config.tenants[0].weight, 1);
        assert_eq!(config.target.cores, Some(2));
        assert_eq!(config.volumes.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        let error = Document::parse("[[tenant]]\nname = \"a\"\nwieght = 1", Path::new("/"));
        let text = error.expect_err("no such key").to_string();
        assert!(text.contains("line 3") && text.contains("wieght"), "{text}");
    }

    #[test]
    fn a_document_is_stored_and_read_again() {
        let document = Document::parse(FILE, Path::new("/x")).expect("a good file");
        let text = serde_json::to_string(&document).expect("plain data");
        let read: Document = serde_json::from_str(&text).expect("it was written");
        assert_eq!(read, document);
    }
}
