//! `cargo xtask bench`: the speed of a build beside the limit of the machine, into a table of the
//! documentation.
//!
//! Target and load generator run on one processor each, over loopback, on a device that stores
//! nothing. `perf` measures bare sockets with the same traffic around each run, so every ratio is
//! of one moment; of a few runs the one with the median ratio is reported.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

const BEGIN: &str = "<!-- made by make bench: begin -->\n";
const END: &str = "<!-- made by make bench: end -->\n";
/// Runs of each load.
const RUNS: usize = 3;
const SUBNQN: &str = "nqn.2026-11.dev.flashyard:bench";

/// One line of the table.
struct Load {
    name: &'static str,
    pattern: &'static str,
    block: &'static str,
    depth: u32,
    queues: u32,
    /// The share of the limit that is good enough, in percent.
    wanted: Option<u32>,
}

const LOADS: [Load; 10] = [
    load("4 KiB random read, QD1", "randread", "4KiB", 1, 1, Some(85)),
    load(
        "4 KiB random read, QD32",
        "randread",
        "4KiB",
        32,
        1,
        Some(50),
    ),
    load(
        "4 KiB random read, QD128",
        "randread",
        "4KiB",
        128,
        1,
        Some(55),
    ),
    load(
        "4 KiB random read, QD512 over 16 queues",
        "randread",
        "4KiB",
        512,
        16,
        Some(50),
    ),
    load("4 KiB random write, QD1", "randwrite", "4KiB", 1, 1, None),
    load("4 KiB random write, QD32", "randwrite", "4KiB", 32, 1, None),
    load(
        "4 KiB random write, QD128",
        "randwrite",
        "4KiB",
        128,
        1,
        Some(60),
    ),
    load(
        "4 KiB random write, QD512 over 16 queues",
        "randwrite",
        "4KiB",
        512,
        16,
        None,
    ),
    load("128 KiB read, QD32", "read", "128KiB", 32, 1, Some(90)),
    load("128 KiB write, QD32", "write", "128KiB", 32, 1, Some(90)),
];

const fn load(
    name: &'static str,
    pattern: &'static str,
    block: &'static str,
    depth: u32,
    queues: u32,
    wanted: Option<u32>,
) -> Load {
    Load {
        name,
        pattern,
        block,
        depth,
        queues,
        wanted,
    }
}

/// Measures `binary` and writes the table into `document`, between its marks; 2 when that could not
/// be done.
pub(crate) fn run(binary: &Path, document: &Path) -> ExitCode {
    match measure(binary).and_then(|table| publish(document, &table)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::from(2)
        }
    }
}

fn measure(binary: &Path) -> Result<String, String> {
    let target = Target::start(binary)?;
    let mut table = format!("{}\n\n{}", machine(), header());
    print!("{}", header());
    for load in &LOADS {
        let mut reports = Vec::new();
        for _ in 0..RUNS {
            reports.push(perf(binary, target.address, load)?);
        }
        reports.sort_by(|a, b| number(a, "/ratio").total_cmp(&number(b, "/ratio")));
        let row = row(load, &reports[RUNS / 2]);
        print!("{row}");
        table.push_str(&row);
    }
    Ok(table)
}

