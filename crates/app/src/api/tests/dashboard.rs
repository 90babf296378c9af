//! The dashboard as it is served, and that it asks for nothing that is not there.

use std::collections::BTreeSet;

use super::super::dashboard::ASSETS;
use super::super::openapi::document;
use super::sockets::Rig;

/// All that comes back, headers in small letters.
fn get(rig: &Rig, path: &str, more: &str) -> (String, String) {
    let answer = rig.request(
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
            .as_bytes(),
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("it has an end");
    (head.to_ascii_lowercase(), body.to_owned())
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("no {name} in {head}"))
}

#[test]
fn every_file_has_its_type_its_policy_and_its_tag() {
    let rig = Rig::start("dashboard", |_| {});
    for asset in ASSETS {
        let (head, body) = get(&rig, asset.path, "");
        assert!(head.starts_with("http/1.1 200"), "{}: {head}", asset.path);
        assert_eq!(body, asset.text);
        let kind = match asset.path.rsplit_once('.') {
            None => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            Some(_) => panic!("{} has no type", asset.path),
        };
        assert_eq!(header(&head, "content-type"), kind);
        assert_eq!(header(&head, "x-content-type-options"), "nosniff");
        let policy = header(&head, "content-security-policy");
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{policy}"
        );
        let tag = header(&head, "etag");
        for known in [tag.to_owned(), format!("\"x\", W/{tag}")] {
            let (head, body) = get(&rig, asset.path, &format!("If-None-Match: {known}\r\n"));
            assert!(head.starts_with("http/1.1 304"), "{head}");
            assert_eq!((body.as_str(), header(&head, "etag")), ("", tag));
        }
        let (head, _) = get(&rig, asset.path, "If-None-Match: \"0\"\r\n");
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    assert_eq!(rig.executed(), 0);
}

/// Another host is named nowhere, but in what SVG calls itself.
#[test]
fn no_file_names_another_host() {
    let mut bytes = 0;
    for asset in ASSETS {
        let own = "xmlns=\"http://www.w3.org/2000/svg\"";
        let text = asset.text.replace(own, "");
        assert!(
            !text.contains("//www") && !text.contains("://"),
            "{}",
            asset.path
        );
        let inline = ["<style", "style=", " onclick=", "<script>", "eval("];
        for word in inline {
            assert!(!text.contains(word), "{} has {word}", asset.path);
        }
        bytes += asset.text.len();
    }
    assert!(bytes < 100 << 10, "{bytes} bytes are more than was meant");
}

/// Whatever a file takes from another one is served, and every module is taken by one.
#[test]
fn modules_find_each_other() {
    let mut taken = BTreeSet::new();
    for asset in ASSETS {
        let folder = asset.path.rsplit_once('/').expect("a path").0;
        for (before, quote) in [
            (" from \"", '"'),
            ("href=\"dashboard/", '"'),
            ("src=\"dashboard/", '"'),
        ] {
            for part in asset.text.split(before).skip(1) {
                let name = part.split(quote).next().expect("a part");
                let path = match name.strip_prefix("../") {
                    Some(rest) => format!("/dashboard/{rest}"),
                    None if folder.is_empty() => format!("/dashboard/{name}"),
                    None => format!("{folder}/{}", name.trim_start_matches("./")),
                };
                assert!(
                    ASSETS.iter().any(|one| one.path == path),
                    "{} takes {path}",
                    asset.path
                );
                taken.insert(path);
            }
        }
    }
    for asset in ASSETS.iter().filter(|asset| asset.path != "/") {
        assert!(taken.contains(asset.path), "nobody takes {}", asset.path);
    }
}

/// Every call of `ask` is an operation of the document.
#[test]
fn every_call_is_an_operation() {
    let document = document();
    let module = ASSETS.iter().find(|one| one.path == "/dashboard/api.js");
    let text = module.expect("it is there").text;
    let mut found = 0;
    for call in text.split("ask(\"").skip(1) {
        let (method, rest) = call.split_once("\", ").expect("a method");
        let all = rest.split(['"', '`']).skip(1).step_by(2);
        for path in all.filter(|part| part.starts_with('/')) {
            let path = path.split('?').next().expect("a path");
            let path = path.replace("${", "{").replace([')', '('], "");
            // The name of what it is about.
            let parts = path.split('/').map(|part| match part.starts_with('{') {
                true => "{name}",
                false => part,
            });
            let path = parts.collect::<Vec<_>>().join("/");
            let operation = &document["paths"][&path][method.to_ascii_lowercase()];
            assert!(!operation.is_null(), "{method} {path} is no operation");
            found += 1;
        }
    }
    assert!(found >= 15, "only {found} calls");
    let elsewhere = ASSETS.iter().filter(|one| one.path != "/dashboard/api.js");
    for asset in elsewhere {
        assert!(
            !asset.text.contains("fetch("),
            "{} asks by itself",
            asset.path
        );
    }
}
