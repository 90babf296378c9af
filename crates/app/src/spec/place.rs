//! Where in a configuration file something is wrong: the line, the table and its name, the key.
//! Looked for when there is an error, in the file's text once more.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::SpecError;
use super::keys::allowed;

/// Characters of a wrong value that are shown at most.
const SHOWN: usize = 40;

/// What stands at a place of the text.
struct Place {
    /// The line, from 1.
    line: usize,
    /// The kind of table; empty outside of all.
    section: String,
    /// The table as a user calls it: tenant `db`.
    entry: String,
    /// The key with the tables that it is in; empty if it is the whole table.
    key: String,
    /// What is written there.
    value: Range<usize>,
}

/// What the reader found: where, and what may stand there instead.
pub(super) fn of_reader(text: &str, error: &toml::de::Error) -> SpecError {
    let message = error.message().trim_end().replace('\n', " ");
    let Some(span) = error.span() else {
        return SpecError::Syntax(None, message);
    };
    let line = line_at(text, span.start);
    let Some(place) = find(text, &span) else {
        return SpecError::Syntax(Some(line), message);
    };
    let what = place.explain(text, &message);
    SpecError::Syntax(Some(place.line), what)
}

/// The same error with the line of the key that it is about; of the name where the key is missing.
pub(super) fn of_entry(text: &str, error: SpecError) -> SpecError {
    let line = error
        .subject()
        .and_then(|(section, name, key)| line_of(text, section, name, key));
    match line {
        Some(line) => SpecError::At(line, Box::new(error)),
        None => error,
    }
}

impl Place {
    fn explain(&self, text: &str, message: &str) -> String {
        let Self { entry, key, .. } = self;
        let kind = |what| message.starts_with(what);
        if entry.is_empty() || kind("unknown field") || key.is_empty() {
            let separator = if entry.is_empty() { "" } else { ": " };
            return format!("{entry}{separator}{message}");
        }
        if ["invalid type", "invalid value", "wanted "]
            .into_iter()
            .any(kind)
        {
            let written = text.get(self.value.clone()).unwrap_or_default();
            let shown: String = written.chars().take(SHOWN).collect();
            let allowed = allowed(&self.section, key);
            return format!("{entry}: {key} is {shown}: give {allowed}");
        }
        format!("{entry}: {key}: {message}")
    }
}

/// What stands at a span that the reader complains of: the key or value that has it, else the
/// table.
fn find(text: &str, span: &Range<usize>) -> Option<Place> {
    let root = DeTable::parse(text).ok()?.into_inner();
    for (section, tables) in &root {
        for table in entries(tables) {
            let Some(keys) = table.get_ref().as_table() else {
                continue;
            };
            let place = |key: String, value: Range<usize>| Place {
                line: line_at(text, value.start),
                section: section.get_ref().to_string(),
                entry: name_entry(section.get_ref(), keys),
                key,
                value,
            };
            if let Some((key, value)) = find_key(keys, span.start) {
                return Some(place(key, value));
            }
            if table.span() == *span {
                return Some(place(String::new(), span.clone()));
            }
        }
    }
    None
}

fn find_key(keys: &DeTable<'_>, at: usize) -> Option<(String, Range<usize>)> {
    for (key, value) in keys {
        let name = key.get_ref().to_string();
        if key.span().contains(&at) {
            return Some((name, key.span()));
        }
        let inner = entries(value).filter_map(|inner| find_key(inner.get_ref().as_table()?, at));
        if let Some((inner, span)) = inner.into_iter().next() {
            return Some((format!("{name}.{inner}"), span));
        }
        if value.span().contains(&at) {
            return Some((name, value.span()));
        }
    }
    None
}

