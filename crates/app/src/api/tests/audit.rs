//! What is recorded of requests: who asked what, and what came of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use flashyard_testbed::Scratch;

use super::super::{AccessFiles, Api, SOCKET, Tcp};
use crate::audit::Audit;
use crate::control::{Asker, AuditAsk, AuditRecord, ErrorKind, Means, Request};
use crate::listening::Listening;

const READ: &str = "0123456789abcdef";
const ADMIN: &str = "fedcba9876543210";

/// Asks, and gives all that comes back.
fn say(mut stream: impl Read + Write, request: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

fn records(audit: &Audit) -> Vec<AuditRecord> {
    let records = audit.read(&AuditAsk::default());
    records.expect("they can be read").rows
}

fn tokens(directory: &Path) -> AccessFiles {
    let tokens = directory.join("tokens");
    fs::write(&tokens, format!("read {READ} ci\nadmin {ADMIN}\n")).expect("it is ours");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).expect("it is ours");
    AccessFiles { tokens, tls: None }
}

#[test]
fn whoever_changes_something_is_recorded_before_the_answer() {
    let directory = Scratch::new("audit");
    let tcp = Tcp::open(
        "127.0.0.1:0".parse().expect("one"),
        tokens(&directory),
        &Listening::default(),
    );
    let tcp = tcp.expect("it is free");
    let at = tcp.local().expect("it listens");
    let audit = Arc::new(Audit::open(&directory));
    let kept = Arc::clone(&audit);
    let api = Api::start(
        &directory,
        Some(tcp),
        kept,
        |request, _: &dyn Asker| match request {
            Request::RenameVolume { .. } => Err("it may not be".to_owned()),
            Request::DeleteFunction { .. } => panic!("a defect"),
            _ => Ok(7_u32),
        },
    );
    let _api = api.expect("it listens");
    let here = || UnixStream::connect(directory.join(SOCKET)).expect("it listens");
    let there = || TcpStream::connect(at).expect("it listens");
    let bearer = |token| format!("Authorization: Bearer {token}\r\n");
    let stream = "Accept: text/event-stream\r\n";
    let pool = r#"{"name":"p","devices":["d"],"kind":"mapped","key":"file:/a/secret"}"#;

    say(here(), "GET /api/v1/status", "", "");
    assert_eq!(records(&audit), [], "who only looks is not recorded");
    say(here(), "POST /api/v1/pools?force=true", "", pool);
    say(there(), "DELETE /api/v1/pools/p", &bearer(READ), "");
    say(
        there(),
        "GET /api/v1/status",
        &bearer("0000000000000000"),
        "",
    );
    say(there(), "DELETE /api/v1/volumes/%1bv", &bearer(ADMIN), "");
    say(here(), "POST /api/v1/pools", "", "{\"name\":");
    say(here(), "PUT /api/v1/volumes/v/name", "", r#"{"new":"w"}"#);
    say(here(), "DELETE /api/v1/functions/f", "", "");
    say(here(), "POST /api/v1/devices/d/calibration", stream, "");

    let records = records(&audit);
    let numbers: Vec<u64> = records.iter().map(|record| record.number).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
    let user = &records[0].who;
    assert!(!user.is_empty() && records[0].uid.is_some());
    let unnamed = &records[3].who;
    assert!(unnamed.starts_with("sha256:"), "{unnamed}");
    let expected = [
        (
            Means::Socket,
            &**user,
            "POST /pools?force=true",
            "pool p",
            None,
        ),
        (
            Means::Token,
            "ci",
            "DELETE /pools/{name}",
            "/pools/p",
            Some(ErrorKind::Forbidden),
        ),
        (
            Means::Nobody,
            "",
            "GET /status",
            "/status",
            Some(ErrorKind::Forbidden),
        ),
        (
            Means::Token,
            unnamed,
            "DELETE /volumes/{name}",
            "volume ?v",
            None,
        ),
        (
            Means::Socket,
            user,
            "POST /pools",
            "/pools",
            Some(ErrorKind::Invalid),
        ),
        (
            Means::Socket,
            user,
            "PUT /volumes/{name}/name",
            "volume v",
            Some(ErrorKind::Refused),
        ),
        (
            Means::Socket,
            user,
            "DELETE /functions/{name}",
            "function f",
            Some(ErrorKind::Internal),
        ),
        (
            Means::Socket,
            user,
            "POST /devices/{name}/calibration",
            "device d",
            None,
        ),
    ];
    let short: Vec<_> = records
        .iter()
        .map(|record| {
            let AuditRecord {
                by,
                who,
                operation,
                object,
                code,
                ..
            } = record;
            (*by, &**who, &**operation, &**object, *code)
        })
        .collect();
    assert_eq!(short, expected);
    assert_eq!(records[0].from, SOCKET);
    assert!(records[1].from.starts_with("127.0.0.1:"));
    assert_eq!(records[5].detail, "it may not be");
    let kept = fs::read_to_string(directory.join("audit.log")).expect("it is there");
    for secret in ["/a/secret", READ, ADMIN, "0000000000000000"] {
        assert!(!kept.contains(secret), "{kept}");
    }
}

/// The browser of somebody whose certificate or proxy lets them in asks nothing for other pages;
/// those of the target itself, and programs, are served.
#[test]
fn a_page_from_elsewhere_changes_nothing() {
    let directory = Scratch::new("origin");
    let any = "127.0.0.1:0".parse().expect("one");
    let tcp = Tcp::open(any, tokens(&directory), &Listening::default()).expect("it is free");
    let at = tcp.local().expect("it listens");
    let audit = Arc::new(Audit::open(&directory));
    let api = Api::start(
        &directory,
        Some(tcp),
        Arc::clone(&audit),
        |_, _: &dyn Asker| Ok::<u32, String>(7),
    );
    let _api = api.expect("it listens");
    let bearer = format!("Authorization: Bearer {ADMIN}\r\n");
    let mut denied = 0;
    // None of these has a body, so no type of content gives them away.
    for request in [
        "POST /api/v1/volumes/v/snapshots/s/restore",
        "POST /api/v1/devices/d/calibration?destroy=true",
        "DELETE /api/v1/pools/p",
    ] {
        for (headers, status) in [
            ("", 200),
            ("Origin: http://localhost\r\n", 200),
            (
                "Origin: https://LOCALHOST\r\nSec-Fetch-Site: same-origin\r\n",
                200,
            ),
            ("Sec-Fetch-Site: none\r\n", 200),
            ("Origin: https://evil.example\r\n", 403),
            ("Origin: http://localhost:81\r\n", 403),
            ("Origin: http://localhost.evil.example\r\n", 403),
            ("Origin: null\r\n", 403),
            ("Sec-Fetch-Site: cross-site\r\n", 403),
            ("Sec-Fetch-Site: same-site\r\n", 403),
            (
                "Origin: http://localhost\r\nOrigin: https://evil.example\r\n",
                403,
            ),
        ] {
            let here = UnixStream::connect(directory.join(SOCKET)).expect("it listens");
            let there = || TcpStream::connect(at).expect("it listens");
            let answers = [
                say(here, request, headers, ""),
                say(there(), request, &format!("{bearer}{headers}"), ""),
            ];
            for answer in answers {
                let said = format!("HTTP/1.1 {status} ");
                assert!(answer.starts_with(&said), "{request} {headers}: {answer}");
            }
            let nobody = say(there(), request, headers, "");
            assert!(nobody.starts_with("HTTP/1.1 403 "), "{nobody}");
            denied += if status == 403 { 2 } else { 0 };
        }
    }
    // Whoever only looks may come from anywhere.
    let other = "Origin: https://evil.example\r\n";
    let here = UnixStream::connect(directory.join(SOCKET)).expect("it listens");
    assert!(say(here, "GET /api/v1/status", other, "").starts_with("HTTP/1.1 200 "));
    let records = records(&audit);
    let of_pages = records.iter().filter(|it| it.detail.contains("Sec-Fetch"));
    assert!(of_pages.clone().count() > 0 && of_pages.count() <= denied);
}

/// Whatever is wrong with a body, nothing of it that may be a secret is in the log: not as what was
/// asked, and not in what the error says of it.
#[test]
fn no_error_has_a_secret_recorded() {
    let directory = Scratch::new("audit-secrets");
    let audit = Arc::new(Audit::open(&directory));
    let kept = Arc::clone(&audit);
    let api = Api::start(&directory, None, kept, |request, _: &dyn Asker| {
        let (Request::Rekey { key, .. } | Request::RekeyPool(_, key)) = request else {
            return Ok(7_u32);
        };
        // As it is when a device cannot be had.
        let secret = key.0.fetch().err();
        Err(secret.map_or_else(|| "no".to_owned(), |error| error.to_string()))
    });
    let _api = api.expect("it listens");
    let bodies = [
        r#"{"key":"hunter2"}"#,
        r#"{"key":"passphrase:hunter2"}"#,
        r#"{"key":"hun\"ter2"}"#,
        r#"{"key":{"hunter2":"hunter2"}}"#,
        r#"{"key":["hunter2"]}"#,
        r#"{"key":4815162342}"#,
        r#"{"key":4815162342,"#,
        r#"{"key":"file:hunter2"}"#,
        r#"{"key":"command:hunter2"}"#,
        r#"{"key":"command:/bin/false --password hunter2"}"#,
        r#"{"key":"command:sh -c echo${IFS}hunter2>&2;exit${IFS}1"}"#,
    ];
    for body in bodies {
        for target in ["/pools/p/key", "/devices/d/key"] {
            let here = UnixStream::connect(directory.join(SOCKET)).expect("it listens");
            let answer = say(here, &format!("PUT /api/v1{target}"), "", body);
            assert!(!answer.starts_with("HTTP/1.1 200"), "{body}: {answer}");
        }
    }
    let kept = fs::read_to_string(directory.join("audit.log")).expect("it is there");
    assert_eq!(kept.lines().count(), 2 * bodies.len());
    for secret in ["hunter2", "hun\"ter2", "hun\\", "4815162342"] {
        assert!(!kept.contains(secret), "{kept}");
    }
}
