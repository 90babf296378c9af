//! `docs/configuration.md`, made of what reads a file: the keys that the reader takes, the comments
//! of the types, what `keys.rs` allows and what `document.rs` lets change. `make docs` writes it;
//! without, this fails when the page is not what would be written.

use std::fmt::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, to_value};

use super::array::Redundancy;
use super::fault::{FaultName, FaultOnName};
use super::{
    ClassName, Config, ContentName, DeviceKind, FlatDevice, PolicyName, Section, StoreName,
    TargetSettings, TenantSpec, VolumeSpec, allowed,
};
use crate::units;

/// `make docs` sets it.
const WRITE: &str = "FLASHYARD_WRITE_DOCS";

/// Follows a default in a comment.
const DEFAULT: &str = " if not given.";

const HEAD: &str = "# Configuration

Every key of a configuration file. This page is made of the program's own types by `make docs`; do not edit it.
[Changing what is there](guide/changing.md) has an example, and says how `serve --config` and `apply` use a file.

A file has at most one table `[target]`, and any number of `[[device]]`, `[[pool]]`, `[[tenant]]`, `[[volume]]` and
`[[function]]`. An unknown key is an error. *Later* says what may become of a key once its object is there:

| later | another value in a file | the file says the key no longer |
| --- | --- | --- |
| free | holds | it returns to its default |
| kept | holds | it stays as it is |
| fixed | is refused | it stays as it is |

`name` is how files and commands call an object: another name is another object (`volume rename` and `tenant rename` change it).
";

/// A table of a file.
struct Table {
    section: Section,
    /// The key that it stands at, if it is within another one.
    within: Option<&'static str>,
    /// Where its keys are described.
    source: &'static str,
    of: &'static str,
    /// What it needs at least, with a key that no table has.
    probe: &'static str,
    title: &'static str,
}

const TABLES: [Table; 10] = [
    Table {
        section: Section::Target,
        within: None,
        source: include_str!("target.rs"),
        of: "TargetSettings",
        probe: "[target]\nx = 1",
        title: "`[target]`: the target itself",
    },
    Table {
        section: Section::Device,
        within: None,
        source: include_str!("flat.rs"),
        of: "FlatDevice",
        probe: "[[device]]\nx = 1",
        title: "`[[device]]`: what stores blocks",
    },
    Table {
        section: Section::Device,
        within: Some("partition"),
        source: include_str!("partition.rs"),
        of: "PartitionSpec",
        probe: "[[device]]\npartition = { x = 1 }",
        title: "`partition` of a device: exclusive flash units",
    },
    Table {
        section: Section::Device,
        within: Some("faults"),
        source: include_str!("fault.rs"),
        of: "FaultSpec",
        probe: "[[device]]\nfaults = [{ x = 1 }]",
        title: "`faults` of a device: what goes wrong on purpose",
    },
    Table {
        section: Section::Device,
        within: Some("curve"),
        source: include_str!("kind.rs"),
        of: "LoadPoint",
        probe: "[[device]]\ncurve = [{ x = 1 }]",
        title: "`curve` of a device: latency at several loads",
    },
    Table {
        section: Section::Pool,
        within: None,
        source: include_str!("../spec.rs"),
        of: "PoolSpec",
        probe: "[[pool]]\nx = 1",
        title: "`[[pool]]`: a device divided into volumes",
    },
    Table {
        section: Section::Tenant,
        within: None,
        source: include_str!("../spec.rs"),
        of: "TenantSpec",
        probe: "[[tenant]]\nx = 1",
        title: "`[[tenant]]`: who uses volumes",
    },
    Table {
        section: Section::Tenant,
        within: Some("guarantee"),
        source: include_str!("rates.rs"),
        of: "RatesSpec",
        probe: "[[tenant]]\nguarantee = { x = 1 }",
        title: "`guarantee` and `limit` of a tenant, `capability` of a device: rates",
    },
    Table {
        section: Section::Volume,
        within: None,
        source: include_str!("../spec.rs"),
        of: "VolumeSpec",
        probe: "[[volume]]\nx = 1",
        title: "`[[volume]]`: what a tenant's hosts see as a disk",
    },
    Table {
        section: Section::Function,
        within: None,
        source: include_str!("function.rs"),
        of: "FunctionSpec",
        probe: "[[function]]\nx = 1",
        title: "`[[function]]`: an NVMe PCIe controller for a virtual machine",
    },
];

