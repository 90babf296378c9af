//! `top` on a terminal, as somebody sees it who types at it; and where there is none.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::rig::{PROGRAM, Scratch, Target, expect_failure};

/// So long something is waited for that has to come.
const LONG: Duration = Duration::from_mins(2);

/// A program on a terminal of its own, and what is on its screen.
struct Terminal {
    ours: std::fs::File,
    /// Kept open, so that its settings can be looked at when the program has ended.
    theirs: OwnedFd,
    before: Termios,
    child: Child,
    come: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

impl Terminal {
    /// A terminal that is the controlling one of `top`, with so many columns and lines.
    fn top(state: &Path, size: (u16, u16), more: &[&str]) -> Self {
        Self::called("xterm-256color", state, size, more)
    }

    /// The same, of a terminal of this kind.
    fn called(term: &str, state: &Path, size: (u16, u16), more: &[&str]) -> Self {
        let (ours, theirs) = pair(size);
        let before = tcgetattr(&theirs).expect("it is a terminal");
        let child = on(&theirs, term, state, more);
        let mut reader = ours.try_clone().expect("one more");
        let (send, come) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if send.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            ours,
            theirs,
            before,
            child,
            come,
            screen: vt100::Parser::new(some(size.1), some(size.0), 0),
        }
    }

    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen is so.
    fn until(&mut self, is_so: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + LONG;
        while !is_so(self.screen.screen()) {
            // It draws again and again, so there is no pause to wait for.
            let come = self.come.recv_timeout(end - Instant::now().min(end));
            let come = come.unwrap_or_else(|_| panic!("it never was so:\n{}", self.text()));
            self.screen.process(&come);
        }
    }

    /// Waits until all of these are on the screen.
    fn shows(&mut self, words: &[&str]) {
        self.until(|screen| {
            let text = screen.contents();
            words.iter().all(|word| text.contains(word))
        });
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("it is taken");
    }

    fn resize(&mut self, size: (u16, u16)) {
        self.screen
            .screen_mut()
            .set_size(some(size.1), some(size.0));
        tcsetwinsize(&self.ours, winsize(size)).expect("any size");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill exists").success());
    }