/// The line of a key of a named table.
fn line_of(text: &str, section: &str, name: &str, key: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?.into_inner();
    let tables = root.get(section)?;
    let is_it = |table: &&Spanned<DeValue<'_>>| section == "target" || name_of(table) == Some(name);
    // Of two with a name the last is the one too many.
    let table = entries(tables).filter(is_it).last()?;
    let keys = table.get_ref().as_table()?;
    let start = |wanted: &str| {
        let (key, _) = keys.iter().find(|(key, _)| key.get_ref() == wanted)?;
        Some(key.span().start)
    };
    let place = start(key).or_else(|| start("name"));
    Some(line_at(text, place.unwrap_or(table.span().start)))
}

/// The tables of a section, or of a key: one, or a list of them.
fn entries<'v, 't>(
    value: &'v Spanned<DeValue<'t>>,
) -> impl Iterator<Item = &'v Spanned<DeValue<'t>>> {
    let list = value.get_ref().as_array();
    let one = list.is_none().then_some(value);
    list.into_iter().flatten().chain(one)
}

fn name_of<'v>(table: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
    table.get_ref().as_table()?.get("name")?.get_ref().as_str()
}

/// A table as a user calls it.
fn name_entry(section: &str, keys: &DeTable<'_>) -> String {
    match keys.get("name").and_then(|name| name.get_ref().as_str()) {
        Some(name) => format!("{section} `{name}`"),
        None => format!("[{section}]"),
    }
}

