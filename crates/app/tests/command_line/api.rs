//! What the REST API does that no command shows.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::rig::{Scratch, Target, path};

/// An answer: its status, the address of the next part of a list, and what it says.
struct Answer {
    status: u16,
    next: Option<String>,
    view: Value,
}

/// Asks a target over its socket, as any program would.
fn ask(target: &Target, method: &str, address: &str, body: &str) -> Answer {
    let mut socket = UnixStream::connect(target.state.join("api.sock")).expect("it listens");
    let length = body.len();
    let request = format!(
        "{method} /api/v1{address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).expect("it is taken");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("it is answered");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let next = lines.find_map(|line| {
        let link = line.strip_prefix("link: <")?;
        Some(link.strip_suffix(">; rel=\"next\"")?.to_owned())
    });
    Answer {
        status: status.and_then(|it| it.parse().ok()).expect("a status"),
        next,
        view: serde_json::from_str(body).expect("JSON"),
    }
}

fn names(view: &Value) -> Vec<&str> {
    let rows = view.as_array().expect("a list").iter();
    rows.map(|row| row["name"].as_str().expect("a name"))
        .collect()
}

/// A target with a mapped pool, for a tenant.
fn with_pool(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    for line in [
        "device create ram0 --kind memory --size 256MiB",
        "pool create fast --device ram0 --kind mapped",
        "tenant create db --host *",
    ] {
        target.json(&line.split(' ').collect::<Vec<_>>());
    }
    target
}

#[test]
fn a_list_comes_in_parts_in_the_order_of_names() {
    let scratch = Scratch::new("api-parts");
    let target = with_pool(&scratch);
    for name in ["e", "b", "d", "a_b", "c"] {
        let volume = ["volume", "create", name, "--pool", "fast"];
        target.json(&[&volume[..], &["--size", "4MiB", "--tenant", "db"]].concat());
    }
    let list = |query: &str| ask(&target, "GET", &format!("/volumes{query}"), "");
    let whole = list("");
    assert_eq!(names(&whole.view), ["a_b", "b", "c", "d", "e"]);
    assert_eq!(whole.next, None);

    let first = list("?limit=1");
    assert_eq!(names(&first.view), ["a_b"]);
    assert_eq!(first.next.as_deref(), Some("?limit=1&after=a_b"));
    let second = list(&first.next.expect("there is more"));
    assert_eq!(names(&second.view), ["b"]);
    // What goes and comes meanwhile loses none of the others.
    target.json(&["volume", "delete", "b", "--yes"]);
    target.json(&["volume", "rename", "a_b", "z"]);
    let third = list(
        &second
            .next
            .expect("there is more")
            .replace("limit=1", "limit=2"),
    );
    assert_eq!(names(&third.view), ["c", "d"]);
    let last = list(&third.next.expect("there is more"));
    assert_eq!(names(&last.view), ["e", "z"]);
    assert_eq!(last.next, None);
    assert_eq!(list("?limit=4").next, None);
    for query in ["?limit=0", "?limit=1001", "?limit=-1", "?limit="] {
        let refused = list(query);
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(refused.view["code"], "invalid", "{query}");
    }
}

#[test]
fn snapshots_come_in_parts_by_volume_and_age() {
    let scratch = Scratch::new("api-snapshots");
    let target = with_pool(&scratch);
    for name in ["w", "v"] {
        let volume = ["volume", "create", name, "--pool", "fast"];
        target.json(&[&volume[..], &["--size", "4MiB", "--tenant", "db"]].concat());
    }
    for name in ["w@b", "v@b", "v@a", "w@a"] {
        target.json(&["snapshot", "create", name]);
    }
    let mut told = Vec::new();
    let mut query = "?limit=3".to_owned();
    loop {
        let part = ask(&target, "GET", &format!("/snapshots{query}"), "");
        assert_eq!(part.status, 200, "{}", part.view);
        told.extend(names(&part.view).into_iter().map(str::to_owned));
        match part.next {
            Some(next) => query = next,
            None => break,
        }
    }
    assert_eq!(told, ["v@b", "v@a", "w@b", "w@a"]);
    let own = ask(&target, "GET", "/snapshots?volume=w&limit=1", "");
    assert_eq!(own.next.as_deref(), Some("?volume=w&limit=1&after=w%40b"));
    // Of a volume that is gone there is nothing more; a snapshot that is gone is no place.
    let behind = |after: &str| {
        ask(
            &target,
            "GET",
            &format!("/snapshots?limit=9&after={after}"),
            "",
        )
    };
    assert_eq!(names(&behind("va%40gone").view), ["w@b", "w@a"]);
    let gone = behind("v%40gone");
    assert_eq!(
        (gone.status, &gone.view["code"]),
        (404, &"not_found".into())
    );
    let none = behind("v");
    assert_eq!((none.status, &none.view["code"]), (400, &"invalid".into()));
}

