//! The socket under clients of every kind.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use flashyard_testbed::Scratch;

use super::super::operations::OPERATIONS;
use super::super::serve::BODY_BYTES_MAX;
use super::super::slots::Slots;
use super::super::{AccessFiles, Api, AskError, Place, SOCKET, Tcp, ask, ask_and_follow};
use crate::audit::Audit;
use crate::control::{
    Asker, Destination, ErrorKind, HasKind, KindName, Page, Progress, Request, Shows,
};
use crate::listening::Listening;

const STATUS: &str = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn place(state: &Path) -> Place {
    Place::State(state.to_owned())
}

/// What a user would read, asked whether the target runs: nothing if it answers as it should.
fn status(state: &Path) -> String {
    match ask::<u32>(&place(state), &Request::Status(Page::default())) {
        Ok(answer) => {
            assert_eq!(answer, 7);
            String::new()
        }
        Err(error) => error.to_string(),
    }
}

/// An API of its own for a test, and what it has executed.
pub(super) struct Rig {
    _api: Api,
    directory: Scratch,
    executed: Arc<AtomicUsize>,
}

impl Rig {
    pub(super) fn start(name: &str, serve: impl Fn(&Request) + Send + Sync + 'static) -> Self {
        let directory = Scratch::new(name);
        let executed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&executed);
        let audit = Arc::new(Audit::open(&directory));
        let api = Api::start(&directory, None, audit, move |request, _: &dyn Asker| {
            count.fetch_add(1, Ordering::SeqCst);
            serve(&request);
            Ok::<u32, String>(7)
        });
        Self {
            _api: api.expect("it listens"),
            directory,
            executed,
        }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.join(SOCKET)).expect("it listens")
    }

    /// Sends bytes and nothing more, and gives all that comes back.
    pub(super) fn tell(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The target may close before it has all of it.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        rest(&stream)
    }

    /// Sends a request that is the last one of its connection, and gives the answer. Who closes its
    /// half, as [`Rig::tell`] does, may be taken for one who has gone before the answer is there.
    pub(super) fn request(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("it is read");
        rest(&stream)
    }

    pub(super) fn executed(&self) -> usize {
        self.executed.load(Ordering::SeqCst)
    }
}

impl Shows for u32 {}

impl HasKind for String {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }
}

/// All that comes until the end. A close may cut off what the client was still sending.
fn rest(stream: &UnixStream) -> String {
    let mut rest = Vec::new();
    let mut reader = stream;
    let end = reader.read_to_end(&mut rest);
    let broken = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    assert!(end.is_ok() || end.is_err_and(|error| broken.contains(&error.kind())));
    String::from_utf8(rest).expect("text")
}

/// The body of an answer that has one line.
fn body(stream: &UnixStream) -> String {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("it answers") > 0);
        if line == "\r\n" {
            break;
        }
    }
    let mut line = String::new();
    assert!(reader.read_line(&mut line).expect("it has a body") > 0);
    line
}

