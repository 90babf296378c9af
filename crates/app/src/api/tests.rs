//! Requests as HTTP calls and back, and the socket and TLS under clients of every kind.

mod audit;
mod certificates;
mod dashboard;
mod requests;
mod sockets;
mod tls;

use std::collections::{BTreeSet, HashMap};

use super::answer::Problem;
use super::call::Call;
use super::operations::{OPERATIONS, Operation};
use super::parts::Parts;
use crate::control::{ErrorKind, Request};

/// The operation at a path, and the names in it, as the router finds them.
fn operation(method: &str, path: &str) -> Option<(&'static Operation, HashMap<String, String>)> {
    let decoded = |part: &str| {
        let text = percent_encoding::percent_decode_str(part).decode_utf8();
        text.ok().map(String::from)
    };
    OPERATIONS.iter().find_map(|operation| {
        let template: Vec<&str> = operation.path.split('/').collect();
        let parts: Vec<&str> = path.split('/').collect();
        if operation.method.as_str() != method || template.len() != parts.len() {
            return None;
        }
        let mut names = HashMap::new();
        for (name, part) in template.into_iter().zip(parts) {
            match name
                .strip_prefix('{')
                .and_then(|name| name.strip_suffix('}'))
            {
                Some(name) => drop(names.insert(name.to_owned(), decoded(part)?)),
                None if name == part => {}
                None => return None,
            }
        }
        Some((operation, names))
    })
}

/// Reads bytes as a call: method and target in a line, and the body behind it.
pub(crate) fn understood(bytes: &[u8]) -> Option<Request> {
    read(std::str::from_utf8(bytes).ok()?).ok()
}

fn read(call: &str) -> Result<Request, Problem> {
    let nothing = || Problem::new(ErrorKind::NotFound, "there is no such operation".to_owned());
    let (line, body) = call.split_once('\n').unwrap_or((call, ""));
    let (method, target) = line.split_once(' ').ok_or_else(nothing)?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let follow = path.ends_with("/calibration") || path.ends_with("/migration");
    let (operation, names) = operation(method, path).ok_or_else(nothing)?;
    let parts = Parts::new(operation.query, names, query, body.as_bytes(), follow);
    let read = parts.and_then(operation.read);
    read.map_err(|why| Problem::of(&why))
}

/// A request as [`understood`] reads it.
pub(crate) fn called(request: &Request) -> String {
    let call = Call::of(request);
    format!("{} {}\n{}", call.method, call.target, call.body)
}

/// Every request arrives as it was asked, and every operation is asked by one.
#[test]
fn every_request_has_its_call() {
    let mut seen = BTreeSet::new();
    for call in requests::CALLS {
        let request = read(call).unwrap_or_else(|why| panic!("{call}: {why:?}"));
        assert_eq!(called(&request), *call, "{request:?}");
        let (method, rest) = call.split_once(' ').expect("a method");
        let path = rest.split(['?', '\n']).next().expect("a path");
        let (operation, _) = operation(method, path).expect("it was read");
        seen.insert((operation.method.as_str(), operation.path));
    }
    for operation in OPERATIONS {
        let known = (operation.method.as_str(), operation.path);
        assert!(seen.contains(&known), "{known:?} is asked by no request");
    }
}

#[test]
fn what_is_no_request_is_told() {
    for (call, said) in requests::REFUSED {
        let refused = read(call).expect_err("it is no request").detail;
        assert!(refused.contains(said), "{call}: {refused}");
    }
}