#[test]
fn volumes_are_listed_by_tenant_and_by_pool() {
    let scratch = Scratch::new("api-volumes-of");
    let target = with_pool(&scratch);
    target.json(&["tenant", "create", "web"]);
    target.json(&[
        "device", "create", "other", "--kind", "memory", "--size", "64MiB",
    ]);
    target.json(&["pool", "create", "slow", "--device", "other"]);
    for (name, pool, tenant) in [
        ("a", "fast", "db"),
        ("b", "slow", "db"),
        ("c", "fast", "web"),
        ("d", "fast", "db"),
    ] {
        let volume = ["volume", "create", name, "--pool", pool, "--tenant", tenant];
        target.json(&[&volume[..], &["--size", "4MiB"]].concat());
    }
    for (query, expected) in [
        ("", &["a", "b", "c", "d"][..]),
        ("?tenant=db", &["a", "b", "d"]),
        ("?pool=slow", &["b"]),
        ("?tenant=db&pool=fast", &["a", "d"]),
        ("?tenant=web&pool=slow", &[]),
        ("?tenant=db&after=a", &["b", "d"]),
    ] {
        let told = ask(&target, "GET", &format!("/volumes{query}"), "");
        assert_eq!(names(&told.view), expected, "{query}");
    }
    let first = ask(&target, "GET", "/volumes?tenant=db&pool=fast&limit=1", "");
    let next = "?tenant=db&pool=fast&limit=1&after=a";
    assert_eq!(first.next.as_deref(), Some(next));
    for query in ["?tenant=nobody", "?pool=nowhere", "?tenant=db&pool=nowhere"] {
        let none = ask(&target, "GET", &format!("/volumes{query}"), "");
        let code = (none.status, &none.view["code"]);
        assert_eq!(code, (404, &"not_found".into()), "{query}");
    }
    let listed = target.json(&["volume", "list", "--tenant", "db", "--pool", "slow"]);
    assert_eq!(names(&listed), ["b"]);
    let none = target.run(&["volume", "list", "--tenant", "web", "--pool", "slow"]);
    assert_eq!(none.stdout, b"no volume of tenant web in pool slow\n");
}

/// A part has 1000 rows at most; the command line shows all there are.
#[test]
fn commands_show_the_whole_of_a_long_list() {
    let scratch = Scratch::new("api-long");
    let tenants =
        (0..2003).map(|number| format!("[[tenant]]\nname = \"t{number:04}\"\nhosts = []\n"));
    let file = scratch.file("many.toml", &tenants.collect::<String>());
    let target = Target::start(&scratch, &[]);
    target.json(&["apply", path(&file)]);
    let list = target.json(&["tenant", "list"]);
    let found = names(&list);
    assert_eq!(found.len(), 2003);
    assert!(found.is_sorted(), "{found:?}");
}

