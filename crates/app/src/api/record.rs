//! What the audit log gets of a request: who asked what, with the body without secrets, and what
//! came of it.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::http::{Method, Uri};
use nix::unistd::{Uid, User};
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::access::Caller;
use super::answer::Problem;
use super::operations::Operation;
use super::serve::PREFIX;
use super::tls::shown;
use super::tokens::Denied;
use crate::audit::{self, Audit, Outcome};
use crate::control::{AuditRecord, ErrorKind, Request};
use crate::printable::printable;

/// So much of a body is kept.
const CHANGE_MOST: usize = 512;

/// Keys of a body with one of these in them may have a secret, or lead to one.
const SECRET: [&str; 6] = ["key", "pass", "secret", "token", "psk", "credential"];

/// What is written instead.
const LEFT_OUT: &str = "(left out)";

/// What is to be recorded of a request.
pub(super) struct Draft {
    audit: Arc<Audit>,
    record: AuditRecord,
    /// What came, until it is read.
    body: Bytes,
    /// What was left out of it: an error may quote that.
    secrets: Vec<String>,
    begun: Instant,
}

/// A request at work: it is recorded when this is dropped.
pub(super) struct Entry {
    draft: Draft,
    refused: Option<Problem>,
}

impl Draft {
    /// Somebody asks an operation.
    pub(super) fn new(
        audit: &Arc<Audit>,
        operation: &Operation,
        caller: Caller,
        uri: &Uri,
    ) -> Self {
        let query = uri.query().map(|query| format!("?{query}"));
        let asked = format!(
            "{} {}{}",
            operation.method,
            operation.path,
            query.unwrap_or_default()
        );
        let path = uri.path();
        let record = AuditRecord {
            number: 0,
            at: String::new(),
            by: caller.who.by,
            who: caller.who.name,
            uid: caller.uid,
            from: caller.from,
            operation: shown(&asked),
            object: shown(path.strip_prefix(PREFIX).unwrap_or(path)),
            change: String::new(),
            code: None,
            detail: String::new(),
            duration_us: 0,
        };
        Self {
            audit: Arc::clone(audit),
            record,
            body: Bytes::new(),
            secrets: Vec::new(),
            begun: Instant::now(),
        }
    }

    /// With the body that came.
    pub(super) fn with_body(mut self, body: &Bytes) -> Self {
        self.body = body.clone();
        self
    }

    /// Reads the body, which may be long: nobody else is to wait for that.
    fn read_body(&mut self) {
        (self.record.change, self.secrets) = shortened(&mem::take(&mut self.body));
    }

    /// With what it is about, where it was understood.
    pub(super) fn about(mut self, request: &Request) -> Self {
        if let Some((what, _)) = request.told() {
            self.record.object = shown(&what);
        }
        self
    }

    /// Who asked may not. Of many only some are recorded; the others wait for nothing.
    pub(super) async fn denied(self, why: &Denied, problem: &Problem) {
        let caller = match why {
            Denied::Unknown | Denied::Certificate => audit::Caller::Unknown,
            Denied::Needs(_) | Denied::OtherOrigin => audit::Caller::Known,
        };
        let Some(admission) = self.audit.admit(caller, Instant::now()) else {
            return;
        };
        let problem = problem.clone();
        let record = move || {
            let record = self.record(Some(&problem));
            self.audit.record_denied(record, &admission);
        };
        // It waits for a disk. That it fails is told by what it does.
        let _ = spawn_blocking(record).await;
    }

    /// It was refused before it came to anything.
    pub(super) async fn refused(mut self, problem: &Problem) {
        let problem = problem.clone();
        let record = move || {
            self.read_body();
            self.write(Some(&problem), Outcome::Refused);
        };
        // The same.
        let _ = spawn_blocking(record).await;
    }

    /// It is carried out now.
    pub(super) fn begin(self) -> Entry {
        let detail = "the target failed at this; its log says why".to_owned();
        Entry {
            draft: self,
            refused: Some(Problem::new(ErrorKind::Internal, detail)),
        }
    }

    fn write(&self, problem: Option<&Problem>, outcome: Outcome) {
        self.audit.record(self.record(problem), outcome);
    }

    fn record(&self, problem: Option<&Problem>) -> AuditRecord {
        let mut record = self.record.clone();
        if let Some(uid) = record.uid {
            // It may be looked up elsewhere, which takes its time.
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
            record.who = user.map_or_else(|| format!("uid {uid}"), |user| user.name);
        }
        record.code = problem.map(|problem| problem.code);
        let detail = problem.map_or_else(String::new, |problem| problem.detail.clone());
        record.detail = shown(&without(detail, &self.secrets));
        let taken = self.begun.elapsed().as_micros();
        record.duration_us = u64::try_from(taken).unwrap_or(u64::MAX);
        record
    }
}

