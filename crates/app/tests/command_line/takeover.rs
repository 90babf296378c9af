//! One process takes over from another: connections wait meanwhile, and are not refused. Who cannot
//! start takes nothing, and whoever is killed at whatever step leaves a state that starts.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, answer, expect_failure, names, path, serve};

/// A tenant with a volume that survives its target.
fn with_volume(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    let image = scratch.join("disk.img");
    let device = ["device", "create", "disk", "--kind", "file"];
    target.json(&[&device[..], &["--path", path(&image), "--size", "64MiB"]].concat());
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let volume = ["volume", "create", "v", "--device", "disk"];
    target.json(&[&volume[..], &["--tenant", "db"]].concat());
    target
}

/// The same target as another process, at the same address.
fn successor(scratch: &Scratch, address: &str, more: &[&str]) -> Command {
    serve(scratch, &[&["--listen", address][..], more].concat())
}

fn takes_over(scratch: &Scratch, address: &str) -> Target {
    let mut command = successor(scratch, address, &["--take-over"]);
    Target::of(scratch, &mut command)
}

/// A take-over that must fail.
fn fails(mut command: Command, why: &str) {
    let output = command.output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(last.contains(why), "`{why}` is not in: {error}");
}

fn still_serves(target: &mut Target) {
    assert!(target.child.try_wait().expect("it is ours").is_none());
    let volume = target.json(&["volume", "show", "v"]);
    assert_eq!(volume["state"], "online", "{volume}");
    discover(&target.address);
}

/// A host that connects, and is answered.
fn discover(address: &str) {
    let output = Command::new(PROGRAM)
        .args(["discover", "--json", "--connect", address])
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{output:?}");
}

fn send_signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status();
    assert!(sent.expect("kill exists").success());
}

/// Stops all threads of a process.
fn stop(child: &Child) {
    send_signal(child, "-STOP");
    let threads = format!("/proc/{}/task", child.id());
    let runs = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        !stat.contains(") T ")
    };
    while fs::read_dir(&threads).expect("it runs").flatten().any(runs) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Connects again and again while `meanwhile` runs; how often it was refused, and how often not.
fn connecting<T>(address: &str, meanwhile: impl FnOnce() -> T) -> (T, u64, u64) {
    let (over, refused, taken) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let address: SocketAddr = address.parse().expect("an address");
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                match TcpStream::connect(address) {
                    Ok(_) => taken.fetch_add(1, Ordering::Relaxed),
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        refused.fetch_add(1, Ordering::Relaxed)
                    }
                    Err(_) => 0,
                };
                thread::sleep(Duration::from_millis(2));
            }
        });
        let done = meanwhile();
        over.store(true, Ordering::Release);
        done
    });
    (done, refused.into_inner(), taken.into_inner())
}

