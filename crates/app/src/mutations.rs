//! What a user gives the program, changed by chance: configuration files and requests.

use std::path::Path;

use flashyard_corpus::{inputs, try_all};

use crate::api::tests::{called, understood};
use crate::control::{How, Request};
use crate::spec::{Config, Document};

/// Reads bytes as a configuration file. What is accepted can be sent to a target as it is.
fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Document::parse(text, Path::new("/")) {
        Ok(file) => again(&Request::Apply {
            file,
            how: How::default(),
        }),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Reads bytes as a request over HTTP. What is understood is said and understood again.
fn request(bytes: &[u8]) {
    let Some(request) = understood(bytes) else {
        return;
    };
    again(&request);
    if let Request::Apply { file, .. } = &request {
        // What is wrong with it is for the target to tell.
        let _wrong = file.to_config();
    }
}

fn again(request: &Request) {
    let call = called(request);
    let read = understood(call.as_bytes());
    assert_eq!(read.as_ref(), Some(request), "{call}");
}

#[test]
fn the_inputs_are_good() {
    for input in inputs("config") {
        let text = String::from_utf8(input).expect("it is text");
        let parsed = Config::parse(&text);
        assert!(parsed.is_ok(), "{parsed:?}");
    }
    for input in inputs("request") {
        assert!(understood(&input).is_some(), "{input:?}");
    }
}

#[test]
fn no_configuration_file_panics() {
    try_all("config", 2000, config);
}

#[test]
fn no_request_panics() {
    try_all("request", 5000, request);
}
