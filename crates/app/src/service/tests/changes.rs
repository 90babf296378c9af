//! Changes by file, by hand and both: what is true afterwards, before and after a restart.

use serde_json::Value;

use super::*;
use crate::control::TenantChange;
use crate::spec::{RatesSpec, TenantSpec};

/// What each row begins with.
const FILE: &str = r#"
    [target]
    io_queues = 8
    #settings

    [[device]]
    name = "disk"
    kind = "file"
    path = "LIVE/disk"
    size = "64MiB"
    #device

    [[pool]]
    name = "p"
    devices = ["disk"]

    [[tenant]]
    name = "a"
    hosts = ["nqn.2026-11.test:one"]
    weight = 3
    guarantee = { read_iops = 1000 }
    #a

    [[tenant]]
    name = "b"
    #b

    [[volume]]
    name = "v"
    pool = "p"
    size = "8MiB"
    tenant = "a"
    #v

    #more
"#;

/// One thing that is done.
pub(super) enum Do {
    /// The file with these parts written otherwise, which is applied.
    File(&'static [(&'static str, &'static str)]),
    /// The same, with `--prune --yes`.
    Prune(&'static [(&'static str, &'static str)]),
    /// The same as `File`, which is refused with this.
    Refused(&'static [(&'static str, &'static str)], &'static str),
    /// A change by hand.
    Hand(Box<Request>),
    /// A start in between, without a file.
    Restart,
}

pub(super) use Do::{File as Apply, Hand, Prune, Refused, Restart};

/// What is asked for, its key, and what it says: `-` if there is no such thing.
pub(super) type Fact = (&'static str, &'static str, &'static str);

pub(super) struct Row {
    what: &'static str,
    done: Vec<Do>,
    then: &'static [Fact],
}

pub(super) fn row(what: &'static str, done: Vec<Do>, then: &'static [Fact]) -> Row {
    Row { what, done, then }
}

pub(super) fn hand(request: Request) -> Do {
    Hand(Box::new(request))
}

fn tenant(name: &str, change: TenantChange) -> Do {
    hand(Request::SetTenant {
        name: name.into(),
        force: false,
        change,
    })
}

fn weight(name: &str, weight: u32) -> Do {
    let weight = Some(weight);
    tenant(
        name,
        TenantChange {
            weight,
            ..TenantChange::default()
        },
    )
}

fn guarantee(rates: &str) -> Do {
    let guarantee: Option<RatesSpec> = Some(rates.parse().expect("rates"));
    tenant(
        "a",
        TenantChange {
            guarantee,
            ..TenantChange::default()
        },
    )
}

fn hosts(name: &str, hosts: &[&str]) -> Do {
    let hosts = Some(hosts.iter().map(|host| (*host).to_owned()).collect());
    tenant(
        name,
        TenantChange {
            hosts,
            ..TenantChange::default()
        },
    )
}

fn volume(change: VolumeChange) -> Do {
    hand(Request::SetVolume {
        name: "v".into(),
        change,
    })
}

fn settings(change: TargetSettings) -> Do {
    hand(Request::SetTarget(change))
}

fn rename_volume(name: &str, new: &str) -> Do {
    hand(Request::RenameVolume {
        name: name.into(),
        new: new.into(),
    })
}

fn rename_tenant(name: &str, new: &str) -> Do {
    hand(Request::RenameTenant {
        name: name.into(),
        new: new.into(),
    })
}

const TENANT_C: (&str, &str) = ("#more", "[[tenant]]\nname = \"c\"\nweight = 6");
const VOLUME_W: (&str, &str) = (
    "#more",
    "[[volume]]\nname = \"w\"\npool = \"p\"\nsize = \"4MiB\"\ntenant = \"b\"",
);
const NO_V: (&str, &str) = (
    "[[volume]]\n    name = \"v\"\n    pool = \"p\"\n    size = \"8MiB\"\n    tenant = \"a\"",
    "",
);

fn by_file() -> Vec<Row> {
    vec![
        row(
            "nothing",
            vec![Apply(&[])],
            &[("tenant a", "weight", "3"), ("volume v", "size", "8388608")],
        ),
        row(
            "a key",
            vec![Apply(&[("weight = 3", "weight = 5")])],
            &[("tenant a", "weight", "5")],
        ),
        row(
            "a key that it no longer has",
            vec![Apply(&[("weight = 3", "")])],
            &[("tenant a", "weight", "1")],
        ),
        row(
            "a table that it no longer has",
            vec![Apply(&[("guarantee = { read_iops = 1000 }", "")])],
            &[("tenant a", "guarantee", "null")],
        ),
        row(
            "a rate more",
            vec![Apply(&[(
                "read_iops = 1000",
                "read_iops = 1000, write_iops = 5",
            )])],
            &[(
                "tenant a",
                "guarantee",
                "{\"read_iops\":1000,\"write_iops\":5}",
            )],
        ),
        row(
            "a tenant more",
            vec![Apply(&[TENANT_C])],
            &[("tenant c", "weight", "6")],
        ),
        row(
            "a volume more",
            vec![Apply(&[VOLUME_W])],
            &[("volume w", "size", "4194304")],
        ),
        row(
            "a larger volume",
            vec![Apply(&[("8MiB", "12MiB")])],
            &[("volume v", "size", "12582912")],
        ),
        row(
            "a smaller volume",
            vec![Apply(&[("8MiB", "4MiB")])],
            &[("volume v", "size", "8388608")],
        ),
        row(
            "a protected volume",
            vec![Apply(&[("#v", "read_only = true")])],
            &[("volume v", "read_only", "true")],
        ),
        row(
            "protected, then not said",
            vec![Apply(&[("#v", "read_only = true")]), Apply(&[])],
            &[("volume v", "read_only", "false")],
        ),
        row(
            "a policy",
            vec![Apply(&[("#device", "policy = \"fifo\"")])],
            &[("device disk", "policy", "fifo")],
        ),
        row(
            "a policy, then not said",
            vec![Apply(&[("#device", "policy = \"fifo\"")]), Apply(&[])],
            &[("device disk", "policy", "fair")],
        ),
        row(
            "settings",
            vec![Apply(&[("#settings", "queue_depth = 64")])],
            &[
                ("target", "queue_depth", "64"),
                ("target", "io_queues", "8"),
            ],
        ),
        row(
            "settings that it no longer has",
            vec![Apply(&[("io_queues = 8", "")])],
            &[("target", "io_queues", "128")],
        ),
        row(
            "a prefix",
            vec![Apply(&[
                ("#settings", "nqn_prefix = \"nqn.2027-01.org.other\""),
                TENANT_C,
            ])],
            &[
                ("tenant a", "subnqn", "nqn.2026-11.dev.flashyard:a"),
                ("tenant c", "subnqn", "nqn.2027-01.org.other:c"),
            ],
        ),
        row(
            "a volume that it no longer has",
            vec![Apply(&[NO_V])],
            &[("volume v", "size", "8388608")],
        ),
        row(
            "a volume that it no longer has, pruned",
            vec![Prune(&[NO_V])],
            &[("volume v", "", "-"), ("tenant a", "weight", "3")],
        ),
        row(
            "pruned after a file without it",
            vec![Apply(&[NO_V]), Prune(&[NO_V])],
            &[("volume v", "", "-")],
        ),
    ]
}

fn by_hand() -> Vec<Row> {
    vec![
        row(
            "by hand alone",
            vec![weight("b", 9), Restart],
            &[("tenant b", "weight", "9")],
        ),
        row(
            "by hand, no file ever said it",
            vec![weight("b", 9), Apply(&[])],
            &[("tenant b", "weight", "9")],
        ),
        row(
            "hosts by hand, no file ever said them",
            vec![hosts("b", &["*"]), Apply(&[TENANT_C])],
            &[("tenant b", "hosts", "[\"*\"]")],
        ),
        row(
            "by hand, the file says it",
            vec![weight("a", 9), Apply(&[])],
            &[("tenant a", "weight", "3")],
        ),
        row(
            "by hand, changed in the file",
            vec![weight("a", 9), Apply(&[("weight = 3", "weight = 4")])],
            &[("tenant a", "weight", "4")],
        ),
        row(
            "by hand, no longer in the file",
            vec![weight("a", 9), Apply(&[("weight = 3", "")])],
            &[("tenant a", "weight", "1")],
        ),
        row(
            "another rate by hand",
            vec![guarantee("read_iops=1000,write_iops=7"), Apply(&[])],
            &[(
                "tenant a",
                "guarantee",
                "{\"read_iops\":1000,\"write_iops\":7}",
            )],
        ),
        row(
            "grown by hand",
            vec![volume(VolumeChange::Size(Size(16 << 20))), Apply(&[])],
            &[("volume v", "size", "16777216")],
        ),
        row(
            "protected by hand",
            vec![volume(VolumeChange::ReadOnly(true)), Apply(&[])],
            &[("volume v", "read_only", "true")],
        ),
        row(
            "settings by hand",
            vec![
                settings(TargetSettings {
                    queue_depth: Some(32),
                    io_queues: Some(4),
                    ..TargetSettings::default()
                }),
                Apply(&[]),
            ],
            &[
                ("target", "queue_depth", "32"),
                ("target", "io_queues", "8"),
            ],
        ),
        row(
            "made by hand, pruned",
            vec![
                hand(Request::CreateTenant {
                    spec: Config::parse("[[tenant]]\nname = \"c\"")
                        .expect("good")
                        .tenants
                        .remove(0),
                    force: false,
                }),
                Prune(&[]),
            ],
            &[("tenant c", "weight", "1")],
        ),
        row(
            "deleted by hand, in the file",
            vec![
                hand(Request::Delete(KindName::Volume, "v".into())),
                Apply(&[]),
            ],
            &[("volume v", "size", "8388608")],
        ),
    ]
}

fn refused() -> Vec<Row> {
    vec![
        row(
            "a volume renamed",
            vec![
                rename_volume("v", "w"),
                Refused(&[], "volume `v` is called `w`"),
            ],
            &[("volume v", "", "-"), ("volume w", "size", "8388608")],
        ),
        row(
            "a volume renamed, as the file says",
            vec![
                rename_volume("v", "w"),
                Apply(&[("name = \"v\"", "name = \"w\"")]),
            ],
            &[("volume w", "size", "8388608"), ("volume v", "", "-")],
        ),
        row(
            "a tenant renamed",
            vec![
                rename_tenant("b", "z"),
                Refused(&[], "tenant `b` is called `z`"),
            ],
            &[("tenant z", "subnqn", "nqn.2026-11.dev.flashyard:b")],
        ),
        row(
            "renamed and back",
            vec![rename_tenant("b", "z"), rename_tenant("z", "b"), Apply(&[])],
            &[("tenant b", "weight", "1")],
        ),
        row(
            "no hosts",
            vec![Refused(
                &[("hosts = [\"nqn.2026-11.test:one\"]", "")],
                "say --yes",
            )],
            &[("tenant a", "hosts", "[\"nqn.2026-11.test:one\"]")],
        ),
        row(
            "what is fixed",
            vec![Refused(
                &[("64MiB", "32MiB"), ("weight = 3", "weight = 8")],
                "its size is 64 MiB",
            )],
            &[("tenant a", "weight", "3")],
        ),
        row(
            "partly invalid",
            vec![Refused(
                &[
                    ("weight = 3", "weight = 8"),
                    VOLUME_W,
                    ("\"4MiB\"", "\"400MiB\""),
                ],
                "nothing was changed",
            )],
            &[("tenant a", "weight", "3"), ("volume w", "", "-")],
        ),
        row(
            "a device that cannot be",
            vec![Refused(
                &[
                    ("weight = 3", "weight = 8"),
                    (
                        "#more",
                        "[[device]]\nname = \"gone\"\nkind = \"file\"\npath = \"/nonexistent/x\"\nsize = \"8MiB\"",
                    ),
                ],
                "nothing was changed",
            )],
            &[("tenant a", "weight", "3"), ("device gone", "", "-")],
        ),
        row(
            "too much room",
            vec![Refused(
                &[("weight = 3", "weight = 8"), ("8MiB", "800MiB")],
                "nothing was changed",
            )],
            &[("tenant a", "weight", "3"), ("volume v", "size", "8388608")],
        ),
        row(
            "unknown names",
            vec![Refused(
                &[VOLUME_W, ("tenant = \"b\"", "tenant = \"q\"")],
                "tenant `q`",
            )],
            &[("volume v", "tenant", "a")],
        ),
    ]
}

/// `FILE` with parts written otherwise.
fn text(scene: &Scene, parts: &[(&str, &str)]) -> String {
    let mut text = FILE.to_owned();
    for (old, new) in parts {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    text.replace("LIVE", scene.live().to_str().expect("plain names"))
}

fn apply(
    scene: &Scene,
    service: &Service,
    parts: &[(&str, &str)],
    careless: bool,
) -> Result<(), Fault> {
    let file = Document::parse(&text(scene, parts), Path::new("/")).expect("it is read");
    let how = How {
        plan: false,
        prune: careless,
        yes: careless,
        ..How::default()
    };
    service.handle(Request::Apply { file, how }).map(drop)
}

fn look_up(service: &Service, (what, key, _): Fact) -> String {
    let (kind, name) = what.split_once(' ').unwrap_or((what, ""));
    let request = match kind {
        "target" => Request::ShowTarget,
        "device" => Request::Show(KindName::Device, name.into()),
        "pool" => Request::Show(KindName::Pool, name.into()),
        "tenant" => Request::Show(KindName::Tenant, name.into()),
        _ => Request::Show(KindName::Volume, name.into()),
    };
    let Ok(view) = service.handle(request) else {
        return "-".to_owned();
    };
    let view = serde_json::to_value(view).expect("plain data");
    match &view[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn holds(service: &Service, row: &Row, when: &str) {
    for fact in row.then {
        let found = look_up(service, *fact);
        assert_eq!(found, fact.2, "{} {when}: {} {}", row.what, fact.0, fact.1);
    }
}

pub(super) fn run(name: &str, rows: &[Row]) {
    for (number, row) in rows.iter().enumerate() {
        let scene = Scene::new(&format!("changes-{name}-{number}"));
        let mut service = scene.start();
        apply(&scene, &service, &[], false).expect("it is right");
        for one in &row.done {
            match one {
                Apply(parts) => apply(&scene, &service, parts, false)
                    .unwrap_or_else(|fault| panic!("{}: {fault}", row.what)),
                Prune(parts) => apply(&scene, &service, parts, true)
                    .unwrap_or_else(|fault| panic!("{}: {fault}", row.what)),
                Refused(parts, why) => {
                    let fault = apply(&scene, &service, parts, false).expect_err(row.what);
                    assert!(fault.to_string().contains(why), "{}: {fault}", row.what);
                }
                Hand(request) => drop(
                    service
                        .handle((**request).clone())
                        .unwrap_or_else(|fault| panic!("{}: {fault}", row.what)),
                ),
                Restart => {
                    service.end();
                    service = scene.start();
                }
            }
        }
        holds(&service, row, "at once");
        service.check_whole(row.what);
        service.end();
        let service = scene.start();
        holds(&service, row, "after a restart");
        service.check_whole(row.what);
        service.end();
    }
}

#[test]
fn changes_by_file() {
    run("file", &by_file());
}

#[test]
fn changes_by_hand_and_file() {
    run("hand", &by_hand());
}

#[test]
fn changes_that_are_refused() {
    run("refused", &refused());
}

/// What could not be taken back is not forgotten: files wait for it, and the next start does it.
#[test]
fn a_file_waits_for_what_an_earlier_one_left() {
    let scene = Scene::new("earlier");
    let service = scene.start();
    apply(&scene, &service, &[], false).expect("it is right");
    let was = service.stack().tenant("b").map(|(_, it)| it.spec.clone());
    let was = TenantSpec {
        weight: 7,
        ..was.expect("the file has it")
    };
    let before = [crate::state::Before::Tenant("b".into(), Some(was))];
    let noted = service.store().put_unfinished(&before);
    noted.expect("the store is whole");
    let fault = apply(&scene, &service, &[("weight = 3", "weight = 4")], false);
    let text = fault.expect_err("it waits").to_string();
    assert!(text.contains("restart the target"), "{text}");
    service.end();
    let service = scene.start();
    assert_eq!(look_up(&service, ("tenant b", "weight", "")), "7");
    apply(&scene, &service, &[("weight = 3", "weight = 4")], false).expect("nothing is left");
    assert_eq!(look_up(&service, ("tenant a", "weight", "")), "4");
    service.end();
}

/// A volume that somebody makes under a name that a file has left something to be done about is
/// not what the file meant.
#[test]
fn what_is_made_by_hand_later_is_not_taken_back() {
    let scene = Scene::new("later");
    let service = scene.start();
    apply(&scene, &service, &[], false).expect("it is right");
    let left = [crate::state::Before::Volume("v".into(), None)];
    service.store().put_unfinished(&left).expect("it is whole");
    for act in [
        delete(KindName::Volume, "v"),
        create("name = \"v\"\npool = \"p\"\nsize = \"4MiB\"\ntenant = \"a\""),
        Act::Fill("v", 0xa7),
    ] {
        let done = service.act(&act);
        done.unwrap_or_else(|fault| panic!("{act:?}: {fault}"));
    }
    service.end();
    let service = scene.start();
    assert_eq!(service.content("v").1, BTreeSet::from([0xa7]));
    service.end();
}
