//! The API over TLS as its users see it: what the log says of those who are refused, and files that
//! are renewed while the target runs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};

use crate::certificates::{For, Pair, Wish};
use crate::rig::{PROGRAM, Scratch, Target, answer, expect_failure, path, refuses_to_start};

const TOKEN: &str = "0123456789abcdef";

/// Far more than anything takes.
const LONG: Duration = Duration::from_mins(2);

/// A target that listens with TLS.
struct Rig {
    target: Target,
    scratch: Scratch,
    authority: Pair,
    /// Its address over TCP.
    at: String,
    /// Lines of standard error.
    log: Receiver<String>,
}

/// The options of `serve`, and the files that they name.
fn options(scratch: &Scratch, authority: &Pair, tokens: &str) -> Vec<String> {
    authority
        .signed("target", For::Server)
        .write(scratch, "target");
    authority.write(scratch, "ca");
    put_tokens(scratch, tokens);
    let file = |name: &str| path(&scratch.join(name)).to_owned();
    let mut words = vec!["--api".to_owned(), "127.0.0.1:0".to_owned()];
    for (option, name) in [
        ("--api-tokens", "tokens"),
        ("--api-cert", "target.crt"),
        ("--api-key", "target.key"),
        ("--api-client-ca", "ca.crt"),
    ] {
        words.extend([option.to_owned(), file(name)]);
    }
    words
}