/// The least that a device of every kind is made of, and one value for every key of some kinds.
const SAMPLES: [(&str, &str); 25] = [
    ("size", "\"8GiB\""),
    ("path", "\"/x\""),
    ("address", "\"127.0.0.1:1\""),
    ("subnqn", "\"nqn.2026-11.org.example:x\""),
    ("nsid", "1"),
    ("profile", "\"dct983\""),
    ("condition", "\"clean\""),
    ("store", "\"memory\""),
    ("seed", "1"),
    ("dilation", "1"),
    ("units", "1"),
    ("partition", "{ device = \"oc0\", count = 1 }"),
    ("block_size", "4096"),
    ("device", "\"x0\""),
    ("faults", "[]"),
    ("key", "\"file:/x\""),
    ("uuid", "\"2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11\""),
    ("devices", "[\"x0\", \"x1\"]"),
    ("redundancy", "\"mirror\""),
    ("copies", "2"),
    ("columns", "3"),
    ("safe_read", "true"),
    ("rebuild_priority", "\"high\""),
    ("rebuild_limit", "\"50MB/s\""),
    ("spares", "[\"x2\"]"),
];

impl Table {
    /// The keys, as the reader names them when it meets another one.
    fn keys(&self) -> Vec<String> {
        let error = Config::parse(self.probe).expect_err("there is no key x");
        let error = error.to_string();
        let (_, names) = error.split_once(", expected ").expect(&error);
        let names = names.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    }

    /// What the comment of a key says, in one line.
    fn comment(&self, key: &str) -> String {
        let begin = format!("pub struct {} {{\n", self.of);
        let (_, fields) = self.source.split_once(&begin).expect(self.of);
        let (fields, _) = fields.split_once("\n}").expect(self.of);
        let mut comment = Vec::new();
        for line in fields.lines().map(str::trim) {
            match (line.strip_prefix("///"), line.strip_prefix("pub ")) {
                (Some(text), _) => comment.push(text.trim()),
                (_, Some(field)) if field.starts_with(&format!("{key}:")) => break,
                (_, Some(_)) => comment.clear(),
                _ => {}
            }
        }
        assert!(!comment.is_empty(), "{} says nothing of {key}", self.of);
        comment.join(" ")
    }

    fn row(&self, key: &str, out: &mut String) {
        let (mut meaning, mut default) = (self.comment(key), self.default(key));
        if let Some(rest) = meaning.strip_suffix(DEFAULT) {
            let (text, said) = rest.rsplit_once("; ").expect("a default follows `; `");
            (meaning, default) = (format!("{text}."), said.to_owned());
        }
        let path = self
            .within
            .map_or(key.to_owned(), |table| format!("{table}.{key}"));
        let allowed = allowed(self.section.name(), &path);
        let later = self.later(self.within.unwrap_or(key));
        let cell = |text: &str| text.replace('|', "\\|");
        let (meaning, allowed) = (cell(&meaning), cell(&allowed));
        writeln!(
            out,
            "| `{key}` | {meaning} | {allowed} | {default} | {later} |"
        )
        .expect("text");
    }

    fn later(&self, key: &str) -> &'static str {
        match (self.section.can_change(key), self.section.has_default(key)) {
            (true, true) => "free",
            (true, false) => "kept",
            (false, _) => "fixed",
        }
    }

    /// What holds if a file does not say a key, as the reader has it.
    fn default(&self, key: &str) -> String {
        let least = match (self.section, self.within) {
            (Section::Target, _) => json(&TargetSettings::default().effective()),
            (Section::Device, None) => json(&FlatDevice::new(String::new(), DeviceKind::Null)),
            (Section::Device, Some("partition")) => {
                json(&read::<super::PartitionSpec>("device = \"x\""))
            }
            (Section::Tenant, None) => json(&read::<TenantSpec>("name = \"x\"")),
            (Section::Volume, None) => json(&read::<VolumeSpec>("name = \"x\"\ntenant = \"x\"")),
            _ => Value::Null,
        };
        let needed = match (self.section, self.within) {
            (Section::Target, _) | (_, Some("guarantee")) => &[][..],
            (Section::Device, None) => &["name", "kind"],
            (Section::Device, Some("partition")) => &["device"],
            (Section::Device, Some("faults")) => &["kind"],
            (Section::Tenant, _) => &["name"],
            (Section::Volume | Section::Function, _) => &["name", "tenant"],
            (Section::Device | Section::Pool, _) => return "needed".to_owned(),
        };
        match (needed.contains(&key), least.get(key)) {
            (true, _) => "needed".to_owned(),
            (false, None) => "none".to_owned(),
            (false, value) => format!("`{}`", units::shown(key, value)),
        }
    }
}

