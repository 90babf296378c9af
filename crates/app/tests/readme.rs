//! Every line of a fence ```` ```sh ```` in README.md and docs/*.md, typed as it stands there: a
//! page in order, into one shell, in an empty folder. A line ends with status 0, or with N where
//! its comment says `# status N`. Fences of another language (`console`, with a prompt; `text`) are
//! shown and not typed: they need root, a guest, hardware, a clone, minutes, or are refused. Of
//! what is typed only the ports are others here, and building is left out.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flashyard_testbed::Scratch;

/// One page is typed at a time: a calibration wants runs that agree.
static DESK: Mutex<()> = Mutex::new(());

const README: &str = include_str!("../../../README.md");
/// Ports of README, and the first of those that nothing here is given by chance.
const PORTS: [&str; 2] = ["4420", "4421"];
const PORTS_FROM: u16 = 20_000;
const PORTS_MANY: u16 = 10_000;
/// Fewer than these are typed, from the clone to the command that shows the guarantee.
const COMMANDS: usize = 10;

/// Where the first steps end. What is typed from there on needs what they left.
const LATER: &str = "### When the state directory is lost\n";

/// A fenced block: its language and its text.
type Block = (String, String);

/// A shell that somebody types into, and the folder that is their home.
struct Shell {
    process: Child,
    keys: ChildStdin,
    screen: Lines<BufReader<ChildStdout>>,
    home: Scratch,
    typed: Vec<(String, Duration)>,
    _alone: MutexGuard<'static, ()>,
}

impl Shell {
    fn open() -> Self {
        let alone = DESK.lock().unwrap_or_else(PoisonError::into_inner);
        let home = Scratch::new("readme");
        let program = Path::new(env!("CARGO_BIN_EXE_flashyard"));
        let folder = program.parent().and_then(Path::to_str);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut process = Command::new("sh")
            .current_dir(&home)
            .env("HOME", &*home)
            .env("PATH", format!("{}:{path}", folder.expect("plain names")))
            .env_remove("FLASHYARD_STATE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let keys = process.stdin.take().expect("it is piped");
        let screen = process.stdout.take().expect("it is piped");
        Self {
            process,
            keys,
            screen: BufReader::new(screen).lines(),
            home,
            typed: Vec::new(),
            _alone: alone,
        }
    }

    /// Types a line, and gives its status and what it printed. One that goes on in the background
    /// has begun when it says where it listens.
    fn type_in(&mut self, line: &str) -> (i32, String) {
        let start = Instant::now();
        let background = line.ends_with('&');
        writeln!(self.keys, "{line}\necho \"status=$?\"").expect("the shell takes it");
        let (mut printed, mut status, mut listens) = (String::new(), None, !background);
        while status.is_none() || !listens {
            let Some(Ok(said)) = self.screen.next() else {
                panic!("`{line}` ended the shell: {printed}");
            };
            match said.strip_prefix("status=") {
                Some(code) => status = code.parse().ok(),
                None => printed.extend([said.as_str(), "\n"]),
            }
            listens = listens || said.starts_with("listening on ");
        }
        self.typed.push((line.to_owned(), start.elapsed()));
        (status.unwrap_or(-1), printed)
    }

    fn succeeds(&mut self, line: &str) -> String {
        let (status, printed) = self.type_in(line);
        assert_eq!(status, 0, "{line}\n{printed}");
        printed
    }

    /// Types what is in `sh` fences. Each line ends as its comment says.
    fn types(&mut self, blocks: &[Block]) {
        for line in lines_of(blocks) {
            let said = line.split_once("# status ").map(|(_, said)| said);
            let digits = said.map(|said| said.split(|c: char| !c.is_ascii_digit()).next());
            let expected = digits.map_or(Ok(0), |digits| digits.unwrap_or_default().parse());
            let (status, printed) = self.type_in(line);
            assert_eq!(Ok(status), expected, "{line}\n{printed}");
        }
    }

    fn prints_times(&self) {
        println!("{} lines typed", self.typed.len());
        for (line, took) in &self.typed {
            println!("{:6.2} s  {line}", took.as_secs_f64());
        }
    }

    fn folder(&self) -> PathBuf {
        self.home.join("flashyard-try")
    }

    /// All that is there, as a file, without when it was written.
    fn everything(&mut self) -> String {
        let typed = self.typed.len();
        let exported = self.succeeds("flashyard export");
        self.typed.truncate(typed);
        assert!(exported.contains("[[volume]]"), "{exported}");
        let lines = exported.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Applies a file with a mistake. What is said is what README shows.
    fn mistypes<'a>(&mut self, mut shown: impl Iterator<Item = &'a str>) {
        let file = self.folder().join("flashyard.toml");
        let right = fs::read_to_string(&file).expect("it is there");
        fs::write(&file, right.replace("weight = 3", "wieght = 3")).expect("it is ours");
        let typed = self.typed.len();
        let (status, said) = self.type_in("flashyard apply flashyard.toml 2>&1");
        self.typed.truncate(typed);
        fs::write(&file, right).expect("it is ours");
        assert_eq!(status, 1, "{said}");
        let begin = "$ flashyard apply flashyard.toml\n";
        let shown = shown.find_map(|text| text.strip_prefix(begin));
        let shown = shown.expect("README shows a mistake").trim_end();
        let first = shown.split("...").next().unwrap_or_default();
        assert!(
            !first.is_empty() && said.starts_with(first),
            "{said}README: {shown}"
        );
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A test that fails leaves the target running: the shell knows which one.
        let _ = writeln!(self.keys, "kill $! 2>/dev/null; wait; exit");
        let _ = self.process.wait();
    }
}

/// README from one heading to another.
fn section(from: &str, to: &str) -> &'static str {
    let (_, rest) = README.split_once(from).expect(from);
    rest.split_once(to).expect(to).0
}