/// Whoever has had no answer asks again.
#[test]
fn what_is_there_already_is_made_once() {
    let scratch = Scratch::new("api-again");
    let target = Target::start(&scratch, &[]);
    let make =
        |kind: &str, body: &str| ask(&target, "POST", &format!("/{kind}?if_missing=true"), body);
    let all = [
        (
            "devices",
            r#"{"name": "m", "kind": "memory", "size": "64MiB"}"#,
        ),
        (
            "devices",
            r#"{"name": "u", "kind": "open-channel", "size": "4GiB"}"#,
        ),
        (
            "devices",
            r#"{"name": "p", "kind": "partition", "partition": {"device": "u", "count": 2}}"#,
        ),
        (
            "pools",
            r#"{"name": "fast", "devices": ["m"], "kind": "mapped"}"#,
        ),
        (
            "tenants",
            r#"{"name": "db", "hosts": ["*"], "guarantee": {"read_iops": "1k"}}"#,
        ),
        (
            "volumes",
            r#"{"name": "v", "pool": "fast", "size": "4MiB", "tenant": "db", "compression": "lz4"}"#,
        ),
    ];
    let first: Vec<Value> = all
        .iter()
        .map(|(kind, body)| {
            let made = make(kind, body);
            assert_eq!(made.status, 201, "{body}: {}", made.view);
            made.view
        })
        .collect();
    let events = || {
        let told = ask(&target, "GET", "/events", "").view.to_string();
        told.matches(r#""kind":"changed""#).count()
    };
    let before = events();
    assert_eq!(before, all.len(), "each was made");
    for ((kind, body), first) in all.iter().zip(first) {
        let again = make(kind, body);
        assert_eq!(again.status, 200, "{body}: {}", again.view);
        for key in ["name", "uuid", "nqn", "nsid", "size"] {
            assert_eq!(again.view[key], first[key], "{key} of {body}");
        }
        let plain = ask(&target, "POST", &format!("/{kind}"), body);
        assert_eq!(
            (plain.status, &plain.view["code"]),
            (409, &"in_use".into()),
            "{body}"
        );
    }
    assert_eq!(events(), before, "nothing has changed");
    for (kind, body, differs) in [
        (
            "devices",
            r#"{"name": "m", "kind": "memory", "size": "32MiB"}"#,
            "size",
        ),
        (
            "devices",
            r#"{"name": "m", "kind": "memory", "size": "64MiB", "policy": "fifo"}"#,
            "policy",
        ),
        ("pools", r#"{"name": "fast", "devices": ["m"]}"#, "kind"),
        ("tenants", r#"{"name": "db", "hosts": ["*"]}"#, "guarantee"),
        (
            "tenants",
            r#"{"name": "db", "hosts": ["*"], "guarantee": {"read_iops": "2k"}}"#,
            "guarantee.read_iops",
        ),
        (
            "volumes",
            r#"{"name": "v", "pool": "fast", "size": "4MiB", "tenant": "db"}"#,
            "compression",
        ),
        (
            "volumes",
            r#"{"name": "v", "pool": "fast", "size": "8MiB", "tenant": "db", "compression": "lz4"}"#,
            "size",
        ),
        (
            "volumes",
            r#"{"name": "v", "pool": "fast", "size": "2MiB", "tenant": "db", "compression": "lz4"}"#,
            "do not shrink",
        ),
    ] {
        let other = make(kind, body);
        assert_eq!(
            (other.status, &other.view["code"]),
            (409, &"refused".into()),
            "{body}: {}",
            other.view
        );
        let detail = other.view["detail"].as_str().expect("a line");
        assert!(detail.contains(differs), "{body}: {detail}");
        assert!(
            detail.contains("is there already with other settings"),
            "{detail}"
        );
    }
}

/// The same of what is made several at a time.
#[test]
fn several_that_are_there_already_are_made_once() {
    let scratch = Scratch::new("api-again-several");
    let target = Target::start(&scratch, &[]);
    for name in ["x", "y", "m"] {
        let device = ["device", "create", name, "--kind", "memory"];
        target.json(&[&device[..], &["--size", "64MiB"]].concat());
    }
    target.json(&["pool", "create", "p", "--kind", "mapped", "--device", "m"]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    for name in ["v", "w"] {
        let volume = ["volume", "create", name, "--pool", "p", "--tenant", "db"];
        target.json(&[&volume[..], &["--size", "4MiB"]].concat());
    }
    let make =
        |kind: &str, body: &str| ask(&target, "POST", &format!("/{kind}?if_missing=true"), body);
    let array = |members: &str| {
        format!(
            r#"{{"of": {{"device": {{"name": "a", "kind": "array", "redundancy": "mirror", "devices": {members}}},
            "pool": {{"name": "a", "devices": ["a"]}}}}, "how": {{"force": false, "import": false, "degraded": false}}}}"#
        )
    };
    let both = r#"[{"volume": "v", "name": "s"}, {"volume": "w", "name": "s"}]"#;
    let one = r#"[{"name": "f", "tenant": "db"}]"#;
    let two = r#"[{"name": "f", "tenant": "db"}, {"name": "g", "tenant": "db"}]"#;
    for (kind, body, statuses) in [
        ("arrays", &*array(r#"["x", "y"]"#), [201, 200]),
        ("snapshots", both, [201, 200]),
        ("functions", one, [201, 200]),
        // One of them is there.
        ("functions", two, [201, 200]),
    ] {
        let answers = statuses.map(|status| {
            let made = make(kind, body);
            assert_eq!(made.status, status, "{body}: {}", made.view);
            made.view
        });
        let named = |view: &Value| {
            let rows = view.as_array().cloned();
            let rows = rows.unwrap_or_else(|| vec![view.clone()]).into_iter();
            rows.map(|row| row["name"].to_string()).collect::<Vec<_>>()
        };
        assert_eq!(named(&answers[0]), named(&answers[1]), "{body}");
        assert!(!named(&answers[0]).is_empty(), "{body}");
    }
    let gone = r#"[{"volume": "v", "name": "s"}, {"volume": "v", "name": "t"}]"#;
    for (kind, body, code) in [
        ("arrays", &*array(r#"["x", "m"]"#), "refused"),
        // Those that are missing would be of another moment.
        ("snapshots", gone, "in_use"),
    ] {
        let other = make(kind, body);
        assert_eq!(
            (other.status, &other.view["code"]),
            (409, &code.into()),
            "{}",
            other.view
        );
    }
}

/// What there may be much of comes in parts.
#[test]
fn status_traffic_and_activity_come_in_parts() {
    let scratch = Scratch::new("api-parts");
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device", "create", "m", "--kind", "memory", "--size", "64MiB",
    ]);
    target.json(&["pool", "create", "p", "--device", "m"]);
    for name in ["c", "a", "b"] {
        target.json(&["tenant", "create", name, "--host", "*"]);
        let volume = ["volume", "create", name, "--pool", "p", "--tenant", name];
        target.json(&[&volume[..], &["--size", "4MiB"]].concat());
    }
    let of_tenants = [
        ("status", "tenants"),
        ("traffic", "volumes"),
        ("activity", "tenants"),
    ];
    for (address, rows) in of_tenants {
        let ask = |query: &str| ask(&target, "GET", &format!("/{address}{query}"), "");
        let tenants = |view: &Value| {
            let mut names: Vec<String> = view[rows]
                .as_array()
                .expect("a list")
                .iter()
                .map(|row| row["tenant"].as_str().expect("a name").to_owned())
                .collect();
            names.sort();
            names
        };
        let all = ask("");
        assert_eq!(
            (tenants(&all.view), &all.next),
            (vec!["a".into(), "b".into(), "c".into()], &None)
        );
        let first = ask("?limit=2");
        assert_eq!(tenants(&first.view), ["a", "b"], "{address}");
        let next = first.next.expect("there is more");
        assert!(
            next.contains("after=b") && next.contains("limit=2"),
            "{next}"
        );
        let last = ask("?limit=2&after=b");
        assert_eq!(
            (tenants(&last.view), last.next),
            (vec!["c".to_owned()], None)
        );
        let wrong = ask("?limit=0");
        assert_eq!(
            (wrong.status, &wrong.view["code"]),
            (400, &"invalid".into())
        );
    }
    // The device of those that are shown.
    let all =
        ["a", "b", "c"].map(|name| ask(&target, "GET", &format!("/activity?after={name}"), ""));
    let devices = all.map(|part| part.view["devices"].as_array().map(Vec::len));
    assert_eq!(devices, [Some(1), Some(1), Some(0)]);
}