    /// Waits for the end; the terminal has to be as it was.
    fn ends(mut self, status: i32) {
        // The wait for the screen is limited, the one for the process is not.
        self.until(|screen| !screen.alternate_screen() && !screen.hide_cursor());
        let ended = self.child.wait().expect("it was ours");
        assert_eq!(ended.code(), Some(status), "{}", self.text());
        let after = tcgetattr(&self.theirs).expect("it is a terminal");
        let modes = |it: &Termios| {
            let modes = (it.input_modes, it.output_modes, it.control_modes);
            (modes, it.local_modes)
        };
        assert_eq!(modes(&after), modes(&self.before));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends of a terminal with so many columns and lines.
fn pair(size: (u16, u16)) -> (std::fs::File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .expect("there are terminals");
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let theirs = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
    tcsetwinsize(&ours, winsize(size)).expect("any size");
    (ours.into(), theirs.expect("the other end"))
}

/// `top` on a terminal of this kind, which is its controlling one.
fn on(theirs: &OwnedFd, term: &str, state: &Path, more: &[&str]) -> Child {
    let end = || Stdio::from(theirs.try_clone().expect("one more"));
    Command::new("setsid")
        .args(["--ctty", PROGRAM, "top", "--state"])
        .arg(state)
        .args(more)
        .env("TERM", term)
        .env_remove("NO_COLOR")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .expect("the program starts")
}

fn some(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("a terminal has lines and columns")
}

fn winsize((columns, lines): (u16, u16)) -> Winsize {
    Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// A target with volumes of two tenants.
fn with_volumes(scratch: &Scratch) -> Target {
    let target = Target::start(scratch, &[]);
    for line in [
        "device create ram0 --kind memory --size 64MiB",
        "pool create fast --device ram0",
        "tenant create db --host * --guarantee read_iops=1000 --force",
        "tenant create lab --host *",
        "volume create orders --pool fast --size 16MiB --tenant db",
        "volume create tests --pool fast --size 16MiB --tenant lab",
    ] {
        target.json(&line.split(' ').collect::<Vec<_>>());
    }
    target
}

/// Reads of a tenant, until they are dropped.
struct Load(Child);

impl Load {
    fn start(target: &Target, tenant: &str) -> Self {
        let subnqn = format!("nqn.2026-11.dev.flashyard:{tenant}");
        let load = Command::new(PROGRAM)
            .args(["perf", "--connect", &target.address, "--subnqn", &subnqn])
            .args([
                "--rw", "randread", "--bs", "4KiB", "--qd", "4", "--rate", "500",
            ])
            .args(["--seconds", "600", "--warmup", "0"])
            .stdout(Stdio::null())
            .spawn();
        Self(load.expect("the program starts"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SIZE: (u16, u16) = (80, 24);

#[test]
fn top_shows_tables_and_why_and_gives_the_terminal_back() {
    let scratch = Scratch::new("top");
    let target = with_volumes(&scratch);
    let load = Load::start(&target, "db");
    let mut top = Terminal::top(&target.state, SIZE, &["--interval", "0.5"]);
    top.shows(&["[1 tenants]", "PROMISE", "TENANT", "db", "lab", "q quit"]);
    assert!(top.screen.screen().alternate_screen());
    // It had more I/O than the other one in the last interval, so it is the first.
    top.until(|screen| {
        let first = screen.rows(0, SIZE.0).nth(4).unwrap_or_default();
        screen.contents().contains("last ") && first.starts_with("db ")
    });
    top.press("\r");
    top.shows(&[
        "why db",
        "db on ram0 (fair)",
        "measured at the target",
        "latency: mean",
        "promised, and got",
    ]);
    top.press("\u{1b}");
    top.shows(&["[1 tenants]", "PROMISE"]);
    top.press("\t");
    top.shows(&["[2 volumes]", "orders", "tests"]);
    top.press("/ord\r");
    top.shows(&["only with \"ord\": 1 rows"]);
    assert!(!top.text().contains("tests"), "{}", top.text());
    top.press("/\u{1b}");
    top.shows(&["tests"]);
    top.press("5");
    top.shows(&["[5 connections]", "CONTROLLER", "127.0.0.1:"]);
    top.press("\u{1b}[Z");
    top.shows(&["[4 cores]", "PROCESSOR", "answers"]);
    top.press("?");
    top.shows(&["help", "Shift-Tab"]);
    top.press("?");
    // Whatever room there is.
    for size in [(40, 10), (1, 1), (200, 60)] {
        top.resize(size);
        top.until(|screen| !screen.contents().trim().is_empty());
    }
    top.shows(&["[4 cores]", "CONNECTIONS"]);
    top.press("q");
    top.ends(0);
    drop(load);
    assert_eq!(target.terminate(), 0);
}

/// As of somebody who types while the window is still drawn larger. Where both are waited for on
/// edges, the key is forgotten until the next one.
#[test]
fn a_key_that_comes_with_a_change_of_size_is_taken() {
    let scratch = Scratch::new("top-sizes");
    let target = with_volumes(&scratch);
    let mut top = Terminal::top(&target.state, SIZE, &[]);
    for (columns, key, tab) in [(81, "2", "[2 volumes]"), (82, "5", "[5 connections]")].repeat(50) {
        top.resize((columns, 24));
        top.press(key);
        top.shows(&[tab]);
    }
    top.press("q");
    top.ends(0);
}

#[test]
fn however_top_ends_the_terminal_is_as_it_was() {
    let scratch = Scratch::new("top-ends");
    let target = with_volumes(&scratch);
    for how in ["\u{3}", "-TERM", "-INT", "-HUP"] {
        let mut top = Terminal::top(&target.state, SIZE, &["--tab", "devices"]);
        top.shows(&["[3 devices]", "ram0"]);
        match how {
            "\u{3}" => top.press(how),
            signal => top.signal(signal),
        }
        top.ends(0);
    }
}

/// As over ssh, from whatever terminal; and from one that cannot be drawn on.
#[test]
fn top_is_drawn_on_plain_terminals_and_refused_on_dumb_ones() {
    let scratch = Scratch::new("top-plain");
    let target = with_volumes(&scratch);
    for term in ["xterm", "vt100", "screen"] {
        let mut top = Terminal::called(term, &target.state, SIZE, &[]);
        top.shows(&["[1 tenants]", "db", "lab"]);
        top.press("q");
        top.ends(0);
    }
    let mut top = Terminal::called("dumb", &target.state, SIZE, &[]);
    top.shows(&["there is no terminal to draw on", "`flashyard top --once`"]);
    assert!(!top.screen.screen().alternate_screen());
    top.ends(1);
}

/// As when the line to it breaks.
#[test]
fn top_ends_with_its_terminal() {
    let scratch = Scratch::new("top-closed");
    let target = with_volumes(&scratch);
    let (mut ours, theirs) = pair(SIZE);
    let mut child = on(&theirs, "xterm", &target.state, &["--interval", "0.2"]);
    drop(theirs);
    let mut screen = vt100::Parser::new(some(SIZE.1), some(SIZE.0), 0);
    let mut bytes = [0; 4096];
    while !screen.screen().contents().contains("[1 tenants]") {
        let count = ours.read(&mut bytes).expect("it draws");
        screen.process(&bytes[..count]);
    }
    drop(ours);
    let ended = child.wait().expect("it was ours");
    // By the signal that comes of it, or because nothing can be drawn any more; never by a panic.
    assert!(matches!(ended.code(), Some(0 | 1)), "{ended:?}");
}

#[test]
fn top_waits_for_a_target_that_is_away() {
    let scratch = Scratch::new("top-away");
    let target = with_volumes(&scratch);
    let mut top = Terminal::top(&target.state, SIZE, &[]);
    top.shows(&["[1 tenants]", "db"]);
    target.kill();
    top.shows(&["TARGET AWAY, and waited for", "db"]);
    let target = Target::start(&scratch, &[]);
    top.until(|screen| !screen.contents().contains("TARGET AWAY"));
    // A key is heard while nobody answers.
    target.kill();
    top.shows(&["TARGET AWAY"]);
    top.press("q");
    top.ends(0);
}

fn rows(printed: &Value) -> Vec<&Value> {
    printed["rows"].as_array().expect("a list").iter().collect()
}

#[test]
fn top_prints_one_table() {
    let scratch = Scratch::new("top-once");
    let target = with_volumes(&scratch);
    let _load = Load::start(&target, "db");
    let once = |more: &str| {
        let typed = format!("top --once --interval 0.3 {more}");
        target.run(&typed.split_whitespace().collect::<Vec<_>>())
    };
    let json = |more: &str| -> Value {
        let printed = once(&format!("--json {more}"));
        assert!(printed.status.success(), "{printed:?}");
        serde_json::from_slice(&printed.stdout).expect("one document")
    };
    // Until what the load does is counted, and judged beside what is promised.
    let mut tenants = json("");
    let is_there = |it: &Value| it["iops"].as_f64() > Some(0.0) && !it["promised"].is_null();
    while !is_there(rows(&tenants)[0]) {
        tenants = json("");
    }
    assert_eq!(tenants["table"], "tenants");
    let db = rows(&tenants)[0];
    assert_eq!(
        (&db["name"], &db["class"]),
        (&"db".into(), &"throughput".into())
    );
    assert!(db["bytes_per_second"].as_u64() > Some(0), "{db}");
    assert!(
        db["promised"]
            .as_str()
            .is_some_and(|it| it.ends_with("of 1000 read iops")),
        "{db}"
    );
    let lab = rows(&tenants)[1];
    assert_eq!(
        (&lab["iops"], &lab["promise"]),
        (&0.0.into(), &Value::Null),
        "{lab}"
    );

    let connections = json("--tab connections --filter DB");
    let connection = rows(&connections)[0];
    assert_eq!(
        (&connection["tenant"], &connection["io_queues"]),
        (&"db".into(), &1.into())
    );
    assert!(connection["iops"].as_f64() > Some(0.0), "{connection}");
    let cores = json("--tab cores");
    assert!(
        rows(&cores)[0]["processor_part"].as_f64() > Some(0.0),
        "{cores}"
    );
    let devices = json("--tab devices");
    assert_eq!(rows(&devices)[0]["tenants"], 2);

    let table = |more: &str| {
        let Output { status, stdout, .. } = once(more);
        assert!(status.success());
        String::from_utf8(stdout).expect("text")
    };
    let volumes = table("--tab volumes --sort volume");
    let mut lines = volumes.lines();
    assert!(
        lines
            .next()
            .is_some_and(|it| it.starts_with("VOLUME  TENANT  DEVICE")),
        "{volumes}"
    );
    assert!(
        lines.next().is_some_and(|it| it.starts_with("orders  db")),
        "{volumes}"
    );
    assert_eq!(table("--filter nobody"), "no tenants to show\n");
}

#[test]
fn top_is_refused_where_it_cannot_be() {
    let scratch = Scratch::new("top-refused");
    let target = with_volumes(&scratch);
    let run = |typed: &str| target.run(&typed.split(' ').collect::<Vec<_>>());
    let no_terminal = run("top");
    expect_failure(&no_terminal, 1, "there is no terminal to draw on");
    expect_failure(&no_terminal, 1, "`flashyard iostat`");
    expect_failure(&no_terminal, 1, "`flashyard top --once`");
    expect_failure(&run("top --json"), 1, "a screen has no JSON");
    let no_column = run("top --once --tab cores --sort blame");
    expect_failure(
        &no_column,
        1,
        "has no column `blame`: give one of core, state,",
    );
    expect_failure(&run("top --tab pools"), 2, "tenants, volumes, devices");
    expect_failure(&run("top --interval 0"), 2, "0.1 to 86400");
    let state = target.state.clone();
    target.kill();
    let none = |more: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["top", more, "--state"]).arg(&state);
        command.output().expect("the program starts")
    };
    expect_failure(&none("--once"), 1, "no target runs on");
    // One that is not there is told before the terminal is taken.
    let mut top = Terminal::top(&state, SIZE, &[]);
    top.shows(&["no target runs on"]);
    assert!(!top.text().contains("tenants"), "{}", top.text());
    top.ends(1);
}