/// Fenced blocks, in order, with ports that are free here.
fn blocks(text: &str, ports: [u16; 2]) -> Vec<Block> {
    let mut text = text.to_owned();
    for (shown, port) in PORTS.into_iter().zip(ports) {
        text = text.replace(shown, &port.to_string());
    }
    // Every second piece is within a fence.
    let fenced = text.split("```").skip(1).step_by(2);
    let split = fenced.map(|block| block.split_once('\n').expect("a language"));
    split
        .map(|(kind, text)| (kind.into(), text.into()))
        .collect()
}

/// What is typed of them.
fn lines_of(blocks: &[Block]) -> impl Iterator<Item = &str> {
    let typed = blocks.iter().filter(|(kind, _)| kind == "sh");
    typed.flat_map(|(_, text)| text.lines())
}

fn free_ports() -> [u16; 2] {
    let first = PORTS_FROM + (std::process::id() % u32::from(PORTS_MANY)) as u16;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = (first..PORTS_FROM + PORTS_MANY + 100).filter(free);
    let mut next = || ports.next().expect("some port is free");
    [next(), next()]
}

#[test]
fn the_readme_works_as_it_is_typed() {
    let ports = free_ports();
    let steps = blocks(section("## First steps\n", LATER), ports);
    let of_kind = |kind: &'static str| steps.iter().filter(move |(it, _)| *it == kind);
    let (_, file) = of_kind("toml").next().expect("README shows a file");
    let mut shell = Shell::open();
    let mut before = None;
    for line in lines_of(&steps) {
        // This test has a program already.
        if line == "make build" {
            continue;
        }
        if line.starts_with("kill") && before.is_none() {
            before = Some(shell.everything());
        }
        let printed = shell.succeeds(line);
        if line.starts_with("mkdir") {
            fs::write(shell.folder().join("flashyard.toml"), file).expect("it is ours");
        }
        if line == "flashyard tenant show db" {
            let verified = printed.contains(" verified");
            assert!(verified, "{printed}");
            let typed = shell.typed.len() + 1;
            assert!(typed < COMMANDS, "{typed} commands, with `make build`");
            println!("{typed} commands to a guaranteed volume, with `make build`");
        }
        let restarted = line.starts_with("flashyard serve") && before.is_some();
        if let (true, Some(before)) = (restarted, &before) {
            assert_eq!(shell.everything(), *before, "a restart changes nothing");
            shell.mistypes(of_kind("console").map(|(_, text)| text.as_str()));
            assert_eq!(shell.everything(), *before, "nor does what is refused");
        }
    }
    assert!(before.is_some(), "README restarts the target");
    shell.types(&blocks(section(LATER, "## More\n"), ports));
    shell.prints_times();
}

#[test]
fn the_guide_works_as_it_is_typed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut typed = 0;
    for entry in fs::read_dir(docs).expect("there is a guide") {
        let path = entry.expect("it can be read").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = blocks(
            &fs::read_to_string(&path).expect("it is text"),
            free_ports(),
        );
        if lines_of(&page).next().is_none() {
            continue;
        }
        let has = |what| lines_of(&page).any(|line| line.starts_with(what));
        let own = has("export FLASHYARD_STATE=") || !has("flashyard serve");
        assert!(own, "{} has a state of its own", path.display());
        let mut shell = Shell::open();
        shell.types(&page);
        shell.prints_times();
        typed += 1;
    }
    assert!(typed >= 2, "{typed} pages of the guide are typed");
}

/// What README says that `make` builds is what it builds.
#[test]
fn the_program_is_where_readme_says() {
    assert!(README.contains("\nexport PATH=\"$PWD/target/release:$PATH\"\n"));
    let makefile = include_str!("../../../Makefile");
    assert!(makefile.contains("target)/release/flashyard\n"));
    for target in [
        "build", "demo", "test", "quick", "soak", "bench", "docs", "lint", "install", "deb",
    ] {
        let (rule, help) = (format!("\n{target}:"), format!("@echo \"make {target} "));
        assert!(
            makefile.contains(&rule) && makefile.contains(&help),
            "{target}"
        );
    }
}