fn post(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes = format!(
        "POST /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

const POOL: &[u8] = br#"{"name":"p","devices":["d"]}"#;

/// A body that is too long is refused, and one that is as long as it may be is not.
#[test]
fn a_body_that_is_too_long_is_not_executed() {
    let rig = Rig::start("long", |_| {});
    let mut text = vec![b' '; BODY_BYTES_MAX];
    text[..POOL.len()].copy_from_slice(POOL);
    let mut stream = rig.connect();
    stream
        .write_all(&post("/pools", "application/json", &text))
        .expect("it reads");
    assert_eq!(body(&stream), "7\n");
    assert_eq!(rig.executed(), 1);

    text.push(b' ');
    let refused = rig.tell(&post("/pools", "application/json", &text));
    assert!(
        refused.is_empty() || refused.contains("at most 16 MiB"),
        "{refused}"
    );
    let long = Request::Rekey {
        name: "p".into(),
        key: format!("file:/{}", "k".repeat(BODY_BYTES_MAX))
            .parse()
            .expect("a key"),
    };
    let refused = ask::<u32>(&place(&rig.directory), &long);
    let refused = refused.expect_err("too long").to_string();
    assert!(refused.contains("at most 16 MiB"), "{refused}");
    assert_eq!(rig.executed(), 1);
}

/// Half a request, bytes that are no text, and what a web page could send are not executed.
#[test]
fn what_is_no_request_is_not_executed() {
    let rig = Rig::start("cut", |_| {});
    let half = post("/pools", "application/json", POOL);
    let cut = rig.tell(&half[..half.len() - 1]);
    assert!(cut.is_empty() || cut.contains("cut off"), "{cut}");
    assert_eq!(rig.tell(&STATUS.as_bytes()[..20]), "");
    assert!(rig.tell(b"\xff\xfe\r\n\r\n").contains("400 Bad Request"));
    for (kind, bytes, said) in [
        (
            "application/json",
            &b"{\xff"[..],
            "the body is not understood",
        ),
        ("text/plain", POOL, "415 Unsupported Media Type"),
        (
            "application/x-www-form-urlencoded",
            POOL,
            "send `Content-Type: application/json`",
        ),
    ] {
        let mut stream = rig.connect();
        stream
            .write_all(&post("/pools", kind, bytes))
            .expect("it reads");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let answer = rest(&stream);
        assert!(answer.is_empty() || answer.contains(said), "{answer}");
    }
    assert_eq!(rig.executed(), 0);
}

/// Whoever looks around finds what can be asked.
#[test]
fn all_operations_are_listed() {
    let rig = Rig::start("index", |_| {});
    let mut stream = rig.connect();
    let text = "GET /api/v1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(text.as_bytes()).expect("it reads");
    let all: serde_json::Value = serde_json::from_str(&body(&stream)).expect("JSON");
    let all = all.as_array().expect("a list");
    assert_eq!(all.len(), OPERATIONS.len());
    assert!(all.iter().any(|one| {
        one["method"] == "POST" && one["path"] == "/pools" && one["query"][0] == "force"
    }));
}

/// What is not there is told as a problem that programs can read.
#[test]
fn what_is_not_there_is_told() {
    let rig = Rig::start("absent", |_| {});
    for (asked, status) in [
        ("GET /api/v1/pool", 404),
        ("PUT /api/v1/pools", 405),
        ("GET /dashboard", 404),
    ] {
        let mut stream = rig.connect();
        let text = format!("{asked} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(text.as_bytes()).expect("it reads");
        let problem: serde_json::Value = serde_json::from_str(&body(&stream)).expect("JSON");
        assert_eq!(problem["code"], "not_found");
        assert_eq!(problem["status"], status);
        let detail = problem["detail"].as_str().expect("it says why");
        assert!(detail.contains(asked), "{detail}");
    }
    assert_eq!(rig.executed(), 0);
}

/// Those who ask nothing, or half of something, make room for those who do, oldest first.
#[test]
fn idle_connections_never_keep_others_out() {
    let rig = Rig::start("idle", |_| {});
    let idle: Vec<UnixStream> = (0..3 * Slots::MOST)
        .map(|place| {
            let mut stream = rig.connect();
            if place % 2 == 0 {
                stream.write_all(b"GET /api").expect("it reads");
            }
            stream
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(status(&rig.directory), "");
    }
    assert_eq!(rest(&idle[0]), "", "the oldest has gone");
    let mut newest = idle.last().expect("there are some");
    newest.write_all(STATUS.as_bytes()).expect("it is open");
    assert_eq!(body(newest), "7\n");
    assert_eq!(rig.executed(), 4);
}

/// A request at work keeps its connection, whoever comes; when there is no room at all, that is
/// told.
#[test]
fn who_is_served_is_not_dropped() {
    let (arrived, arrivals) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = Mutex::new(may_go);
    let rig = Rig::start("served", move |_| {
        arrived.send(()).expect("the test waits");
        // The test lets all of them go by ending.
        let _ = may_go.lock().expect("none panics").recv();
    });
    let working: Vec<UnixStream> = (0..Slots::MOST)
        .map(|_| {
            let mut stream = rig.connect();
            stream.write_all(STATUS.as_bytes()).expect("it reads");
            arrivals.recv().expect("it is served");
            stream
        })
        .collect();
    let mut late = rig.connect();
    late.write_all(STATUS.as_bytes()).expect("it reads");
    let answer = body(&late);
    assert!(answer.contains("ask again in a moment"), "{answer}");
    drop(go);
    for stream in &working {
        assert_eq!(body(stream), "7\n");
    }
    assert_eq!(rig.executed(), Slots::MOST);
}

/// A command that takes long hears that its client has gone, and tells one that stays how far it
/// is.
#[test]
fn who_is_followed_tells_and_hears() {
    let directory = Scratch::new("followed");
    let (gone, has_gone) = mpsc::channel();
    let _api = Api::start(
        &directory,
        None,
        Arc::new(Audit::none()),
        move |request, asker: &dyn Asker| match request {
            Request::Calibrate { progress, .. } => {
                assert!(progress);
                (1..=3).for_each(|done| asker.tell(Progress { done, of: 3 }));
                Ok(7)
            }
            Request::Status(_) => {
                while !asker.is_gone() {
                    thread::yield_now();
                }
                gone.send(()).expect("the test waits");
                Ok(7)
            }
            _ => Err("no".to_owned()),
        },
    )
    .expect("it listens");
    let mut seen = Vec::new();
    let calibrate = Request::Calibrate {
        device: "d".into(),
        destroy: false,
        progress: true,
    };
    let answer: Result<u32, _> = ask_and_follow(&place(&directory), &calibrate, |progress| {
        seen.push(progress.done)
    });
    assert_eq!(answer.expect("it was done"), 7);
    assert_eq!(seen, [1, 2, 3]);

    let mut stream = UnixStream::connect(directory.join(SOCKET)).expect("it listens");
    stream.write_all(STATUS.as_bytes()).expect("it reads");
    drop(stream);
    has_gone.recv().expect("it has heard");

    let refused = Request::MigrateVolume {
        name: "v".into(),
        to: Destination::Pool("p".into()),
        background: false,
        force: false,
        progress: true,
    };
    let refused = ask_and_follow::<u32>(&place(&directory), &refused, |_| {});
    let Err(AskError::Refused(problem)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((problem.code, problem.status), (ErrorKind::Refused, 409));
}

#[test]
fn a_target_that_dies_before_it_answers_is_told() {
    let directory = Scratch::new("dies");
    let socket = UnixListener::bind(directory.join(SOCKET)).expect("it is free");
    let dies = thread::spawn(move || {
        let (stream, _) = socket.accept().expect("it is asked");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)
    });
    let fault = status(&directory);
    assert!(fault.contains("went away in the middle"), "{fault}");
    assert!(dies.join().expect("it ended").is_ok());
}

#[test]
fn a_request_is_answered_until_the_target_has_gone() {
    let directory = Scratch::new("api");
    let audit = Arc::new(Audit::none());
    let api = Api::start(
        &directory,
        None,
        audit,
        |request, _: &dyn Asker| match request {
            Request::Status(_) => Ok(7_u32),
            other => Err(format!("{other:?}")),
        },
    )
    .expect("it listens");
    assert_eq!(status(&directory), "");
    let refused = ask::<u32>(
        &place(&directory),
        &Request::List(KindName::Pool, Page::default()),
    );
    let refused = refused.expect_err("an error comes as one").to_string();
    assert!(refused.contains("Pool"), "{refused}");
    drop(api);
    let gone = status(&directory);
    assert!(gone.contains("flashyard serve"), "{gone}");
}

/// Over TCP a token says who may ask what; nobody else is answered.
#[test]
fn over_tcp_a_token_is_needed() {
    let directory = Scratch::new("tcp");
    let tokens = directory.join("tokens");
    fs::write(&tokens, "read 0123456789abcdef\nadmin fedcba9876543210\n").expect("it is ours");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let outside = "192.0.2.1:0".parse().expect("an address");
    let files = AccessFiles { tokens, tls: None };
    let listening = Listening::default();
    let refused = Tcp::open(outside, files.clone(), &listening).expect_err("it is not encrypted");
    assert!(refused.to_string().contains("--api-cert"), "{refused}");
    let any = "127.0.0.1:0".parse().expect("an address");
    let address = Tcp::open(any, files, &listening).expect("it is free");
    let at = address.local().expect("it has one");
    let audit = Arc::new(Audit::none());
    let _api = Api::start(&directory, Some(address), audit, |_, _: &dyn Asker| {
        Ok::<u32, String>(7)
    })
    .expect("it listens");
    let asked = |request: &str, token: &str| {
        let mut stream = TcpStream::connect(at).expect("it listens");
        let text =
            format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n");
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let reader = "Authorization: Bearer 0123456789abcdef\r\n";
    let admin = "Authorization: Bearer fedcba9876543210\r\n";
    for (request, token, said) in [
        ("GET /api/v1/status", "", "403 Forbidden"),
        (
            "GET /api/v1/status",
            "Authorization: Bearer 0\r\n",
            "a token is needed",
        ),
        ("GET /api/v1/status", reader, "200 OK"),
        ("DELETE /api/v1/pools/p", reader, "the role `admin`"),
        ("DELETE /api/v1/volumes/v", reader, "the role `operate`"),
        ("DELETE /api/v1/pools/p", admin, "200 OK"),
    ] {
        let answer = asked(request, token);
        assert!(answer.contains(said), "{request}: {answer}");
    }
    // The socket of the owner needs none.
    assert_eq!(status(&directory), "");
}

/// When it is read anew who gets in, whoever follows events over TCP hears none any more and comes
/// again; the owner of the socket goes on.
#[test]
fn who_follows_events_comes_again_when_tokens_are_read_anew() {
    let directory = Scratch::new("revoked");
    let tokens = directory.join("tokens");
    fs::write(&tokens, "read 0123456789abcdef\n").expect("it is ours");
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let any = "127.0.0.1:0".parse().expect("an address");
    let files = AccessFiles {
        tokens: tokens.clone(),
        tls: None,
    };
    let address = Tcp::open(any, files, &Listening::default()).expect("it is free");
    let (at, renewal) = (address.local().expect("it has one"), address.renewal());
    let (sent, was_sent) = mpsc::channel();
    let audit = Arc::new(Audit::none());
    let api = Api::start(
        &directory,
        Some(address),
        audit,
        move |_, asker: &dyn Asker| {
            while asker.send(None) {
                // The test need not wait any more.
                let _ = sent.send(());
            }
            Ok::<u32, String>(7)
        },
    );
    let _api = api.expect("it listens");
    let get = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n";
    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    let mut there = TcpStream::connect(at).expect("it listens");
    there
        .write_all(format!("{get}{token}\r\n").as_bytes())
        .expect("it reads");
    was_sent.recv().expect("it follows");
    fs::write(&tokens, "read fedcba9876543210\n").expect("it is ours");
    renewal.renew().expect("the file is good");
    let mut all = String::new();
    there.read_to_string(&mut all).expect("it ends in order");
    assert!(all.starts_with("HTTP/1.1 200 OK"), "{all}");
    // Nothing is left of what it was sent before it ended.
    while was_sent.try_recv().is_ok() {}

    let mut here = UnixStream::connect(directory.join(SOCKET)).expect("it listens");
    here.write_all(format!("{get}\r\n").as_bytes())
        .expect("it reads");
    was_sent.recv().expect("it follows");
    renewal.renew().expect("the file is good");
    let mut some = [0; 4096];
    for _ in 0..100 {
        assert!(here.read(&mut some).expect("it goes on") > 0);
    }
}