fn line_at(text: &str, place: usize) -> usize {
    let before = text.get(..place).unwrap_or_default();
    before.matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use crate::spec::Config;

    const GOOD: &str = r#"
[target]
listen = ["127.0.0.1:4420"]
cores = 2
[[device]]
name = "ssd0"
kind = "flash"
size = "1GiB"
profile = "dct983"
seed = 7
[[device]]
name = "far"
kind = "nvme-tcp"
address = "storage.example:4420"
subnqn = "nqn.2026-11.dev.flashyard:db"
[[pool]]
name = "fast"
devices = ["ssd0"]
[[tenant]]
name = "other"
[[tenant]]
name = "db"
hosts = ["*"]
class = "latency"
weight = 2
guarantee = { read_iops = "20k", write_bandwidth = "50MB/s" }
latency_target = "500us"
[[volume]]
name = "orders"
pool = "fast"
size = "256MiB"
tenant = "db"
nsid = 3
"#;

    /// What is right, what somebody writes instead, and what is said.
    const TABLE: [(&str, &str, &str); 48] = [
        (
            "weight = 2",
            "weight = -5",
            "line 25: tenant `db`: weight is -5: give a whole number, 1 to 10000",
        ),
        (
            "weight = 2",
            "weight = 1.5",
            "line 25: tenant `db`: weight is 1.5: give a whole number, 1 to 10000",
        ),
        (
            "weight = 2",
            "weight = \"2\"",
            "line 25: tenant `db`: weight is \"2\": give a whole number, 1 to 10000",
        ),
        (
            "weight = 2",
            "weight = 0",
            "line 25: tenant `db`: weight 0 is out of range: 1 to 10000",
        ),
        (
            "weight = 2",
            "wieght = 2",
            "line 25: tenant `db`: unknown field `wieght`, expected one of `name`, ",
        ),
        (
            "\"20k\"",
            "-5",
            "line 26: tenant `db`: guarantee.read_iops: `-5` is not a number of I/Os per second: write it like 20000, 20k or 1.5M",
        ),
        (
            "\"20k\"",
            "1.5",
            "line 26: tenant `db`: guarantee.read_iops: `1.5` is not a number of I/Os",
        ),
        (
            "\"20k\"",
            "\"many\"",
            "line 26: tenant `db`: guarantee.read_iops: `many` is not a number of I/Os",
        ),
        (
            "\"20k\"",
            "true",
            "line 26: tenant `db`: guarantee.read_iops is true: give a number of I/Os per second, such as 20000, 20k or 1.5M",
        ),
        (
            "\"20k\"",
            "0",
            "line 26: tenant `db`: guarantee read_iops is 0: leave it out",
        ),
        (
            "\"50MB/s\"",
            "-1",
            "line 26: tenant `db`: guarantee.write_bandwidth: `-1` is not a bandwidth: write it like 1GB/s or 200MiB/s",
        ),
        (
            "\"50MB/s\"",
            "[]",
            "line 26: tenant `db`: guarantee.write_bandwidth is []: give a bandwidth, such as 1GB/s or 200MiB/s",
        ),
        (
            "read_iops = ",
            "reads = ",
            "line 26: tenant `db`: unknown field `reads`, expected one of `iops`, ",
        ),
        (
            "guarantee = { read_iops = \"20k\", write_bandwidth = \"50MB/s\" }",
            "guarantee = \"20k\"",
            "line 26: tenant `db`: guarantee is \"20k\": give a table, such as { read_iops = \"20k\" }",
        ),
        (
            "\"500us\"",
            "-1",
            "line 27: tenant `db`: latency_target: `-1` is not a span of time: write it like 500us, 2ms or 1.5s",
        ),
        (
            "\"500us\"",
            "\"1us\"",
            "line 27: tenant `db`: latency_target is 1.0 us; give 10us to 10s",
        ),
        (
            "\"latency\"",
            "\"urgent\"",
            "line 24: tenant `db`: class: unknown variant `urgent`, expected one of `latency`, `throughput`, `background`",
        ),
        (
            "\"latency\"",
            "1",
            "line 24: tenant `db`: class is 1: give one of `latency`, `throughput`, `background`",
        ),
        (
            "[\"*\"]",
            "\"*\"",
            "line 23: tenant `db`: hosts is \"*\": give a list, such as [\"nqn.",
        ),
        (
            "[\"*\"]",
            "[\"nqn.me\"]",
            "line 23: tenant `db`: hosts: `nqn.me` is no host NQN and not `*`: write it like nqn.2014-08.org.nvmexpress:uuid:",
        ),
        (
            "name = \"db\"",
            "name = 7",
            "line 22: [tenant]: name is 7: give text, such as name = \"...\"",
        ),
        (
            "name = \"db\"",
            "name = \"other\"",
            "line 22: tenant `other` is there twice: rename one of them",
        ),
        (
            "name = \"db\"\n",
            "",
            "line 21: [tenant]: missing field `name`",
        ),
        (
            "\"256MiB\"",
            "1",
            "line 31: volume `orders`: size is 1 bytes; give at least 1 MiB, and a multiple of 4096 bytes (a block of its pool), such as 8GiB",
        ),
        (
            "\"256MiB\"",
            "\"4KiB\"",
            "line 31: volume `orders`: size is 4096 bytes; give at least 1 MiB",
        ),
        (
            "\"256MiB\"",
            "\"1.0001MiB\"",
            "line 31: volume `orders`: size is 1048680 bytes; give at least 1 MiB, and a multiple of 4096",
        ),
        (
            "\"256MiB\"",
            "-5",
            "line 31: volume `orders`: size: `-5` is not a size: write it like 4096, 512KiB, 8GiB or 1.5TB",
        ),
        (
            "\"256MiB\"",
            "1.5",
            "line 31: volume `orders`: size: `1.5` is not a size",
        ),
        (
            "\"256MiB\"",
            "\"1 elephant\"",
            "line 31: volume `orders`: size: `1 elephant` is not a size",
        ),
        (
            "size = \"256MiB\"\n",
            "",
            "line 29: volume `orders`: a volume of a pool needs a `size`, not 0",
        ),
        (
            "nsid = 3",
            "nsid = \"x\"",
            "line 33: volume `orders`: nsid is \"x\": give a whole number, 1 to 4294967295",
        ),
        (
            "nsid = 3",
            "nsid = 0",
            "line 33: volume `orders`: nsid is 0; numbers begin with 1",
        ),
        (
            "nsid = 3",
            "uuid = \"7\"",
            "line 33: volume `orders`: uuid: `7` is not a UUID",
        ),
        (
            "nsid = 3",
            "read_only = 1",
            "line 33: volume `orders`: read_only is 1: give true or false",
        ),
        (
            "\"1GiB\"",
            "\"512KiB\"",
            "line 8: device `ssd0`: size is 524288 bytes; give at least 1 MiB, and a multiple of 4096 bytes (the block size)",
        ),
        (
            "\"1GiB\"",
            "1048577",
            "line 8: device `ssd0`: size is 1048577 bytes; give at least 1 MiB, and a multiple of 4096",
        ),
        (
            "seed = 7",
            "seed = -7",
            "line 10: device `ssd0`: seed is -7: give a whole number",
        ),
        (
            "seed = 7",
            "dilation = 0",
            "line 10: device `ssd0`: dilation is 0; it must be from 1",
        ),
        (
            "seed = 7",
            "nsid = 1",
            "line 10: device `ssd0`: a flash device has no `nsid`",
        ),
        (
            "seed = 7",
            "policy = true",
            "line 10: device `ssd0`: policy is true: give one of `fifo`, `fair`, ",
        ),
        (
            "\"storage.example:4420\"",
            "\"storage.example\"",
            "line 14: device `far`: address: `storage.example` is not an address with a port: write it like",
        ),
        (
            "\"nqn.2026-11.dev.flashyard:db\"",
            "\"db\"",
            "line 15: device `far`: subnqn is `db`: an NQN begins with \"nqn.\"; give the NQN",
        ),
        (
            "[\"127.0.0.1:4420\"]",
            "[\"localhost\"]",
            "line 3: [target]: listen: `localhost` is not an address with a port: write it like 127.0.0.1:4420",
        ),
        (
            "[\"127.0.0.1:4420\"]",
            "\"127.0.0.1:4420\"",
            "line 3: [target]: listen is \"127.0.0.1:4420\": give a list, such as [\"127.0.0.1:4420\"]",
        ),
        (
            "cores = 2",
            "cores = 257",
            "line 4: [target] cores = 257 is out of range: 1 to 256",
        ),
        (
            "cores = 2",
            "nqn_prefix = \"nqn.foo\"",
            "line 4: [target] nqn_prefix `nqn.foo` must begin with `nqn.`, a year and a month, as nqn.2026-11.org.example does",
        ),
        (
            "[[pool]]",
            "[[pools]]",
            "line 16: unknown field `pools`, expected one of `target`, `device`, ",
        ),
        ("cores = 2", "cores = ", "line 4: "),
    ];

    #[test]
    fn every_mistake_has_its_line_its_key_and_what_is_allowed() {
        let good = Config::parse(GOOD);
        assert!(good.is_ok(), "{good:?}");
        for (right, wrong, message) in TABLE {
            assert!(GOOD.contains(right), "{right}");
            let parsed = Config::parse(&GOOD.replacen(right, wrong, 1));
            let error = parsed.expect_err(wrong).to_string();
            assert!(error.starts_with(message), "{wrong}: {error}");
        }
    }

    /// In a table by itself the key is found as well as in one that is written inline, with
    /// characters of several bytes before it.
    #[test]
    fn a_key_is_found_however_its_table_is_written() {
        let table =
            "[[tenant]]\nname = \"db\" # é\nclass = \"latency\"\n[tenant.limit]\niops = -1\n";
        let error = Config::parse(table).expect_err("less than none");
        let message = "line 5: tenant `db`: limit.iops: `-1` is not a number of I/Os";
        assert!(error.to_string().starts_with(message), "{error}");
        let dotted = "[[tenant]]\nname = \"db\"\nlimit.iops = 5\nlimit.bandwidth = \"x\"\n";
        let error = Config::parse(dotted).expect_err("no bandwidth");
        let message = "line 4: tenant `db`: limit.bandwidth: `x` is not a bandwidth";
        assert!(error.to_string().starts_with(message), "{error}");
    }
}
