//! Where a secret is, as it is written: `file:PATH`, `command:PROGRAM ARGUMENT...`,
//! `credential:NAME`, and the same after `passphrase-`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroize;

use crate::error::SourceError;
use crate::secret::{LEAST_KEY, MOST, Secret, SecretKind};

/// How long a command may take; a person may be typing.
const LONGEST: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Where systemd says that credentials are.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
const PASSPHRASE: &str = "passphrase-";

/// Where a secret is, and of which kind it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySource {
    /// Whether it is a key or a passphrase.
    pub kind: SecretKind,
    /// Where it is.
    pub place: Place,
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this file.
    File(PathBuf),
    /// What this program writes, which is started without a shell.
    Command(Vec<String>),
    /// In the credential of systemd with this name.
    Credential(String),
}

/// A text names no place of a secret. It is not shown, since it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceSyntax;

impl fmt::Display for SourceSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this is no place of a key: give file:PATH, command:PROGRAM, credential:NAME, or one of them after `passphrase-`, \
             such as passphrase-file:PATH",
        )
    }
}

impl std::error::Error for SourceSyntax {}

impl FromStr for KeySource {
    type Err = SourceSyntax;

    fn from_str(text: &str) -> Result<Self, SourceSyntax> {
        let (kind, rest) = match text.strip_prefix(PASSPHRASE) {
            Some(rest) => (SecretKind::Passphrase, rest),
            None => (SecretKind::Key, text),
        };
        let (how, what) = rest.split_once(':').ok_or(SourceSyntax)?;
        let place = match how {
            "file" if !what.is_empty() => Place::File(what.into()),
            "command" => {
                let words: Vec<String> = what.split_whitespace().map(str::to_owned).collect();
                match words.is_empty() {
                    true => return Err(SourceSyntax),
                    false => Place::Command(words),
                }
            }
            "credential" if is_credential(what) => Place::Credential(what.to_owned()),
            _ => return Err(SourceSyntax),
        };
        Ok(Self { kind, place })
    }
}

/// Whether systemd takes it as the name of a credential: a file name.
fn is_credential(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\0']) && !name.starts_with('.')
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == SecretKind::Passphrase {
            f.write_str(PASSPHRASE)?;
        }
        self.place.fmt(f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Command(words) => write!(f, "command:{}", words.join(" ")),
            Self::Credential(name) => write!(f, "credential:{name}"),
        }
    }
}

impl Place {
    /// For messages, which go to logs: the arguments of a program may hold a secret.
    fn told(&self) -> String {
        match self {
            Self::Command(words) => format!("command:{}", words.first().map_or("", |it| it)),
            Self::File(_) | Self::Credential(_) => self.to_string(),
        }
    }
}

impl KeySource {
    /// The same, where a path of a file is meant from `folder`.
    #[must_use]
    pub fn within(mut self, folder: &Path) -> Self {
        if let Place::File(path) = &mut self.place {
            *path = folder.join(&*path);
        }
        self
    }

    /// Gets the secret. May wait for a program, up to two minutes.
    pub fn fetch(&self) -> Result<Secret, SourceError> {
        let bytes = match &self.place {
            Place::File(path) => read_file(path)?,
            Place::Command(words) => run(words, &self.place.told())?,
            Place::Credential(name) => {
                let folder = std::env::var_os(CREDENTIALS)
                    .ok_or_else(|| SourceError::NoCredentials(name.clone()))?;
                match read_file(&Path::new(&folder).join(name)) {
                    Err(SourceError::Read(_, error)) if error.kind() == io::ErrorKind::NotFound => {
                        return Err(SourceError::NoCredentials(name.clone()));
                    }
                    read => read?,
                }
            }
        };
        self.checked(bytes)
    }

    /// Refuses what is too short or too long.
    fn checked(&self, mut bytes: Vec<u8>) -> Result<Secret, SourceError> {
        let whence = self.place.told();
        if self.kind == SecretKind::Passphrase && bytes.last() == Some(&b'\n') {
            // The end of the line is not typed as a part of it.
            bytes.pop();
        }
        let secret = Secret::new(self.kind, bytes);
        match (self.kind, secret.bytes().len()) {
            (_, len) if len > MOST => Err(SourceError::Long(whence)),
            (SecretKind::Key, len) if len < LEAST_KEY => Err(SourceError::Short(whence, len)),
            (SecretKind::Passphrase, 0) => Err(SourceError::Empty(whence)),
            _ => Ok(secret),
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, SourceError> {
    let wrong = |error| SourceError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(wrong)?;
    let about = file.metadata().map_err(wrong)?;
    if about.is_file() && about.permissions().mode() & 0o007 != 0 {
        return Err(SourceError::Exposed(path.to_owned()));
    }
    take(file).map_err(wrong)
}

/// All bytes of a secret, and one more of what is too long. The memory is taken at once, so that
/// none is left behind with a part of it.
fn take(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(MOST + 64);
    match from.take(MOST as u64 + 1).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => {
            bytes.zeroize();
            Err(error)
        }
    }
}

/// Ends a program that is still running.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already where these fail.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a program writes.
fn run(words: &[String], line: &str) -> Result<Vec<u8>, SourceError> {
    let start = |error| SourceError::Start(line.to_owned(), error);
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| start(io::ErrorKind::NotFound.into()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // What it says there may have the secret in it.
        .stderr(Stdio::null());
    let mut child = Running(command.spawn().map_err(start)?);
    // It is read at once, so that it does not block the program.
    let written = reader(child.0.stdout.take());
    let until = Instant::now() + LONGEST;
    let slow = || SourceError::Slow(line.to_owned(), LONGEST);
    let status = loop {
        match child.0.try_wait().map_err(start)? {
            Some(status) => break status,
            None if Instant::now() > until => return Err(slow()),
            None => thread::sleep(PAUSE),
        }
    };
    // A program that it has left behind may hold the pipes open.
    let left = until.saturating_duration_since(Instant::now());
    let written = written.recv_timeout(left).map_err(|_| slow())?;
    let bytes = Secret::new(SecretKind::Key, written.map_err(start)?);
    match status.success() {
        true => Ok(bytes.into_bytes()),
        false => Err(SourceError::Command(line.to_owned(), status)),
    }
}

/// Reads a pipe on a thread of its own, to its end.
fn reader(pipe: Option<ChildStdout>) -> Receiver<io::Result<Vec<u8>>> {
    let (give, got) = mpsc::channel();
    if let Some(pipe) = pipe {
        // Who waits may have given up.
        thread::spawn(move || drop(give.send(take(pipe))));
    }
    got
}
