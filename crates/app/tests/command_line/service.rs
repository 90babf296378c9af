//! The target as a service: what it tells the manager that has started it, and what it does on
//! SIGHUP.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::rig::{Scratch, Target, names, path, serve, terminate};

const ONE: &str = "[[device]]\nname = \"one\"\nkind = \"memory\"\nsize = \"16MiB\"\n";
const TWO: &str = "[[device]]\nname = \"two\"\nkind = \"memory\"\nsize = \"16MiB\"\n";

/// A service manager, and what it has started.
struct Managed {
    socket: UnixDatagram,
    target: Target,
}

impl Managed {
    fn start(scratch: &Scratch, address: &SocketAddr, name: &str, more: &[&str]) -> Self {
        let socket = UnixDatagram::bind_addr(address).expect("a socket of this test");
        // A target that says nothing fails the test, and does not hang it.
        let patience = Some(Duration::from_mins(2));
        socket.set_read_timeout(patience).expect("it can wait");
        let log = fs::File::create(scratch.join("log")).expect("it is ours");
        // Nobody reads what it writes to standard output: the pipe is closed.
        let mut child = serve(scratch, more)
            .env("NOTIFY_SOCKET", name)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        drop(child.stdout.take());
        let target = Target {
            child,
            address: String::new(),
            state: scratch.join("state"),
        };
        Self { socket, target }
    }

    fn in_folder(scratch: &Scratch, more: &[&str]) -> Self {
        let name = scratch.join("notify");
        let address = SocketAddr::from_pathname(&name).expect("a short path");
        Self::start(scratch, &address, path(&name), more)
    }

    /// The next message, line by line, but for those about sockets to keep.
    fn told(&self) -> Vec<String> {
        loop {
            let mut message = [0; 4096];
            let length = self.socket.recv(&mut message).expect("it is told");
            let text = std::str::from_utf8(&message[..length]).expect("text");
            if !text.starts_with("FDSTORE") {
                return text.lines().map(str::to_owned).collect();
            }
        }
    }

    /// The status of the next message, which says that the target serves.
    fn ready(&self) -> String {
        let told = self.told();
        assert_eq!(told[0], "READY=1", "{told:?}");
        told[1].strip_prefix("STATUS=").expect("words").to_owned()
    }

    fn reloads(&self) -> String {
        hang_up(&self.target.child);
        let told = self.told();
        assert_eq!(told[0], "RELOADING=1", "{told:?}");
        let time = told[1].strip_prefix("MONOTONIC_USEC=").expect("when");
        assert!(time.parse::<u64>().is_ok_and(|time| time > 0), "{told:?}");
        self.ready()
    }

    fn devices(&self) -> Value {
        self.target.json(&["device", "list"])
    }

    /// Codes of what is wrong, and the details.
    fn wrong(&self) -> Vec<(String, String)> {
        let health = self.target.json(&["health"]);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let problems = health["problems"].as_array().expect("a list").iter();
        problems
            .map(|row| (text(&row["code"]), row.to_string()))
            .collect()
    }
}

fn hang_up(child: &Child) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-HUP", &id]).status();
    assert!(sent.expect("kill exists").success());
}

fn log(scratch: &Scratch) -> String {
    fs::read_to_string(scratch.join("log")).expect("it is ours")
}

#[test]
fn the_manager_hears_of_the_start_and_of_the_end() {
    let scratch = Scratch::new("notify");
    let mut managed = Managed::in_folder(&scratch, &[]);
    let status = managed.ready();
    assert!(status.starts_with("listening on 127.0.0.1:"), "{status}");
    // It is told when it is so.
    assert_eq!(names(&managed.devices()), [""; 0]);
    assert_eq!(terminate(&mut managed.target.child), 0);
    assert_eq!(managed.told()[0], "STOPPING=1");
}

