//! What a file changes, in a table: what is there, the last file, this file.

use std::path::Path;

use uuid::Uuid;

use super::*;

/// A target as it is after a file was applied.
struct There {
    target: TargetSettings,
    devices: Vec<DeviceSpec>,
    pools: Vec<PoolSpec>,
    tenants: Vec<TenantSpec>,
    volumes: Vec<VolumeRecord>,
    functions: Vec<FunctionSpec>,
    applied: Applied,
}

const FIRST: &str = r#"
    [target]
    io_queues = 8

    [[device]]
    name = "ram"
    kind = "memory"
    size = "64MiB"

    [[pool]]
    name = "p"
    devices = ["ram"]

    [[tenant]]
    name = "a"
    hosts = ["nqn.2026-11.test:one"]
    weight = 3
    guarantee = { read_iops = 1000 }

    [[tenant]]
    name = "b"

    [[volume]]
    name = "v"
    pool = "p"
    size = "8MiB"
    tenant = "a"
"#;

fn document(text: &str) -> Document {
    Document::parse(text, Path::new("/")).expect("a good file")
}

fn record(spec: VolumeSpec) -> VolumeRecord {
    VolumeRecord {
        spec,
        uuid: Uuid::from_u128(7),
        nsid: 1,
        phase: crate::state::Phase::Ready,
        moving: None,
    }
}

impl There {
    /// Nothing, and no file.
    fn empty() -> Self {
        Self {
            target: TargetSettings::default(),
            devices: Vec::new(),
            pools: Vec::new(),
            tenants: Vec::new(),
            volumes: Vec::new(),
            functions: Vec::new(),
            applied: Applied::default(),
        }
    }

    /// What the first file has made.
    fn first() -> Self {
        let file = document(FIRST);
        let config = file.to_config().expect("a good file");
        Self {
            target: config.target,
            devices: config.devices,
            pools: config.pools,
            tenants: config.tenants,
            volumes: config.volumes.into_iter().map(record).collect(),
            functions: config.functions,
            applied: Applied {
                file,
                ..Applied::default()
            },
        }
    }

    fn plan(&self, text: &str, prune: bool) -> Result<Plan, Fault> {
        let names = |spec: &TenantSpec| TenantNames {
            nqn: spec
                .nqn
                .clone()
                .unwrap_or_else(|| format!("nqn.2026-11.test:{}", spec.name)),
            serial: "S".to_owned(),
            model: "M".to_owned(),
        };
        let present = Present {
            target: &self.target,
            devices: self
                .devices
                .iter()
                .map(|it| (it.name.as_str(), it))
                .collect(),
            pools: self.pools.iter().map(|it| (it.name.as_str(), it)).collect(),
            tenants: self
                .tenants
                .iter()
                .map(|it| (it.name.as_str(), it))
                .collect(),
            volumes: self
                .volumes
                .iter()
                .map(|it| (it.spec.name.as_str(), it))
                .collect(),
            functions: self
                .functions
                .iter()
                .map(|it| (it.name.as_str(), it))
                .collect(),
            names: Box::new(names),
        };
        plan(&document(text), &self.applied, &present, prune)
    }

    fn shown(&self, text: &str) -> Vec<String> {
        let plan = self.plan(text, false).expect("it can be applied");
        let shown = plan.changes.iter().map(ToString::to_string);
        shown.chain(plan.notes).collect()
    }

    fn refused(&self, text: &str) -> String {
        self.plan(text, false)
            .expect_err("it is refused")
            .to_string()
    }
}

/// The first file with one line written otherwise.
fn with(old: &str, new: &str) -> String {
    assert!(FIRST.contains(old), "{old}");
    FIRST.replace(old, new)
}

#[test]
fn a_file_applied_again_changes_nothing() {
    let there = There::first();
    let plan = there.plan(FIRST, true).expect("it was applied");
    assert!(
        plan.steps.is_empty() && plan.before.is_empty(),
        "{:?}",
        plan.steps
    );
    assert!(plan.changes.is_empty() && plan.notes.is_empty() && plan.risks.is_empty());
    assert_eq!(plan.applied, there.applied);
}