/// Another target whose device is the volume, as a host that connects again by itself, and a load
/// on it that verifies what it reads.
fn load(host: &Target, target: &Target) -> Child {
    let device = [
        "device", "create", "far", "--kind", "nvme-tcp", "--nsid", "1",
    ];
    let subnqn = "nqn.2026-11.dev.flashyard:db";
    host.json(
        &[
            &device[..],
            &["--address", &target.address, "--subnqn", subnqn],
        ]
        .concat(),
    );
    host.json(&["tenant", "create", "db", "--host", "*"]);
    let volume = ["volume", "create", "v", "--device", "far", "--keep"];
    host.json(&[&volume[..], &["--tenant", "db"]].concat());
    Command::new(PROGRAM)
        .args([
            "perf",
            "--connect",
            &host.address,
            "--subnqn",
            subnqn,
            "--json",
        ])
        .args(["--rw", "randrw", "--bs", "4KiB", "--qd", "4", "--verify"])
        .args(["--seconds", "3600", "--warmup", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn answered(host: &Target) -> u64 {
    let tenant = &host.json(&["status"])["tenants"][0];
    tenant["reads"].as_u64().unwrap_or(0)
}

fn until_more_is_answered(host: &Target) {
    let before = answered(host);
    while answered(host) == before {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn hosts_wait_and_are_not_refused() {
    let scratches = [Scratch::new("takeover"), Scratch::new("takeover-host")];
    let mut target = with_volume(&scratches[0]);
    let host = Target::start(&scratches[1], &[]);
    let perf = load(&host, &target);
    until_more_is_answered(&host);
    for _ in 0..2 {
        let address = target.address.clone();
        let (next, refused, taken) = connecting(&address, || {
            let next = takes_over(&scratches[0], &address);
            until_more_is_answered(&host);
            next
        });
        assert_eq!(next.address, address);
        let ended = target.child.wait().expect("it was ours");
        assert_eq!(ended.code(), Some(0), "in good order");
        assert_eq!(refused, 0, "of {taken} others");
        assert!(taken > 0);
        target = next;
    }
    send_signal(&perf, "-INT");
    let output = perf.wait_with_output().expect("it was ours");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one report");
    assert_eq!(report["errors"], 0, "{report}");
    let status = target.json(&["status"]);
    assert_eq!(status["target"]["ended_unsafely"], 0, "{status}");
    assert_eq!(status["target"]["starts"], 3, "{status}");
}

/// Where a database of SQLite has the version of its tables.
const VERSION_AT: usize = 60 + 3;

#[test]
fn who_cannot_start_takes_nothing() {
    let scratch = Scratch::new("takeover-cannot");
    let mut target = with_volume(&scratch);
    let address = target.address.clone();

    let wrong = scratch.file("wrong.toml", "[[pool]]\nnmae = \"fast\"\n");
    let wrong = ["--take-over", "--config", path(&wrong)];
    fails(successor(&scratch, &address, &wrong), "line 2");
    still_serves(&mut target);

    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let other = held.local_addr().expect("it has one").to_string();
    let more = ["--take-over", "--listen", &other];
    fails(successor(&scratch, &address, &more), &other);
    still_serves(&mut target);
    drop(held);

    let store = scratch.join("state/state.db");
    let sound = fs::read(&store).expect("it is there");
    let mut newer = sound.clone();
    newer[VERSION_AT] += 1;
    let mut damaged = sound.clone();
    let at = sound.windows(8).rposition(|it| it == b"disk.img");
    damaged[at.expect("the record")] = b'D';
    for (content, why) in [(newer, "use a newer flashyard"), (damaged, "is damaged")] {
        fs::write(&store, &content).expect("it is ours");
        for how in ["--take-over", "--check"] {
            fails(successor(&scratch, &address, &[how]), why);
            assert!(fs::read(&store).expect("it is there") == content);
        }
        fs::write(&store, &sound).expect("it is ours");
        still_serves(&mut target);
    }
    let next = takes_over(&scratch, &address);
    assert_eq!(names(&next.json(&["volume", "list"])), ["v"]);
}

/// A check says what a start would do, and does nothing of it.
#[test]
fn a_check_changes_nothing() {
    let scratch = Scratch::new("check-start");
    let check = |more: &[&str]| -> Output {
        let mut command = serve(&scratch, &[&["--check"][..], more].concat());
        command.output().expect("the program starts")
    };
    let listen = ["--listen", "127.0.0.1:4420", "--json"];
    let output = check(&listen);
    assert_eq!(answer(&output), Value::from(vec!["127.0.0.1:4420"]));
    assert!(!scratch.join("state").exists(), "nothing was made");
    let mut target = with_volume(&scratch);
    let output = check(&["--listen", &target.address, "--json"]);
    assert_eq!(answer(&output), Value::from(vec![target.address.clone()]));
    still_serves(&mut target);
    let file = scratch.file(
        "f.toml",
        "[target]\nlisten = [\"127.0.0.1:0\", \"[::1]:0\"]\n",
    );
    let output = Command::new(PROGRAM)
        .args(["serve", "--check", "--config", path(&file), "--state"])
        .arg(&target.state)
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("127.0.0.1:0, [::1]:0"), "{said}");
    let tokens = ["--api", "127.0.0.1:0", "--api-tokens", "/nowhere/tokens"];
    expect_failure(&check(&tokens), 1, "/nowhere/tokens");
}

/// The other end of a take-over, which does only what a test wants.
struct Packets(UnixStream);

impl Packets {
    fn at(state: &Path) -> (OwnedFd, SocketAddrUnix) {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let address = SocketAddrUnix::new(state.join("takeover.sock"));
        (socket.expect("a socket"), address.expect("a short path"))
    }

    /// As a successor.
    fn to(target: &Target) -> Self {
        let (socket, address) = Self::at(&target.state);
        connect(&socket, &address).expect("it waits for one");
        Self(UnixStream::from(socket))
    }

    fn say(&self, message: &[u8], files: &[&TcpListener]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = files.iter().map(|it| it.as_fd()).collect();
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        }
        let parts = [IoSlice::new(message)];
        sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL).expect("it is there");
    }

    fn hear(&self) -> (Vec<u8>, Vec<OwnedFd>) {
        receive(&self.0)
    }
}

/// The next message, and its files.
fn receive(socket: impl AsFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut message = [0; 4096];
    let parts = &mut [IoSliceMut::new(&mut message)];
    let received = recvmsg(socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC);
    let bytes = received.expect("a message").bytes;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            files.extend(more);
        }
    }
    (message[..bytes].to_vec(), files)
}

