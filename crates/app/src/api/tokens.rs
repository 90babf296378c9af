//! Who may ask what over TCP: bearer tokens (RFC 6750) and names of client certificates in a file,
//! a line each, with what their holder may do. What no line names may do nothing. The socket in the
//! state directory needs none: its owner may do everything.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, Method, header};
use openssl::memcmp;
use openssl::sha::sha256;

use super::operations::Operation;
use super::private::{PrivateError, read_private_text};
use super::tls::Certificate;
use crate::control::{ErrorKind, HasKind, Means};

/// Shorter ones could be guessed.
const TOKEN_LEAST: usize = 16;

/// Longer ones are no names.
const NAME_MOST: usize = 64;

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
            // It says what everybody else does.
            _ if path == "/audit" => Self::Admin,
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

/// Who may do something, with their roles.
pub(super) struct Tokens {
    tokens: Vec<Token>,
    certificates: Vec<(CertificateName, Role)>,
}

struct Token {
    text: String,
    role: Role,
    /// What its holder is called in the audit log.
    name: String,
}

/// What certificates are known by.
enum CertificateName {
    /// The common name of the subject.
    Common(String),
    /// One of the alternative names.
    Alternative(String),
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) by: Means,
    pub(super) name: String,
}

impl Who {
    pub(super) fn nobody() -> Self {
        Self {
            by: Means::Nobody,
            name: String::new(),
        }
    }
}

/// Tokens are not for logs.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.tokens.len())
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
    /// This line is about a certificate, and none are looked at.
    NoAuthority(PathBuf, usize),
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
                "line {line} of {} is no role and token: write `read TOKEN NAME`, `operate TOKEN NAME` or `admin TOKEN NAME`, with \
                 at least {TOKEN_LEAST} characters that `openssl rand -hex 32` gives, or `read cn:NAME` for a certificate",
                path.display()
            ),
            Self::NoAuthority(path, line) => write!(
                f,
                "line {line} of {} is about a certificate, and nothing says who signs those of clients: give --api-client-ca",
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
            Self::Open(_) | Self::Line(..) | Self::NoAuthority(..) | Self::Empty(_) => {
                ErrorKind::Invalid
            }
        }
    }
}

/// Why somebody may not ask something.
#[derive(Debug)]
pub(super) enum Denied {
    /// No token, or none of ours.
    Unknown,
    /// A certificate that no line names.
    Certificate,
    /// It needs this role.
    Needs(Role),
    /// A page of somebody else has a browser ask.
    OtherOrigin,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "a token is needed: send `Authorization: Bearer TOKEN` with one of those of `serve --api-tokens`",
            ),
            Self::Certificate => f.write_str(
                "no role is given to this certificate: write a line such as `read cn:NAME` into the file of `serve --api-tokens`, \
                 then send the target SIGHUP",
            ),
            Self::Needs(role) => write!(
                f,
                "this needs a token or certificate with the role `{}`",
                role.name()
            ),
            Self::OtherOrigin => f.write_str(
                "a page from elsewhere has a browser ask this (`Origin`, `Sec-Fetch-Site`): only the target's own pages may",
            ),
        }
    }
}

impl HasKind for Denied {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Forbidden
    }
}

/// What a line says.
enum Line {
    Token(Token),
    Certificate(CertificateName, Role),
}

