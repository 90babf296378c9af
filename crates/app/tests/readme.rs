//! Every line of a fence ```` ```sh ```` in README.md and below docs, typed as it stands there: a
//! page in order, into one shell, in an empty folder. A line ends with status 0, or with N where
//! its comment says `# status N`; a here-document is one line. Fences of another language
//! (`console`, with a prompt; `text`) are shown and not typed: they need root, a guest, hardware, a
//! clone, minutes, or are refused. Of what is typed only the ports are others here, and building is
//! left out. What needs a Linux host is typed in a guest: `guide` in tests/linux-host/guest.

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
const PORTS: [u16; 2] = [4420, 4421];
const PORTS_FROM: u16 = 20_000;
const PORTS_MANY: u16 = 10_000;
/// As many are typed, from an installed program to a disk on a host.
const COMMANDS: usize = 10;
/// Shows what the target and its tenant have, at the end of the first steps.
const SHOWN: &str = "flashyard tenant show db";

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

    /// Types a line, and gives its status and what it printed. A target that goes on in the
    /// background has begun when it says where it listens.
    fn type_in(&mut self, line: &str) -> (i32, String) {
        let start = Instant::now();
        let background = line.starts_with("flashyard serve") && line.ends_with('&');
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

    /// Types what is in `sh` fences, and tells each line and what it printed. Each line ends as its
    /// comment says.
    fn types(&mut self, blocks: &[Block], mut tell: impl FnMut(&mut Self, &str, &str)) {
        // The tests have a program already.
        for line in lines_of(blocks).filter(|line| line != "make build") {
            let said = line.split_once("# status ").map(|(_, said)| said);
            let digits = said.map(|said| said.split(|c: char| !c.is_ascii_digit()).next());
            let expected = digits.map_or(Ok(0), |digits| digits.unwrap_or_default().parse());
            let (status, printed) = self.type_in(&line);
            assert_eq!(Ok(status), expected, "{line}\n{printed}");
            tell(self, &line, &printed);
        }
    }

    fn prints_times(&self) {
        println!("{} lines typed", self.typed.len());
        for (line, took) in &self.typed {
            println!("{:6.2} s  {line}", took.as_secs_f64());
        }
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

    /// Applies a file with a mistake. What is said is what the page shows.
    fn mistypes<'a>(&mut self, mut shown: impl Iterator<Item = &'a str>) {
        let file = self.home.join("flashyard.toml");
        let right = fs::read_to_string(&file).expect("it is there");
        fs::write(&file, right.replace("weight = 3", "wieght = 3")).expect("it is ours");
        let typed = self.typed.len();
        let (status, said) = self.type_in("flashyard apply flashyard.toml 2>&1");
        self.typed.truncate(typed);
        fs::write(&file, right).expect("it is ours");
        assert_eq!(status, 1, "{said}");
        let begin = "$ flashyard apply flashyard.toml\n";
        let shown = shown.find_map(|text| text.strip_prefix(begin));
        let shown = shown.expect("the page shows a mistake").trim_end();
        let first = shown.split("...").next().unwrap_or_default();
        assert!(
            !first.is_empty() && said.starts_with(first),
            "{said}the page: {shown}"
        );
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A test that fails leaves the target running: the shell knows which one.
        let _ = writeln!(self.keys, "kill $! $target 2>/dev/null; wait; exit");
        let _ = self.process.wait();
    }
}

/// A page, by its path below docs.
fn page(name: &str) -> String {
    let text = fs::read_to_string(docs().join(name));
    text.unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The pages of a folder and of those below it, in the order of their names.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("there is a guide");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    let below = |path: PathBuf| match path.is_dir() {
        true => pages(&path),
        false => vec![path],
    };
    let is_page = |path: &PathBuf| path.extension().is_some_and(|it| it == "md");
    let all = paths.into_iter().flat_map(below);
    all.filter(is_page).collect()
}

/// Fenced blocks, in order, with ports that are free here.
fn blocks(text: &str, ports: [u16; 2]) -> Vec<Block> {
    let mut text = text.to_owned();
    for (shown, port) in PORTS.into_iter().zip(ports) {
        text = text.replace(&shown.to_string(), &port.to_string());
    }
    // Every second piece is within a fence.
    let fenced = text.split("```").skip(1).step_by(2);
    let split = fenced.map(|block| block.split_once('\n').expect("a language"));
    split
        .map(|(kind, text)| (kind.into(), text.into()))
        .collect()
}