#[test]
fn an_empty_target_gets_all_of_it_in_order() {
    let plan = There::empty()
        .plan(FIRST, false)
        .expect("it can be applied");
    let kinds: Vec<_> = plan
        .changes
        .iter()
        .map(|it| (it.kind, it.name.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            (Section::Target, ""),
            (Section::Device, "ram"),
            (Section::Pool, "p"),
            (Section::Tenant, "a"),
            (Section::Tenant, "b"),
            (Section::Volume, "v"),
        ]
    );
    assert_eq!(
        plan.steps.len(),
        5,
        "tenants are made at once: {:?}",
        plan.steps
    );
    assert_eq!(plan.before.len(), 6);
    assert!(plan.risks.is_empty());
}

#[test]
fn keys_follow_the_file_and_keep_what_no_file_ever_said() {
    let first = There::first;
    let by_hand = |change: fn(&mut There)| {
        let mut there = first();
        change(&mut there);
        there
    };
    let table: [(&str, There, String, &[&str]); 13] = [
        (
            "changed in the file",
            first(),
            with("weight = 3", "weight = 5"),
            &["change tenant a\n    weight: 3 -> 5"],
        ),
        (
            "gone from the file",
            first(),
            with("weight = 3", ""),
            &["change tenant a\n    weight: 3 -> 1"],
        ),
        (
            "by hand, and in the file",
            by_hand(|it| it.tenants[0].weight = 9),
            FIRST.into(),
            &[
                "change tenant a\n    weight: 9 -> 3 (changed by hand since the last file was applied)",
            ],
        ),
        (
            "by hand, gone from the file",
            by_hand(|it| it.tenants[0].weight = 9),
            with("weight = 3", ""),
            &[
                "change tenant a\n    weight: 9 -> 1 (changed by hand since the last file was applied)",
            ],
        ),
        (
            "by hand, in no file",
            by_hand(|it| it.tenants[1].weight = 9),
            FIRST.into(),
            &[],
        ),
        (
            "hosts by hand, in no file",
            by_hand(|it| it.tenants[1].hosts = vec!["*".into()]),
            FIRST.into(),
            &[],
        ),
        (
            "a table gone from the file",
            first(),
            with("guarantee = { read_iops = 1000 }", ""),
            &["change tenant a\n    guarantee.read_iops: 1000 -> (default)"],
        ),
        (
            "a setting gone from the file",
            first(),
            with("io_queues = 8", ""),
            &["change target\n    io_queues: 8 -> 128"],
        ),
        (
            "a setting by hand",
            by_hand(|it| it.target.queue_depth = Some(64)),
            FIRST.into(),
            &[],
        ),
        (
            "grown in the file",
            first(),
            with("\"8MiB\"", "\"12MiB\""),
            &["change volume v\n    size: 8 MiB -> 12 MiB"],
        ),
        (
            "smaller in the file",
            first(),
            with("\"8MiB\"", "\"4MiB\""),
            &["volume v stays at 8 MiB: volumes do not shrink"],
        ),
        (
            "protected by hand",
            by_hand(|it| it.volumes[0].spec.read_only = Some(true)),
            FIRST.into(),
            &[],
        ),
        (
            "gone from the target",
            by_hand(|it| drop(it.tenants.pop())),
            FIRST.into(),
            &["create tenant b (deleted by hand since the last file was applied)"],
        ),
    ];
    for (what, there, file, wanted) in table {
        let wanted: Vec<String> = wanted.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(there.shown(&file), wanted, "{what}");
    }
}

#[test]
fn what_is_measured_stays() {
    let mut there = There::first();
    let capability: crate::spec::RatesSpec = "read_iops=5000".parse().expect("rates");
    there.devices[0].capability = Some(capability);
    there.devices[0].disposable = true;
    assert_eq!(there.shown(FIRST), Vec::<String>::new());
    let said = with(
        "\"64MiB\"",
        "\"64MiB\"\n    capability = { read_iops = 7000 }",
    );
    assert_eq!(
        there.shown(&said),
        ["change device ram\n    capability.read_iops: 5000 -> 7000"]
    );
}