fn json(value: &impl Serialize) -> Value {
    to_value(value).expect("plain data")
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    toml::from_str(text).expect("what is needed is there")
}

/// What a device of a kind needs, and what it may have.
fn keys_of_kind(kind: &str) -> [Vec<&'static str>; 2] {
    let (mut needs, mut may) = (Vec::new(), Vec::new());
    let parse = |keys: &[&str]| {
        let said = SAMPLES.iter().filter(|(key, _)| keys.contains(key));
        let lines: Vec<String> = said
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        let lines = lines.join("\n");
        Config::parse(&format!(
            "[[device]]\nname = \"x\"\nkind = \"{kind}\"\n{lines}"
        ))
    };
    while let Err(error) = parse(&needs) {
        let error = error.to_string();
        let missing = SAMPLES
            .iter()
            .find(|(key, _)| error.contains(&format!("needs `{key}`")));
        needs.push(missing.unwrap_or_else(|| panic!("{kind}: {error}")).0);
    }
    for (key, _) in SAMPLES {
        if !needs.contains(&key) && parse(&[&needs[..], &[key]].concat()).is_ok() {
            may.push(key);
        }
    }
    [needs, may]
}

fn kinds(out: &mut String) {
    out.push_str("\n## Which device has which keys\n\nAll have `name`, `kind`, `policy`, `capability` and `curve`.\n\n");
    out.push_str("| kind | is | needs | may have |\n| --- | --- | --- | --- |\n");
    let list = |keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
        keys.join(", ")
    };
    for (name, help) in values::<DeviceKind>() {
        let [needs, may] = keys_of_kind(&name);
        let (needs, may) = (list(&needs), list(&may));
        writeln!(out, "| `{name}` | {help} | {needs} | {may} |").expect("text");
    }
    out.push_str("\n`path` is meant from the folder of the file; `flash` and `open-channel` have one with `store = \"file\"`.\n");
    out.push_str("A `file` that is not there yet needs `size`.\n");
}

/// The names of a choice, and what each means.
fn values<T: ValueEnum + 'static>() -> impl Iterator<Item = (String, String)> {
    let variants = T::value_variants().iter();
    variants.filter_map(ValueEnum::to_possible_value).map(|it| {
        let help = it.get_help().map(ToString::to_string);
        (it.get_name().to_owned(), help.unwrap_or_default())
    })
}

fn choice<T: ValueEnum + 'static>(title: &str, out: &mut String) {
    writeln!(out, "\n### {title}\n\n| value | means |\n| --- | --- |").expect("text");
    for (name, help) in values::<T>() {
        writeln!(out, "| `{name}` | {help} |").expect("text");
    }
}

fn page() -> String {
    let mut out = HEAD.to_owned();
    for table in &TABLES {
        writeln!(out, "\n## {}\n", table.title).expect("text");
        out.push_str(
            "| key | meaning | give | default | later |\n| --- | --- | --- | --- | --- |\n",
        );
        for key in table.keys() {
            table.row(&key, &mut out);
        }
    }
    kinds(&mut out);
    out.push_str("\n## Choices\n");
    choice::<PolicyName>("`policy` of a device", &mut out);
    choice::<StoreName>("`store` of a device", &mut out);
    choice::<Redundancy>("`redundancy` of a device", &mut out);
    choice::<FaultName>("`faults.kind` of a device", &mut out);
    choice::<FaultOnName>("`faults.on` of a device", &mut out);
    choice::<ClassName>("`class` of a tenant", &mut out);
    choice::<ContentName>("`content` of a volume", &mut out);
    out
}

#[test]
fn the_page_of_keys_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differ = page
        .lines()
        .zip(there.lines())
        .find(|(new, old)| new != old);
    assert!(
        page == there,
        "docs/configuration.md is old: run `make docs`: {differ:?}"
    );
}
