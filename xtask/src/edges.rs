//! The table of which crate may depend on which: it keeps the two halves of the design apart.

use serde_json::Value;

use crate::tidy::Finding;

/// A crate, what it may use, and what its tests may use beside that.
struct Rule {
    package: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
}

/// The table of ARCHITECTURE.md, from the bottom up.
const RULES: [Rule; 21] = [
    rule("time", &[], &[]),
    rule("checksum", &[], &["time"]),
    rule("nvme", &["checksum", "time"], &["corpus"]),
    rule("sched", &["time"], &[]),
    rule("flash", &["time"], &["corpus"]),
    rule("logstore", &["checksum", "time"], &["corpus"]),
    rule("codec", &[], &["corpus", "time"]),
    rule("keys", &["checksum", "codec"], &["corpus"]),
    rule("runtime", &["time"], &["testbed"]),
    // What earlier versions have written, and inputs for parsers: for tests.
    rule("corpus", &["time"], &[]),
    rule(
        "block",
        &[
            "checksum", "codec", "keys", "logstore", "runtime", "sched", "time",
        ],
        &["corpus", "testbed"],
    ),
    rule(
        "drives",
        &["block", "checksum", "flash", "runtime", "sched", "time"],
        &["corpus", "testbed"],
    ),
    rule("controller", &["nvme", "sched", "time"], &[]),
    rule(
        "engine",
        &["controller", "nvme", "sched", "block", "runtime", "time"],
        &[],
    ),
    // Tests of the target connect to it with our own initiator.
    rule(
        "tcp",
        &[
            "engine",
            "controller",
            "nvme",
            "sched",
            "block",
            "runtime",
            "time",
        ],
        &["host", "testbed"],
    ),
    // Tests of the initiator need a target to connect to.
    rule(
        "host",
        &["nvme", "sched", "block", "runtime", "time"],
        &["engine", "tcp", "testbed"],
    ),
    // What tests and the laboratory set up; nothing else may use it.
    rule(
        "testbed",
        &[
            "nvme", "sched", "block", "runtime", "time", "engine", "tcp", "host",
        ],
        &[],
    ),
    rule(
        "vfio",
        &[
            "engine",
            "controller",
            "nvme",
            "sched",
            "block",
            "runtime",
            "time",
        ],
        &["host", "testbed"],
    ),
    rule(
        "lab",
        &[
            "time",
            "nvme",
            "sched",
            "codec",
            "flash",
            "runtime",
            "block",
            "drives",
            "controller",
            "engine",
            "tcp",
            "vfio",
            "host",
            "testbed",
        ],
        &["corpus", "testbed"],
    ),
    rule(
        "app",
        &[
            "time",
            "nvme",
            "sched",
            "codec",
            "keys",
            "flash",
            "runtime",
            "block",
            "drives",
            "controller",
            "engine",
            "tcp",
            "host",
            "vfio",
            "lab",
        ],
        &["corpus", "testbed"],
    ),
    rule("xtask", &[], &[]),
];

const fn rule(
    package: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
) -> Rule {
    Rule {
        package,
        may_use,
        tests_may_use,
    }
}

/// Compares what `cargo metadata --no-deps` says with the table.
pub(crate) fn check(metadata: &Value) -> Result<Vec<Finding>, String> {
    let root = text(metadata, "workspace_root")?;
    let packages = list(metadata, "packages")?;
    let mut ours = Vec::new();
    for package in packages {
        ours.push(text(package, "name")?);
    }
    let mut findings = Vec::new();
    for package in packages {
        let manifest = text(package, "manifest_path")?;
        let file = manifest
            .strip_prefix(root)
            .unwrap_or(manifest)
            .trim_start_matches('/');
        let complaints = check_package(package, &ours)?;
        findings.extend(complaints.into_iter().map(|message| Finding {
            file: file.to_owned(),
            line: 1,
            message,
        }));
    }
    Ok(findings)
}

/// Short names of the crates in `crates/`, in the order of the metadata.
pub(crate) fn crates(metadata: &Value) -> Result<Vec<String>, String> {
    let names = list(metadata, "packages")?
        .iter()
        .map(|package| Ok(short(text(package, "name")?).to_owned()));
    let mut crates: Vec<String> = names.collect::<Result<_, String>>()?;
    crates.retain(|name| name != "xtask");
    Ok(crates)
}