#[test]
fn what_is_fixed_is_refused_and_may_be_left_out() {
    let there = There::first();
    for (file, why) in [
        (
            with("\"64MiB\"", "\"32MiB\""),
            "size is 64 MiB, the file says 32 MiB",
        ),
        (
            with("\"memory\"", "\"null\""),
            "device `ram` exists and is not what the file says",
        ),
        (
            with("weight = 3", "nqn = \"nqn.2026-11.test:other\""),
            "its nqn is nqn.2026-11.test:a",
        ),
        (
            with("size = \"8MiB\"", "size = \"8MiB\"\n    nsid = 4"),
            "its nsid is 1",
        ),
        (
            with("tenant = \"a\"", "tenant = \"b\""),
            "volume `v` is tenant `a`'s",
        ),
        (
            with("devices = [\"ram\"]", "devices = [\"rom\"]"),
            "its devices is [ram], the file says [rom]",
        ),
    ] {
        let text = there.refused(&file);
        assert!(text.contains(why), "{text}");
    }
    let same = with("weight = 3", "weight = 3\n    nqn = \"nqn.2026-11.test:a\"");
    assert_eq!(there.shown(&same), Vec::<String>::new());
}

#[test]
fn nothing_is_deleted_unless_that_is_asked_for() {
    let there = There::first();
    let (start, end) = (FIRST.find("[[volume]]").expect("it is there"), FIRST.len());
    let shorter = FIRST.replace(&FIRST[start..end], "");
    let plan = there.plan(&shorter, false).expect("it can be applied");
    assert!(plan.steps.is_empty() && plan.risks.is_empty());
    assert_eq!(
        plan.notes,
        ["volume v is no longer in the file and stays as it is: --prune deletes it"]
    );
    assert_eq!(
        plan.applied.file.tables(Section::Volume).len(),
        1,
        "it is not forgotten"
    );
    let plan = there.plan(&shorter, true).expect("it can be applied");
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    assert_eq!(plan.applied.deleting, [(Section::Volume, "v".into())]);
    assert_eq!(plan.risks, [Risk::Delete(Section::Volume, "v".into())]);

    // What was made by hand is no file's.
    let mut there = There::first();
    there.applied = Applied::default();
    let plan = there.plan(&shorter, true).expect("it can be applied");
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
}

#[test]
fn nobody_is_locked_out_by_accident() {
    let there = There::first();
    let plan = there.plan(&with("hosts = [\"nqn.2026-11.test:one\"]", ""), false);
    assert_eq!(plan.expect("a plan").risks, [Risk::NoHosts("a".into())]);
    let other = with("test:one", "test:two");
    assert_eq!(there.plan(&other, false).expect("a plan").risks, []);
}

#[test]
fn what_was_renamed_by_hand_is_not_made_anew() {
    let mut there = There::first();
    there.volumes[0].spec.name = "w".to_owned();
    there.applied.rename(Section::Volume, "v", "w");
    let text = there.refused(FIRST);
    assert!(text.contains("volume `v` is called `w`"), "{text}");
    let renamed = with("name = \"v\"", "name = \"w\"");
    let plan = there.plan(&renamed, false).expect("it can be applied");
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    assert_eq!(plan.applied.renamed, []);
}

#[test]
fn a_guarantee_moves_from_one_tenant_to_another() {
    let there = There::first();
    let file = with("guarantee = { read_iops = 1000 }", "").replace(
        "name = \"b\"",
        "name = \"b\"\nguarantee = { read_iops = 1000 }",
    );
    let plan = there.plan(&file, false).expect("it can be applied");
    let names = |step: &Step| match step {
        Step::PutTenants(specs) => specs.iter().map(|it| it.name.clone()).collect(),
        _ => Vec::new(),
    };
    let order: Vec<Vec<String>> = plan.steps.iter().map(names).collect();
    assert_eq!(order, [["a"], ["b"]]);
}

#[test]
fn what_is_named_has_to_be_somewhere() {
    let there = There::empty();
    for (old, new, why) in [
        ("devices = [\"ram\"]", "devices = [\"rom\"]", "device `rom`"),
        ("pool = \"p\"", "pool = \"q\"", "pool `q`"),
        ("tenant = \"a\"", "tenant = \"c\"", "tenant `c`"),
    ] {
        let text = there.refused(&with(old, new));
        assert!(text.contains(why), "{text}");
    }
}