impl Tokens {
    /// Reads a file of tokens. Lines about certificates are for a target that looks at these.
    pub(super) fn read(path: &Path, with_certificates: bool) -> Result<Self, TokensError> {
        let text = read_private_text(path).map_err(|why| match why {
            PrivateError::Unreadable(error) => TokensError::Unreadable(path.to_owned(), error),
            PrivateError::Open => TokensError::Open(path.to_owned()),
        })?;
        let mut all = Self {
            tokens: Vec::new(),
            certificates: Vec::new(),
        };
        for (at, line) in text.lines().enumerate() {
            let (line, number) = (line.trim(), at + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match read_line(line) {
                Some(Line::Token(token)) => all.tokens.push(token),
                Some(Line::Certificate(..)) if !with_certificates => {
                    return Err(TokensError::NoAuthority(path.to_owned(), number));
                }
                Some(Line::Certificate(name, role)) => all.certificates.push((name, role)),
                None => return Err(TokensError::Line(path.to_owned(), number)),
            }
        }
        match all.tokens.is_empty() && all.certificates.is_empty() {
            true => Err(TokensError::Empty(path.to_owned())),
            false => Ok(all),
        }
    }

    /// Whether nobody is known by anything but a certificate.
    pub(super) fn is_without_tokens(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Who asks an operation, and whether they may. Who sends a token is known by that alone, so a
    /// wrong one is not made good by a certificate.
    pub(super) fn check(
        &self,
        operation: &Operation,
        headers: &HeaderMap,
        certificate: Option<&Certificate>,
    ) -> (Who, Result<(), Denied>) {
        let needed = Role::of(operation);
        let judge = |role: Role| match role >= needed {
            true => Ok(()),
            false => Err(Denied::Needs(needed)),
        };
        match (headers.get(header::AUTHORIZATION), certificate) {
            (Some(value), _) => match self.holder(value.as_bytes()) {
                Some(token) => {
                    let name = token.name.clone();
                    let by = Means::Token;
                    (Who { by, name }, judge(token.role))
                }
                None => (Who::nobody(), Err(Denied::Unknown)),
            },
            (None, Some(certificate)) => {
                let (by, name) = (Means::Certificate, certificate.subject.clone());
                let role = self.role_of(certificate).ok_or(Denied::Certificate);
                (Who { by, name }, role.and_then(judge))
            }
            (None, None) => (Who::nobody(), Err(Denied::Unknown)),
        }
    }

    /// The token in a header; of several lines with it the one that may do most.
    fn holder(&self, header: &[u8]) -> Option<&Token> {
        let text = std::str::from_utf8(header).ok()?;
        let text = text.strip_prefix("Bearer ")?.trim();
        let known = self.tokens.iter().filter(|one| is_same(&one.text, text));
        known.max_by_key(|one| one.role)
    }

    /// What the holder of a certificate may do; of several lines the most.
    fn role_of(&self, certificate: &Certificate) -> Option<Role> {
        let is_its = |name: &CertificateName| match name {
            CertificateName::Common(name) => certificate.common_name.as_ref() == Some(name),
            CertificateName::Alternative(name) => certificate.alternative_names.contains(name),
        };
        let lines = self.certificates.iter();
        let roles = lines.filter_map(|(name, role)| is_its(name).then_some(*role));
        roles.max()
    }
}

/// A role, and a token with a name or what a certificate is known by.
fn read_line(line: &str) -> Option<Line> {
    let (role, rest) = line.split_once(char::is_whitespace)?;
    let roles = [Role::Read, Role::Operate, Role::Admin];
    let role = roles.into_iter().find(|one| one.name() == role)?;
    let rest = rest.trim();
    let name = |prefix| {
        let name: Option<&str> = rest.strip_prefix(prefix);
        name.map(str::trim).map(str::to_owned)
    };
    let certificate = match name("cn:") {
        Some(name) => Some(CertificateName::Common(name)),
        None => name("san:").map(CertificateName::Alternative),
    };
    match certificate {
        Some(CertificateName::Common(name) | CertificateName::Alternative(name))
            if name.is_empty() =>
        {
            None
        }
        Some(name) => Some(Line::Certificate(name, role)),
        None => token(rest, role).map(Line::Token),
    }
}

/// A token and its name; one without is called by what tells it from others and does not give it
/// away.
fn token(rest: &str, role: Role) -> Option<Token> {
    let (text, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let fits = text.len() >= TOKEN_LEAST && text.bytes().all(|byte| byte.is_ascii_graphic());
    let name = name.trim();
    let is_name = name.len() <= NAME_MOST && !name.chars().any(char::is_control);
    let name = match name {
        "" => {
            let [a, b, c, d, ..] = sha256(text.as_bytes());
            format!("sha256:{a:02x}{b:02x}{c:02x}{d:02x}")
        }
        name => name.to_owned(),
    };
    (fits && is_name).then(|| Token {
        text: text.to_owned(),
        role,
        name,
    })
}

/// Compares in a time that tells nothing of where two of a length differ.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && memcmp::eq(one.as_bytes(), other.as_bytes())
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
        Tokens::read(&path, true)
    }

    fn bearer(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let value = format!("Bearer {token}").parse().expect("it is text");
        headers.insert(header::AUTHORIZATION, value);
        headers
    }

    fn certificate(common_name: Option<&str>, names: &[&str]) -> Certificate {
        Certificate {
            subject: format!("CN={}", common_name.unwrap_or_default()),
            common_name: common_name.map(str::to_owned),
            alternative_names: names.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn operation(path: &str) -> &'static Operation {
        let found = OPERATIONS.iter().find(|it| it.path == path);
        found.expect("there is one")
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused() {
        let bad = format!("# ours\n\nread {READ}\nreed {READ}\n");
        let long = format!("read {READ} {}", "n".repeat(NAME_MOST + 1));
        for (text, mode, said) in [
            (format!("read {READ}"), 0o640, "chmod 600"),
            (bad, 0o600, "line 4"),
            (long, 0o600, "line 1"),
            ("read short".to_owned(), 0o600, "line 1"),
            ("read cn:".to_owned(), 0o600, "line 1"),
            ("cn:ops".to_owned(), 0o600, "line 1"),
            ("# none\n".to_owned(), 0o600, "no token"),
        ] {
            let Err(refused) = read(&text, mode) else {
                panic!("{text}");
            };
            assert!(refused.to_string().contains(said), "{refused}");
        }
        let scratch = Scratch::new("tokens-without-tls");
        let path = scratch.join("tokens");
        fs::write(&path, format!("read {READ}\nadmin cn:ops\n")).expect("it is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        let refused = Tokens::read(&path, false).expect_err("nothing looks at certificates");
        assert!(refused.to_string().contains("line 2"), "{refused}");
    }

    #[test]
    fn a_token_may_do_what_its_role_may() {
        let text = format!("# ours\nread {READ} prometheus\nadmin   {ADMIN}\n");
        let tokens = read(&text, 0o600).expect("it is good");
        let check = |token: &str, operation| tokens.check(operation, &bearer(token), None);
        for operation in OPERATIONS {
            let (who, may) = check(READ, operation);
            assert_eq!(who.name, "prometheus");
            let looks = operation.method == Method::GET && operation.path != "/audit";
            assert_eq!(may.is_ok(), looks, "{}", operation.path);
            assert!(check(ADMIN, operation).1.is_ok());
            for other in ["", "0123456789abcdeg", "0123456789abcde", &ADMIN[1..]] {
                let (who, may) = check(other, operation);
                assert_eq!(who, Who::nobody());
                assert!(matches!(may, Err(Denied::Unknown)));
            }
            let none = tokens.check(operation, &HeaderMap::new(), None);
            assert!(matches!(none.1, Err(Denied::Unknown)));
        }
        // Without a name, what is shown gives nothing away.
        let (who, _) = check(ADMIN, operation("/status"));
        assert!(who.name.starts_with("sha256:") && !who.name.contains(ADMIN));
    }

    #[test]
    fn a_certificate_may_do_what_the_line_of_its_name_says() {
        let text = "read cn:dash board\noperate san:ci.example\nadmin cn:ops\nread cn:ops\n";
        let tokens = read(text, 0o600).expect("it is good");
        assert!(tokens.is_without_tokens());
        let (status, delete) = (operation("/status"), operation("/pools/{name}/key"));
        let none = HeaderMap::new();
        for (common_name, names, looks, changes) in [
            (Some("dash board"), &[][..], true, false),
            (Some("ops"), &[], true, true),
            (None, &["x", "ci.example"], true, false),
            // What one kind of name says is nothing for the other.
            (Some("ci.example"), &["ops"], false, false),
            (Some("Ops"), &[], false, false),
            (Some("ops "), &[], false, false),
            (None, &[], false, false),
        ] {
            let shown = certificate(common_name, names);
            let (who, may) = tokens.check(status, &none, Some(&shown));
            assert_eq!((who.by, &who.name), (Means::Certificate, &shown.subject));
            assert_eq!(may.is_ok(), looks, "{shown:?}");
            let (_, may) = tokens.check(delete, &none, Some(&shown));
            assert_eq!(may.is_ok(), changes, "{shown:?}");
        }
        let ops = certificate(Some("ops"), &[]);
        let (who, may) = tokens.check(status, &bearer(READ), Some(&ops));
        assert_eq!(who, Who::nobody());
        assert!(matches!(may, Err(Denied::Unknown)), "a wrong token");
    }
}
