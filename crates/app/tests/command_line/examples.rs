//! The configurations in `examples/`, and the one that is installed: each is applied as it stands.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::rig::{Scratch, Target, changed, path};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Codes of what is wrong that says that something is not there.
fn missing(target: &Target) -> Vec<Value> {
    let health = target.json(&["health"]);
    let problems = health["problems"].as_array().expect("a list").iter();
    let failed = problems.filter(|row| row["severity"] == "failed" || row["code"] == "UNAVAILABLE");
    failed.cloned().collect()
}

#[test]
fn each_example_does_what_it_says() {
    let mut tried = Vec::new();
    for entry in fs::read_dir(top().join("examples")).expect("there are examples") {
        let example = entry.expect("it can be read").path();
        let name = example.file_name().and_then(|name| name.to_str());
        let name = name.expect("a plain name").to_owned();
        let scratch = Scratch::new(&name);
        let file = scratch.join(&name);
        fs::copy(&example, &file).expect("it is ours");
        let key = scratch.file("pool.key", "thirty-two bytes of no chance at all");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");

        let target = Target::start(&scratch, &[]);
        let planned = target.json(&["apply", path(&file), "--plan"]);
        assert_eq!(planned["done"], false, "{name}");
        let planned = changed(&planned);
        assert!(
            planned.contains(&"device ssd0 kind".to_owned()),
            "{name}: {planned:?}"
        );
        assert_eq!(target.json(&["device", "list"]), Value::Array(Vec::new()));
        let applied = target.json(&["apply", path(&file)]);
        assert_eq!(changed(&applied), planned, "{name}");
        assert_eq!(missing(&target), Vec::<Value>::new(), "{name}");
        assert_eq!(target.terminate(), 0);

        // Once more at a start, where it changes nothing.
        let again = Target::start(&scratch, &["--config", path(&file)]);
        let plan = again.json(&["apply", path(&file), "--plan"]);
        assert_eq!(changed(&plan), [""; 0], "{name}");
        assert_eq!(missing(&again), Vec::<Value>::new(), "{name}");
        tried.push(name);
    }
    assert!(tried.len() >= 5, "{tried:?}");
}

/// Nothing in it holds, so that nothing that is set by hand is undone at the next start; and what
/// is commented out is a configuration.
#[test]
fn the_file_that_is_installed_says_nothing_until_somebody_writes_in_it() {
    let installed = fs::read_to_string(top().join("packaging/flashyard.toml"));
    let installed = installed.expect("it is there");
    let scratch = Scratch::new("installed");
    let file = scratch.file("flashyard.toml", &installed);
    let target = Target::start(&scratch, &["--config", path(&file)]);
    target.json(&["tenant", "create", "db", "--host", "*"]);
    let plan = target.json(&["apply", path(&file), "--plan"]);
    assert_eq!(changed(&plan), [""; 0]);

    let lines = installed.lines().filter_map(|line| line.strip_prefix("# "));
    let lines = lines.skip_while(|line| !line.starts_with('['));
    let written = lines.collect::<Vec<_>>().join("\n");
    let written = written.replace("192.0.2.10:4420", "127.0.0.1:0");
    let file = scratch.file("written.toml", &written);
    let plan = changed(&target.json(&["apply", path(&file), "--plan"]));
    for key in ["target listen", "device ssd0 path", "volume orders size"] {
        assert!(plan.contains(&key.to_owned()), "{key}: {plan:?}");
    }
}