/// What is typed of them. A here-document belongs to the line that it stands behind.
fn lines_of(blocks: &[Block]) -> impl Iterator<Item = String> {
    let typed = blocks.iter().filter(|(kind, _)| kind == "sh");
    let mut lines = typed.flat_map(|(_, text)| text.lines());
    std::iter::from_fn(move || {
        let mut line = lines.next()?.to_owned();
        if let Some((_, end)) = line.clone().split_once("<<'") {
            let end = end.trim_end_matches('\'');
            for behind in lines.by_ref() {
                line.extend(["\n", behind]);
                if behind == end {
                    break;
                }
            }
        }
        Some(line)
    })
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
    let mut shown = false;
    let mut shell = Shell::open();
    shell.types(&blocks(README, free_ports()), |_, line, printed| {
        shown = shown || line == SHOWN && printed.contains(" verified");
    });
    assert!(shown, "the first steps end with a guarantee");
    shell.prints_times();
}

/// Pages of which more is held true have tests of their own.
const OWN: [&str; 2] = ["guide/first-tenant.md", "guide/changing.md"];

#[test]
fn the_guide_works_as_it_is_typed() {
    let mut typed = 0;
    for path in pages(&docs()) {
        let text = fs::read_to_string(&path).expect("it is text");
        let page = blocks(&text, free_ports());
        if OWN.iter().any(|own| path.ends_with(own)) || lines_of(&page).next().is_none() {
            continue;
        }
        let has = |what| lines_of(&page).any(|line| line.starts_with(what));
        let own = has("export FLASHYARD_STATE=") || !has("flashyard serve");
        assert!(own, "{} has a state of its own", path.display());
        println!("{}", path.display());
        let mut shell = Shell::open();
        shell.types(&page, |_, _, _| {});
        shell.prints_times();
        typed += 1;
    }
    assert!(typed >= 12, "{typed} pages of the guide are typed");
}

/// It ends with a guarantee that the drive can give. The run that the page shows is of these
/// commands, and those of the host.
#[test]
fn the_first_tenant_takes_ten_commands() {
    let page = page(OWN[0]);
    let mut shown = false;
    let mut shell = Shell::open();
    shell.types(&blocks(&page, free_ports()), |_, line, printed| {
        shown = shown || line == SHOWN && printed.contains(" verified");
    });
    assert!(shown, "the first steps end with a guarantee");
    shell.prints_times();
    let host = page.lines().filter_map(|line| line.strip_prefix("# "));
    let host: Vec<&str> = host
        .filter(|line| line.starts_with("nvme ") || line.starts_with("modprobe "))
        .collect();
    let [first, run] = [&host[..host.len() / 2], &host[host.len() / 2..]];
    assert!(!first.is_empty() && first == run, "{first:?} {run:?}");
    let typed = lines_of(&blocks(&page, PORTS)).collect::<Vec<_>>();
    for line in &typed {
        assert!(page.contains(&format!("\n$ {line}\n")), "the run: {line}");
    }
    assert_eq!(typed.len() + first.len(), COMMANDS);
}

#[test]
fn a_restart_with_the_same_file_changes_nothing_nor_does_a_file_with_a_mistake() {
    let page = blocks(&page(OWN[1]), free_ports());
    let shown: Vec<String> = page
        .iter()
        .filter(|(kind, _)| kind == "console")
        .map(|(_, text)| text.clone())
        .collect();
    let mut before = None;
    let mut restarted = 0;
    let mut shell = Shell::open();
    shell.types(&page, |shell, line, _| {
        if line.starts_with("flashyard serve") && before.is_some() {
            restarted += 1;
            assert_eq!(Some(shell.everything()), before, "a restart");
            shell.mistypes(shown.iter().map(String::as_str));
            assert_eq!(Some(shell.everything()), before, "what is refused");
        }
        let stopped = line.starts_with("kill");
        before = match stopped {
            true => before.take(),
            false => line
                .starts_with("flashyard apply")
                .then(|| shell.everything()),
        };
    });
    assert_eq!(restarted, 1, "the page restarts the target");
}

/// What README says that `make` builds is what it builds.
#[test]
fn the_program_is_where_readme_says() {
    assert!(README.contains("\nexport PATH=\"$PWD/target/release:$PATH\"\n"));
    let makefile = include_str!("../../../Makefile");
    assert!(makefile.contains("\nTARGET = $(or $(CARGO_TARGET_DIR),target)\n"));
    assert!(makefile.contains("\nBINARY = $(TARGET)/release/flashyard\n"));
    for target in [
        "build", "demo", "test", "quick", "soak", "bench", "docs", "guide", "lint", "install",
        "deb",
    ] {
        let (rule, help) = (format!("\n{target}:"), format!("@echo \"make {target} "));
        assert!(
            makefile.contains(&rule) && makefile.contains(&help),
            "{target}"
        );
    }
}