/// A running target with a device that stores nothing; stopped when dropped.
struct Target {
    process: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Target {
    fn start(binary: &Path) -> Result<Self, String> {
        let address = free_address()?;
        let folder = std::env::temp_dir().join(format!("flashyard-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
        let config = folder.join("flashyard.toml");
        fs::write(&config, configuration(address))
            .map_err(|error| format!("cannot write the configuration: {error}"))?;
        let process = Command::new(binary)
            .args(["serve", "--processor", "0", "--config"])
            .arg(&config)
            .arg("--state")
            .arg(folder.join("state"))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", binary.display()))?;
        let target = Self {
            process,
            address,
            folder,
        };
        wait_until_listening(address)?;
        Ok(target)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // What fails here has ended already, or is left to the system's own cleaning.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn configuration(address: SocketAddr) -> String {
    format!(
        "[target]\nlisten = [\"{address}\"]\n\n\
         [[device]]\nname = \"null0\"\nkind = \"null\"\nsize = \"8GiB\"\n\n\
         [[tenant]]\nname = \"bench\"\nhosts = [\"*\"]\n\n\
         [[volume]]\nname = \"whole\"\ndevice = \"null0\"\ntenant = \"bench\"\n"
    )
}

fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .map_err(|error| format!("no free port on loopback: {error}"))?;
    listener
        .local_addr()
        .map_err(|error| format!("no address: {error}"))
}

fn wait_until_listening(address: SocketAddr) -> Result<(), String> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        if TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(format!(
        "the target does not listen on {address}; see its message above"
    ))
}

/// What one run of `flashyard perf` tells.
fn perf(binary: &Path, address: SocketAddr, load: &Load) -> Result<Value, String> {
    let output = Command::new(binary)
        .args([
            "perf",
            "--json",
            "--baseline",
            "--seconds",
            "3",
            "--warmup",
            "1",
            "--processor",
            "1",
        ])
        .args([
            "--connect",
            &address.to_string(),
            "--subnqn",
            SUBNQN,
            "--rw",
            load.pattern,
            "--bs",
            load.block,
        ])
        .args([
            "--qd",
            &load.depth.to_string(),
            "--queues",
            &load.queues.to_string(),
        ])
        .output()
        .map_err(|error| format!("cannot run {}: {error}", binary.display()))?;
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            load.name,
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("perf does not speak JSON: {error}"))
}

fn header() -> &'static str {
    "| load | thousand/s | GB/s | limit, thousand/s | ratio | wanted | mean us | p50 us | p99 us |\n\
     | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
}

fn row(load: &Load, report: &Value) -> String {
    let wanted = load.wanted.map_or(String::new(), |percent| {
        format!("{:.2}", f64::from(percent) / 100.0)
    });
    let mut row = format!("| {} |", load.name);
    for (key, unit, digits) in [
        ("/iops", 1e3, 1),
        ("/bytes_per_second", 1e9, 2),
        ("/baseline/iops", 1e3, 1),
        ("/ratio", 1.0, 2),
    ] {
        // Writing to a string cannot fail.
        let _ = write!(row, " {:.digits$} |", number(report, key) / unit);
    }
    let _ = write!(row, " {wanted} |");
    for key in ["/latency_us/mean", "/latency_us/p50", "/latency_us/p99"] {
        let _ = write!(row, " {:.1} |", number(report, key));
    }
    row.push('\n');
    row
}

fn number(report: &Value, pointer: &str) -> f64 {
    report
        .pointer(pointer)
        .and_then(Value::as_f64)
        .unwrap_or(0.0)
}

/// What the figures were measured on, in one line.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("processor unknown");
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{processors} x {}, Linux {}.",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim()
    )
}

/// Puts `table` between the marks of `document`; a document without marks gets them at its end.
fn publish(document: &Path, table: &str) -> Result<(), String> {
    let text = fs::read_to_string(document).unwrap_or_else(|_| "# Performance\n".to_owned());
    let folder = document.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(document, replace(&text, table)));
    written.map_err(|error| format!("cannot write {}: {error}", document.display()))
}

fn replace(text: &str, table: &str) -> String {
    let Some((before, rest)) = text.split_once(BEGIN) else {
        return format!("{text}\n{BEGIN}\n{table}\n{END}");
    };
    let after = rest.split_once(END).map_or("", |(_, after)| after);
    format!("{before}{BEGIN}\n{table}\n{END}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_tells_result_limit_and_ratio() {
        let report = json!({
            "iops": 700_000.0, "bytes_per_second": 2_867_200_000.0, "baseline": { "iops": 1_400_000.0 }, "ratio": 0.5,
            "latency_us": { "mean": 182.04, "p50": 170.0, "p99": 400.0 },
        });
        let expected = "| 4 KiB random read, QD128 | 700.0 | 2.87 | 1400.0 | 0.50 | 0.55 | 182.0 | 170.0 | 400.0 |\n";
        assert_eq!(row(&LOADS[2], &report), expected);
        assert_eq!(
            row(&LOADS[2], &report).matches('|').count(),
            header().lines().next().unwrap_or("").matches('|').count()
        );
    }

    #[test]
    fn the_table_replaces_the_one_before() {
        let first = replace("# Performance\n", "one\n");
        assert_eq!(first, format!("# Performance\n\n{BEGIN}\none\n\n{END}"));
        let second = replace(&format!("{first}\nSaid by people.\n"), "two\n");
        assert_eq!(
            second,
            format!("# Performance\n\n{BEGIN}\ntwo\n\n{END}\nSaid by people.\n")
        );
    }
}