impl Entry {
    /// To be called before it is carried out, where nobody else waits for that.
    pub(super) fn read_body(&mut self) {
        self.draft.read_body();
    }

    /// What came of it.
    pub(super) fn ended<T>(mut self, outcome: &Result<T, Problem>) {
        self.refused = outcome.as_ref().err().cloned();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.draft.write(self.refused.as_ref(), Outcome::CarriedOut);
    }
}

/// Whether what is asked may change something.
pub(super) fn is_recorded(operation: &Operation) -> bool {
    operation.method != Method::GET
}

/// A body as it is recorded, and what is left out of it.
fn shortened(body: &[u8]) -> (String, Vec<String>) {
    let mut secrets = Vec::new();
    if body.is_empty() {
        return (String::new(), secrets);
    }
    let Ok(mut body) = serde_json::from_slice(body) else {
        return ("(no JSON)".to_owned(), secrets);
    };
    leave_secrets_out(&mut body, &mut secrets);
    let text = printable(&body.to_string());
    let text = match text.char_indices().nth(CHANGE_MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    };
    (text, secrets)
}

fn leave_secrets_out(value: &mut Value, secrets: &mut Vec<String>) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                let key = key.to_ascii_lowercase();
                match SECRET.iter().any(|word| key.contains(word)) && !value.is_null() {
                    true => {
                        collect(value, secrets);
                        *value = LEFT_OUT.into();
                    }
                    false => leave_secrets_out(value, secrets),
                }
            }
        }
        Value::Array(all) => {
            for value in all {
                leave_secrets_out(value, secrets);
            }
        }
        _ => {}
    }
}

/// All texts and numbers in something that is left out, as an error may quote them.
fn collect(value: &Value, secrets: &mut Vec<String>) {
    let mut add = |text: &str| {
        let quoted = text.escape_debug().to_string();
        // A place such as `file:PATH` is told without its first word.
        let place = text.split_once(':').map(|(_, place)| place.to_owned());
        let all = [Some(text.to_owned()), Some(quoted), place];
        secrets.extend(all.into_iter().flatten().filter(|it| !it.is_empty()));
    };
    match value {
        Value::String(text) => add(text),
        Value::Number(number) => add(&number.to_string()),
        Value::Array(all) => all.iter().for_each(|value| collect(value, secrets)),
        Value::Object(keys) => {
            for (key, value) in keys {
                secrets.push(key.clone());
                collect(value, secrets);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// A text in which nothing stands that is left out elsewhere.
fn without(text: String, secrets: &[String]) -> String {
    let secrets = secrets.iter();
    secrets.fold(text, |text, secret| text.replace(&**secret, LEFT_OUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_a_body_is_recorded() {
        for (body, recorded) in [
            (r#"{"name":"v","size":4096}"#, r#"{"name":"v","size":4096}"#),
            (
                r#"{"name":"d","key":"command:/bin/x hunter2"}"#,
                r#"{"name":"d","key":"(left out)"}"#,
            ),
            (
                r#"{"file":{"device":[{"key":"file:/k","crypt":{"Passphrase":["hunter2"]}}]}}"#,
                r#"{"file":{"device":[{"key":"(left out)","crypt":{"Passphrase":"(left out)"}}]}}"#,
            ),
            (
                r#"[{"api_token":{"a":"hunter2"}}]"#,
                r#"[{"api_token":"(left out)"}]"#,
            ),
            (r#"{"key":null}"#, r#"{"key":null}"#),
            ("", ""),
            // What a terminal would obey, whether it is escaped in the body or not.
            (
                "{\"name\":\"a\u{7f}\u{9b}31m\u{202e}b\\u001b[2J\"}",
                r#"{"name":"a??31m?b\u001b[2J"}"#,
            ),
            ("hunter2", "(no JSON)"),
            (r#"{"key":"hunter2""#, "(no JSON)"),
        ] {
            assert_eq!(shortened(body.as_bytes()).0, recorded);
        }
        let long = format!("{{\"name\":\"{}\"}}", "é".repeat(CHANGE_MOST));
        let (short, _) = shortened(long.as_bytes());
        assert!(short.ends_with("é...") && short.chars().count() == CHANGE_MOST + 3);
    }
}