/// What is wrong with the dependencies of one package; `ours` are the names of all packages here.
fn check_package(package: &Value, ours: &[&str]) -> Result<Vec<String>, String> {
    let name = short(text(package, "name")?);
    let Some(rule) = RULES.iter().find(|rule| rule.package == name) else {
        return Ok(vec![format!(
            "`{name}` has no row in the table of edges in xtask/src/edges.rs; add one"
        )]);
    };
    let mut complaints = Vec::new();
    for dependency in list(package, "dependencies")? {
        let dependency_name = text(dependency, "name")?;
        if !ours.contains(&dependency_name) {
            continue;
        }
        let used = short(dependency_name);
        let for_tests = dependency["kind"] == "dev";
        if rule.may_use.contains(&used) || for_tests && rule.tests_may_use.contains(&used) {
            continue;
        }
        let who = if for_tests { "tests of " } else { "" };
        let allowed = if rule.may_use.is_empty() {
            "nothing of ours".into()
        } else {
            rule.may_use.join(", ")
        };
        complaints.push(format!(
            "{who}`{name}` may not depend on `{used}`; it may use {allowed}"
        ));
    }
    Ok(complaints)
}

/// The name of a package without the prefix that all of them share.
fn short(name: &str) -> &str {
    name.strip_prefix("flashyard-")
        .unwrap_or(if name == "flashyard" { "app" } else { name })
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key]
        .as_str()
        .ok_or_else(|| format!("cargo metadata has no text `{key}`"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, String> {
    value[key]
        .as_array()
        .ok_or_else(|| format!("cargo metadata has no list `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A package and what it depends on: names, and `dev` or `build` where it is one.
    type Package<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

    fn messages(packages: &[Package]) -> Vec<String> {
        let package = |(name, dependencies): &Package| {
            let dependency =
                |(name, kind): &(&str, Option<&str>)| json!({ "name": name, "kind": kind });
            json!({
                "name": name,
                "manifest_path": format!("/somewhere/crates/{}/Cargo.toml", short(name)),
                "dependencies": dependencies.iter().map(dependency).collect::<Vec<_>>(),
            })
        };
        let packages: Vec<Value> = packages.iter().map(package).collect();
        let metadata = json!({ "workspace_root": "/somewhere", "packages": packages });
        let findings = check(&metadata).expect("well-formed metadata");
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn allowed_edges_pass() {
        let found = messages(&[
            ("flashyard-time", &[]),
            (
                "flashyard-nvme",
                &[("flashyard-time", None), ("zerocopy", None)],
            ),
            (
                "flashyard-tcp",
                &[("flashyard-nvme", None), ("flashyard-host", Some("dev"))],
            ),
            ("flashyard-host", &[("flashyard-nvme", None)]),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn an_edge_upwards_is_found() {
        let found = messages(&[
            ("flashyard-time", &[]),
            ("flashyard-nvme", &[("flashyard-runtime", None)]),
            ("flashyard-runtime", &[]),
        ]);
        assert_eq!(
            found,
            [
                "crates/nvme/Cargo.toml:1: `nvme` may not depend on `runtime`; it may use checksum, time"
            ]
        );
    }

    #[test]
    fn only_tests_may_use_what_only_tests_may() {
        let host = ("flashyard-host", &[][..]);
        let found = messages(&[
            host,
            (
                "flashyard-tcp",
                &[("flashyard-host", None), ("flashyard-host", Some("build"))],
            ),
        ]);
        assert_eq!(found.len(), 2);
        let found = messages(&[host, ("flashyard-time", &[("flashyard-host", Some("dev"))])]);
        assert_eq!(
            found,
            [
                "crates/time/Cargo.toml:1: tests of `time` may not depend on `host`; it may use nothing of ours"
            ]
        );
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        let found = messages(&[("flashyard-utils", &[])]);
        assert!(found[0].contains("no row"), "{found:?}");
    }

    #[test]
    fn the_table_has_no_circle() {
        for (place, rule) in RULES.iter().enumerate() {
            for used in rule.may_use {
                let below = RULES[..place].iter().any(|lower| lower.package == *used);
                assert!(
                    below,
                    "`{}` uses `{used}`, which does not stand before it",
                    rule.package
                );
            }
        }
    }
}