fn put_tokens(scratch: &Scratch, text: &str) {
    let tokens = scratch.file("tokens", text);
    fs::set_permissions(tokens, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

impl Rig {
    fn start(name: &str, tokens: &str) -> Self {
        let scratch = Scratch::new(name);
        let authority = Pair::authority("test authority");
        let options = options(&scratch, &authority, tokens);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut command = crate::rig::serve(&scratch, &options);
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut next = || lines.next().and_then(Result::ok).unwrap_or_default();
        let address = next();
        let at = next();
        let at = at.strip_prefix("listening on ").expect("it listens");
        let at = at.strip_suffix(" (API)").expect("over TCP").to_owned();
        assert_eq!(next(), format!("dashboard: https://{at}/"));
        let (send, log) = mpsc::channel();
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                // The test has ended.
                let _ = send.send(line);
            }
        });
        let target = Target {
            child,
            address,
            state: scratch.join("state"),
        };
        Self {
            target,
            scratch,
            authority,
            at,
            log,
        }
    }

    /// Waits for a line of the log that has this in it.
    fn says(&self, wanted: &str) -> String {
        loop {
            let line = self.log.recv_timeout(LONG);
            let line = line.unwrap_or_else(|_| panic!("it does not say `{wanted}`"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// A command from elsewhere, with these files.
    fn run(&self, args: &[&str], files: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(args).arg("--json");
        command.args(["--api", &format!("https://{}", self.at)]);
        command.arg("--api-ca").arg(self.scratch.join("ca.crt"));
        for pair in files.chunks(2) {
            command.arg(pair[0]).arg(self.scratch.join(pair[1]));
        }
        command.output().expect("the program starts")
    }

    /// Tries a handshake with a certificate, or without.
    fn shake_hands(&self, own: Option<&Pair>) {
        let mut client = SslConnector::builder(SslMethod::tls()).expect("there is TLS");
        client.set_verify(SslVerifyMode::NONE);
        if let Some(own) = own {
            client.set_certificate(&own.certificate).expect("it is one");
            client.set_private_key(&own.key).expect("it is its key");
        }
        let stream = TcpStream::connect(&self.at).expect("it listens");
        // In TLS 1.3 a client is refused behind its own part of the handshake.
        let stream = client.build().connect("localhost", stream);
        let _ = stream.map(|mut stream| std::io::Read::read(&mut stream, &mut [0]));
    }

    fn hang_up(&self) {
        let id = self.target.child.id().to_string();
        let asked = Command::new("kill").args(["-HUP", &id]).status();
        assert!(asked.expect("kill exists").success());
    }
}

#[test]
fn the_log_says_why_a_client_is_refused() {
    let rig = Rig::start("tls-log", "admin cn:ops\n");
    let wish = |name, days| {
        let purpose = For::Client;
        rig.authority.sign(&Wish {
            name,
            purpose,
            days,
        })
    };
    for (own, said) in [
        (
            wish("old", (-9, -1)),
            "its certificate (CN=old) is refused: certificate has expired",
        ),
        (
            wish("early", (1, 9)),
            "its certificate (CN=early) is refused: certificate is not yet valid",
        ),
        (
            Pair::authority("foreign").signed("ops", For::Client),
            "its certificate (CN=ops) is refused: unable to get local issuer certificate",
        ),
        (
            rig.authority.signed("odd\u{1b}[2J", For::Server),
            "its certificate (CN=odd?[2J) is refused: unsuitable certificate purpose",
        ),
    ] {
        rig.shake_hands(Some(&own));
        let line = rig.says("the API refuses 127.0.0.1:");
        assert!(line.contains(said), "{line}");
    }
    rig.shake_hands(None);
    let line = rig.says("the API refuses 127.0.0.1:");
    assert!(line.contains("peer did not return a certificate"), "{line}");
    drop(TcpStream::connect(&rig.at).expect("it listens"));
    std::io::Write::write_all(
        &mut TcpStream::connect(&rig.at).expect("it listens"),
        b"GET / HTTP/1.0\r\n\r\n",
    )
    .expect("it reads");
    let line = rig.says("the API refuses 127.0.0.1:");
    assert!(line.contains("it does not speak TLS"), "{line}");
}

#[test]
fn files_are_renewed_by_a_signal_and_commands_come_from_elsewhere() {
    let rig = Rig::start(
        "tls-renewed",
        &format!("operate {TOKEN} ci\nadmin cn:ops\n"),
    );
    let ops = rig.authority.signed("ops", For::Client);
    ops.write(&rig.scratch, "ops");
    let token: PathBuf = rig.scratch.file("token", TOKEN);
    fs::set_permissions(token, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let by_token = ["--api-token-file", "token"];
    let by_certificate = [
        "--api-client-cert",
        "ops.crt",
        "--api-client-key",
        "ops.key",
    ];
    let create = ["tenant", "create", "db", "--host", "*"];
    expect_failure(&rig.run(&create, &by_token), 1, "the role `admin`");
    let made = rig.run(&create, &by_certificate);
    assert_eq!(answer(&made)["name"], "db");
    assert_eq!(rig.run(&["status"], &by_token).status.code(), Some(0));

    // A key that is not its own: all stays, and it is said.
    let next = rig.authority.signed("target", For::Server);
    let (certificate, key) = next.write(&rig.scratch, "next");
    fs::copy(&certificate, rig.scratch.join("target.crt")).expect("it is ours");
    put_tokens(&rig.scratch, "admin cn:ops\n");
    rig.hang_up();
    rig.says("the files of the API are not taken, and those before stay: the key in");
    assert_eq!(rig.run(&["status"], &by_token).status.code(), Some(0));

    fs::copy(key, rig.scratch.join("target.key")).expect("it is ours");
    rig.hang_up();
    rig.says("the files of the API are read anew");
    let gone = rig.run(&["status"], &by_token);
    assert_eq!(gone.status.code(), Some(1), "its token is no more");
    assert_eq!(rig.run(&["status"], &by_certificate).status.code(), Some(0));

    // Who has done what.
    let records = Command::new(PROGRAM)
        .args(["audit", "--json", "--state"])
        .arg(&rig.target.state)
        .output();
    let records = String::from_utf8(records.expect("it runs").stdout).expect("text");
    let records: Vec<serde_json::Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let short: Vec<_> = records
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap_or("done").to_owned();
            [text("by"), text("who"), text("from"), text("code")]
        })
        .map(|[by, who, from, code]| {
            let from = from.split(':').next().unwrap_or_default().to_owned();
            [by, who, from, code].join(" ")
        })
        .collect();
    assert_eq!(
        short,
        [
            "token ci 127.0.0.1 forbidden",
            "certificate CN=ops 127.0.0.1 done",
            "target target SIGHUP invalid",
            "target target SIGHUP done",
        ]
    );
}

#[test]
fn a_start_with_files_that_do_not_fit_is_refused() {
    let scratch = Scratch::new("tls-start");
    let authority = Pair::authority("test authority");
    let good = options(
        &scratch,
        &authority,
        &format!("read {TOKEN}\nadmin cn:ops\n"),
    );
    let good: Vec<&str> = good.iter().map(String::as_str).collect();
    let key = scratch.join("target.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("it is ours");
    refuses_to_start(&scratch, &good, "chmod 600");
    fs::remove_file(&key).expect("it is ours");
    refuses_to_start(&scratch, &good, "cannot read");
    let (_, other) = authority.signed("x", For::Server).write(&scratch, "x");
    fs::copy(other, &key).expect("it is ours");
    refuses_to_start(&scratch, &good, "belong together");
    // Names of certificates, and nobody who signs any.
    refuses_to_start(&scratch, &good[..8], "give --api-client-ca");
    // Without TLS only here.
    let outside = ["--api", "192.0.2.1:0", "--api-tokens", good[3]];
    refuses_to_start(&scratch, &outside, "give --api-cert and --api-key");
}