#[test]
fn a_successor_may_be_killed_at_any_step() {
    let scratch = Scratch::new("takeover-killed");
    let mut target = with_volume(&scratch);
    let address = target.address.clone();
    // It has the sockets.
    let successor = Packets::to(&target);
    let (hello, files) = successor.hear();
    assert!(String::from_utf8_lossy(&hello).contains(env!("CARGO_PKG_VERSION")));
    assert_eq!(files.len(), 1);
    drop((successor, files));
    still_serves(&mut target);

    // It says something else.
    let successor = Packets::to(&target);
    successor.hear();
    successor.say(b"begin", &[]);
    assert_eq!(successor.hear().0, b"");
    still_serves(&mut target);

    // It has asked for the end, and has gone when the target hears of it.
    let successor = Packets::to(&target);
    successor.hear();
    stop(&target.child);
    successor.say(b"end", &[]);
    drop(successor);
    send_signal(&target.child, "-CONT");
    still_serves(&mut target);

    // It is killed while it waits for the end, which comes, and leaves a state that starts.
    let successor = Packets::to(&target);
    successor.hear();
    successor.say(b"end", &[]);
    assert_eq!(successor.hear().0, b"ending");
    drop(successor);
    assert_eq!(target.child.wait().expect("it was ours").code(), Some(0));
    let mut next = takes_over(&scratch, &address);
    still_serves(&mut next);
}

/// The target is killed when it has given its sockets away: its successor starts nevertheless, and
/// closes what it has no use for.
#[test]
fn the_target_may_be_killed_before_it_ends() {
    let scratch = Scratch::new("takeover-died");
    let target = with_volume(&scratch);
    let state = target.state.clone();
    target.kill();
    let (socket, address) = Packets::at(&state);
    fs::remove_file(state.join("takeover.sock")).expect("it was left");
    bind(&socket, &address).expect("the name is free");
    listen(&socket, 1).expect("it is bound");
    let waiting = UnixListener::from(socket);

    let [wanted, unwanted] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("free"));
    let [at, elsewhere] =
        [&wanted, &unwanted].map(|it| it.local_addr().expect("it has one").to_string());
    let log = scratch.join("log");
    let mut command = successor(&scratch, &at, &["--take-over"]);
    command.stderr(fs::File::create(&log).expect("it is ours"));
    let dies = thread::spawn(move || {
        let (connection, _) = waiting.accept().expect("it comes");
        let connection = Packets(connection);
        connection.say(b"{\"version\":\"0.0.1\",\"more\":1}", &[&wanted, &unwanted]);
        assert_eq!(connection.hear().0, b"end");
    });
    let mut next = Target::of(&scratch, &mut command);
    dies.join().expect("it has done its part");
    still_serves(&mut next);
    let said = fs::read_to_string(&log).expect("it is ours");
    assert!(said.contains(&format!("listens at {elsewhere}")), "{said}");
    let gone = TcpStream::connect(&elsewhere).expect_err("it is closed");
    assert_eq!(gone.kind(), io::ErrorKind::ConnectionRefused);
}

