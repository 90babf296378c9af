//! What a user gives the program, changed by chance: configuration files and control messages.

use std::path::Path;

use flashyard_corpus::{inputs, try_all};

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

/// Reads bytes as a control message. What is understood is said and understood again.
fn request(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Request>(bytes) else {
        return;
    };
    again(&request);
    if let Request::Apply { file, .. } = &request {
        // What is wrong with it is for the target to tell.
        let _wrong = file.to_config();
    }
}

fn again(request: &Request) {
    let text = serde_json::to_string(request).expect("requests are plain data");
    let read: Request = serde_json::from_str(&text).expect("it was written");
    assert_eq!(read, *request, "{text}");
}

#[test]
fn the_inputs_are_good() {
    for input in inputs("config") {
        let text = String::from_utf8(input).expect("it is text");
        let parsed = Config::parse(&text);
        assert!(parsed.is_ok(), "{parsed:?}");
    }
    for input in inputs("request") {
        let parsed = serde_json::from_slice::<Request>(&input);
        assert!(parsed.is_ok(), "{parsed:?}");
    }
}

#[test]
fn no_configuration_file_panics() {
    try_all("config", 2000, config);
}

#[test]
fn no_control_message_panics() {
    try_all("request", 5000, request);
}