/// As when its terminal is closed: what it says on SIGHUP and at its end is lost, and no more.
#[test]
fn a_target_whose_messages_nobody_reads_goes_on() {
    let scratch = Scratch::new("unread");
    for more in [&[][..], &["--json"]] {
        let mut child = serve(&scratch, more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        drop((child.stdout.take(), child.stderr.take()));
        let mut target = Target {
            child,
            address: String::new(),
            state: scratch.join("state"),
        };
        while !target.run(&["status"]).status.success() {
            std::thread::sleep(Duration::from_millis(10));
        }
        hang_up(&target.child);
        hang_up(&target.child);
        assert_eq!(names(&target.json(&["device", "list"])), [""; 0]);
        assert_eq!(terminate(&mut target.child), 0);
    }
}

#[test]
fn a_manager_may_be_in_no_folder() {
    let scratch = Scratch::new("abstract");
    let name = format!("flashyard-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let managed = Managed::start(&scratch, &address, &format!("@{name}"), &[]);
    assert!(managed.ready().starts_with("listening on "));
}

#[test]
fn a_manager_that_is_not_there_ends_nothing() {
    let scratch = Scratch::new("deaf");
    let name = scratch.join("nobody");
    let target = Target::of(&scratch, serve(&scratch, &[]).env("NOTIFY_SOCKET", &name));
    assert_eq!(names(&target.json(&["device", "list"])), [""; 0]);
}

#[test]
fn on_sighup_the_file_is_applied_again_or_nothing_changes() {
    let scratch = Scratch::new("reload");
    let file: PathBuf = scratch.file("flashyard.toml", ONE);
    let managed = Managed::in_folder(&scratch, &["--config", path(&file)]);
    managed.ready();
    fs::write(&file, [ONE, TWO].concat()).expect("it is ours");
    let status = managed.reloads();
    assert!(!status.contains("not applied"), "{status}");
    assert_eq!(names(&managed.devices()), ["one", "two"]);
    assert_eq!(managed.wrong(), []);

    // Not read, and read and refused: both change nothing, and are told.
    let third = TWO.replace("two", "three");
    let twice = [ONE, &third, &TWO.replace("16MiB", "32MiB")].concat();
    let wrong = [ONE, &third, "[[pool]]\nnmae = \"fast\"\n"].concat();
    for (text, why) in [(wrong, "line 10: "), (twice, "device `two`")] {
        fs::write(&file, text).expect("it is ours");
        let status = managed.reloads();
        assert!(status.contains("is not applied"), "{status}");
        assert_eq!(names(&managed.devices()), ["one", "two"]);
        let found = managed.wrong();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "CONFIGURATION_NOT_APPLIED");
        assert!(found[0].1.contains(why), "{found:?}");
        assert!(log(&scratch).contains(why), "{}", log(&scratch));
    }
    fs::remove_file(&file).expect("it is ours");
    managed.reloads();
    assert!(managed.wrong()[0].1.contains("cannot read"));

    // A file that can be applied ends it, whoever applies it.
    let mended = scratch.file("mended.toml", &[ONE, TWO, &third].concat());
    managed.target.json(&["apply", path(&mended)]);
    assert_eq!(managed.wrong(), []);
    fs::write(&file, ONE).expect("it is ours");
    managed.reloads();
    assert_eq!(managed.wrong(), []);
    assert_eq!(names(&managed.devices()), ["one", "three", "two"]);
}

#[test]
fn on_sighup_without_a_file_the_target_goes_on_and_says_so() {
    let scratch = Scratch::new("no-file");
    let mut managed = Managed::in_folder(&scratch, &[]);
    managed.ready();
    hang_up(&managed.target.child);
    while !log(&scratch).contains("there is no configuration file to apply") {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(names(&managed.devices()), [""; 0]);
    assert_eq!(terminate(&mut managed.target.child), 0);
}

/// The log as text and as JSON: what happens, and what somebody has to know of, in one form.
#[test]
fn what_happens_is_logged_in_the_form_that_is_asked_for() {
    for form in ["text", "json"] {
        let scratch = Scratch::new(&format!("logged-{form}"));
        let mut managed = Managed::in_folder(&scratch, &["--log", form]);
        managed.ready();
        let create = ["tenant", "create", "db", "--host", "*"];
        managed.target.json(&create);
        hang_up(&managed.target.child);
        let wanted = ["started", "tenant db", "there is no configuration file"];
        while !wanted.iter().all(|it| log(&scratch).contains(it)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(terminate(&mut managed.target.child), 0);
        let written = log(&scratch);
        if form == "text" {
            let mut lines = written.lines();
            let all = lines.all(|line| line.starts_with("flashyard: "));
            assert!(all, "{written}");
            assert!(written.contains("Z changed tenant db: "), "{written}");
            continue;
        }
        let mut kinds = Vec::new();
        for line in written.lines() {
            let line: Value = serde_json::from_str(line).expect("an object in each line");
            for key in ["at", "level", "kind", "what", "detail"] {
                assert!(line[key].is_string(), "{line}");
            }
            kinds.push(line["kind"].as_str().expect("a word").to_owned());
        }
        for kind in ["started", "changed", "notice"] {
            assert!(kinds.iter().any(|it| it == kind), "{written}");
        }
    }
}