/// A service manager that keeps what it is given.
struct Keeper {
    socket: UnixDatagram,
    name: PathBuf,
}

impl Keeper {
    fn new(scratch: &Scratch) -> Self {
        let name = scratch.join("notify");
        let socket = UnixDatagram::bind(&name).expect("a socket of this test");
        let patience = Some(Duration::from_mins(2));
        socket.set_read_timeout(patience).expect("it can wait");
        Self { socket, name }
    }

    /// What it keeps when the target says `last`.
    fn keeps(&self, last: &str) -> Vec<(String, OwnedFd)> {
        let mut kept: Vec<(String, OwnedFd)> = Vec::new();
        loop {
            let (message, files) = receive(&self.socket);
            let message = String::from_utf8(message).expect("text");
            let name = message.split("FDNAME=").nth(1).unwrap_or_default();
            if message.starts_with("FDSTOREREMOVE=1\n") {
                kept.retain(|(of, _)| of != name);
            } else if message.starts_with("FDSTORE=1\n") {
                kept.extend(files.into_iter().map(|file| (name.to_owned(), file)));
            } else if message.starts_with(last) {
                return kept;
            }
        }
    }

    /// Starts a target that has been given a socket.
    fn starts(&self, scratch: &Scratch, given: Option<OwnedFd>, more: &[&str]) -> Target {
        let target = serve(scratch, more);
        let mut command = Command::new("sh");
        if let Some(given) = given {
            let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\"";
            command.args(["-c", script, "sh"]).stdin(Stdio::from(given));
        } else {
            command.args(["-c", "exec \"$@\"", "sh"]);
        }
        command.arg(target.get_program()).args(target.get_args());
        command.env("NOTIFY_SOCKET", &self.name);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Target::of(scratch, &mut command)
    }
}

fn listens_at(file: &OwnedFd) -> String {
    let listener = TcpListener::from(file.try_clone().expect("a duplicate"));
    listener.local_addr().expect("it has one").to_string()
}

#[test]
fn a_manager_keeps_the_sockets_over_a_crash() {
    let scratch = Scratch::new("kept");
    let tokens = scratch.file("tokens", "read 0123456789abcdef\n");
    let chmod = Command::new("chmod").args(["600", path(&tokens)]).status();
    assert!(chmod.expect("chmod exists").success());
    let api = ["--api", "127.0.0.1:0", "--api-tokens", path(&tokens)];
    let keeper = Keeper::new(&scratch);
    let target = keeper.starts(&scratch, None, &api);
    let address = target.address.clone();
    let kept = keeper.keeps("READY=1");
    let kept_names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kept_names, ["nvme-tcp", "api"]);
    assert_eq!(listens_at(&kept[0].1), address);
    target.kill();

    // Nobody accepts, and nobody is refused: a host that comes now is answered by the next process.
    let waits = TcpStream::connect(&address).expect("it is kept");
    let (name, socket) = kept.into_iter().next().expect("it was there");
    assert_eq!(name, "nvme-tcp");
    let host = {
        let address = address.clone();
        thread::spawn(move || discover(&address))
    };
    let target = keeper.starts(&scratch, Some(socket), &["--listen", &address]);
    host.join().expect("it is answered");
    drop(waits);
    let kept = keeper.keeps("READY=1");
    assert_eq!(kept.len(), 1);
    assert_eq!(listens_at(&kept[0].1), address);

    // Where the target listens is what is kept.
    target.json(&["target", "set", "--listen", "127.0.0.1:0"]);
    assert_eq!(target.terminate(), 0);
    let after = keeper.keeps("STOPPING=1");
    assert_eq!(after.len(), 1);
    assert_ne!(listens_at(&after[0].1), address);
}
