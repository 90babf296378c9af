//! Who may ask what over TCP: bearer tokens (RFC 6750) in a file, a line each, with what their
//! holder may do. The socket in the state directory needs none: its owner may do everything.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, Method, header};

use super::operations::Operation;
use crate::control::{ErrorKind, HasKind};

/// Shorter ones could be guessed.
const TOKEN_LEAST: usize = 16;

/// What somebody may do, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Look at everything.
    Read,
    /// Make, change and delete volumes and snapshots; mute problems.
    Operate,
    /// Everything.
    Admin,
}

impl Role {
    /// The least that may ask this.
    pub(super) fn of(operation: &Operation) -> Self {
        let daily = ["/volumes", "/snapshots", "/health"];
        let path = operation.path;
        match operation.method {
            Method::GET => Self::Read,
            _ if daily.iter().any(|place| path.starts_with(place)) => Self::Operate,
            _ => Self::Admin,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// Tokens with their roles.
pub(super) struct Tokens(Vec<(String, Role)>);

/// Tokens are not for logs.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

/// Why there are no tokens.
#[derive(Debug)]
pub enum TokensError {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// Others may read the file.
    Open(PathBuf),
    /// This line is no role and token.
    Line(PathBuf, usize),
    /// There is none in it.
    Empty(PathBuf),
}

impl fmt::Display for TokensError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "cannot read the tokens in {}: {error}", path.display())
            }
            Self::Open(path) => write!(
                f,
                "others may read the tokens in {}: take that right away with `chmod 600`",
                path.display()
            ),
            Self::Line(path, line) => write!(
                f,
                "line {line} of {} is no role and token: write `read TOKEN`, `operate TOKEN` or `admin TOKEN`, with at least \
                 {TOKEN_LEAST} characters that `openssl rand -hex 32` gives",
                path.display()
            ),
            Self::Empty(path) => write!(
                f,
                "no token is in {}: write a line such as `read TOKEN`",
                path.display()
            ),
        }
    }
}

impl HasKind for TokensError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreadable(_, error) => ErrorKind::of_given(error),
            Self::Open(_) | Self::Line(..) | Self::Empty(_) => ErrorKind::Invalid,
        }
    }
}

/// Why somebody may not ask something.
#[derive(Debug)]
pub(super) enum Denied {
    /// No token, or none of ours.
    Unknown,
    /// It needs this role.
    Needs(Role),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "a token is needed: send `Authorization: Bearer TOKEN` with one of those of `serve --api-tokens`",
            ),
            Self::Needs(role) => write!(f, "this needs a token with the role `{}`", role.name()),
        }
    }
}

impl HasKind for Denied {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Forbidden
    }
}

impl Tokens {
    /// Reads a file of tokens.
    pub(super) fn read(path: &Path) -> Result<Self, TokensError> {
        let unreadable = |error| TokensError::Unreadable(path.to_owned(), error);
        let mut file = File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.mode() & 0o077 != 0 {
            return Err(TokensError::Open(path.to_owned()));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(unreadable)?;
        let lines = text.lines().enumerate().filter_map(|(at, line)| {
            let line = line.trim();
            let is_text = !line.is_empty() && !line.starts_with('#');
            is_text.then(|| token(line).ok_or_else(|| TokensError::Line(path.to_owned(), at + 1)))
        });
        let all: Vec<(String, Role)> = lines.collect::<Result<_, _>>()?;
        match all.is_empty() {
            true => Err(TokensError::Empty(path.to_owned())),
            false => Ok(Self(all)),
        }
    }

    /// Refuses who may not ask an operation.
    pub(super) fn check(&self, operation: &Operation, headers: &HeaderMap) -> Result<(), Denied> {
        let value = headers.get(header::AUTHORIZATION);
        let value = value.and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix("Bearer "));
        let token = token.ok_or(Denied::Unknown)?.trim();
        let known = self.0.iter().filter(|(one, _)| is_same(one, token));
        let role = known.map(|(_, role)| *role).max().ok_or(Denied::Unknown)?;
        let needed = Role::of(operation);
        match role >= needed {
            true => Ok(()),
            false => Err(Denied::Needs(needed)),
        }
    }
}

/// A role and a token.
fn token(line: &str) -> Option<(String, Role)> {
    let (role, token) = line.split_once(char::is_whitespace)?;
    let roles = [Role::Read, Role::Operate, Role::Admin];
    let role = roles.into_iter().find(|one| one.name() == role)?;
    let token = token.trim();
    let fits = token.len() >= TOKEN_LEAST && token.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| (token.to_owned(), role))
}

/// Compares in a time that tells nothing of where two of a length differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = |sum: u8, (one, other): (u8, u8)| sum | (one ^ other);
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, differ) == 0
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use flashyard_testbed::Scratch;

    use super::super::operations::OPERATIONS;
    use super::*;

    const READ: &str = "0123456789abcdef";
    const ADMIN: &str = "fedcba9876543210";

    fn read(text: &str, mode: u32) -> Result<Tokens, TokensError> {
        let scratch = Scratch::new("tokens");
        let path = scratch.join("tokens");
        fs::write(&path, text).expect("it is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        Tokens::read(&path)
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused() {
        let bad = format!("# ours\n\nread {READ}\nreed {READ}\n");
        for (text, mode, said) in [
            (format!("read {READ}"), 0o640, "chmod 600"),
            (bad, 0o600, "line 4"),
            ("read short".to_owned(), 0o600, "line 1"),
            ("# none\n".to_owned(), 0o600, "no token"),
        ] {
            let Err(refused) = read(&text, mode) else {
                panic!("{text}");
            };
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn a_token_may_do_what_its_role_may() {
        let text = format!("# ours\nread {READ}\nadmin   {ADMIN}\n");
        let tokens = read(&text, 0o600).expect("it is good");
        let check = |token: &str, operation| {
            let mut headers = HeaderMap::new();
            let value = format!("Bearer {token}").parse().expect("it is text");
            headers.insert(header::AUTHORIZATION, value);
            tokens.check(operation, &headers)
        };
        for operation in OPERATIONS {
            let may_read = check(READ, operation).is_ok();
            assert_eq!(
                may_read,
                operation.method == Method::GET,
                "{}",
                operation.path
            );
            assert!(check(ADMIN, operation).is_ok());
            for other in ["", "0123456789abcdeg", "0123456789abcde", &ADMIN[1..]] {
                assert!(matches!(check(other, operation), Err(Denied::Unknown)));
            }
            let none = tokens.check(operation, &HeaderMap::new());
            assert!(matches!(none, Err(Denied::Unknown)));
        }
    }
}
