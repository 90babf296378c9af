//! Where secrets are: as it is written, and what is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flashyard_keys::{Envelope, KeySource, Secret, SecretKind, draw};

fn source(text: &str) -> KeySource {
    text.parse().expect("a place of a key")
}

/// Whether two secrets open the same.
fn alike(one: &Secret, other: &Secret) -> bool {
    let key = draw().expect("there is chance");
    let sealed = Envelope::seal(&key, one, b"").expect("it can be sealed");
    sealed.open(other, b"").is_ok()
}

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("flashyard-keys-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_source_is_written_as_it_is_read() {
    for text in [
        "file:/etc/flashyard/a.key",
        "command:/usr/bin/vault read -field=key disk0",
        "credential:disk0",
        "passphrase-file:/etc/flashyard/a",
        "passphrase-command:systemd-ask-password --timeout=0 disk0",
        "passphrase-credential:disk0.x",
    ] {
        let source = source(text);
        assert_eq!(source.to_string(), text);
        let expected = match text.starts_with("passphrase-") {
            true => SecretKind::Passphrase,
            false => SecretKind::Key,
        };
        assert_eq!(source.kind, expected);
    }
    let within = |text| source(text).within(Path::new("/etc")).to_string();
    assert_eq!(within("file:a.key"), "file:/etc/a.key");
    assert_eq!(within("file:/a.key"), "file:/a.key");
    for text in [
        "",
        "a.key",
        "file:",
        "command:",
        "command: ",
        "credential:",
        "credential:a/b",
        "credential:..",
        "secret",
        "passphrase-",
        "passphrase:x",
        "passphrase-passphrase-file:x",
    ] {
        let error = text.parse::<KeySource>().expect_err(text).to_string();
        assert!(error.contains("give file:PATH"), "{error}");
    }
}

#[test]
fn files_give_keys_and_passphrases() {
    let folder = Folder::new("files");
    let key = folder.file("key", &[b'\n'; 32], 0o600);
    let phrase = folder.file("phrase", b"open sesame\n", 0o640);
    let key = source(&format!("file:{key}")).fetch().expect("a key");
    let phrase = source(&format!("passphrase-file:{phrase}")).fetch();
    let phrase = phrase.expect("a passphrase");
    // The end of the line is not a part of a passphrase, and is one of a key.
    let typed = Secret::new(SecretKind::Passphrase, b"open sesame".to_vec());
    assert!(alike(&phrase, &typed));
    assert!(alike(&key, &Secret::new(SecretKind::Key, vec![b'\n'; 32])));
}

#[test]
fn what_is_no_secret_is_refused_with_what_to_do() {
    let folder = Folder::new("refused");
    let missing = folder.0.join("none").display().to_string();
    let open = folder.file("open", &[7; 32], 0o644);
    let short = folder.file("short", &[7; 31], 0o600);
    let long = folder.file("long", &[7; 4097], 0o600);
    let empty = folder.file("empty", b"\n", 0o600);
    for (text, expected) in [
        (
            format!("file:{missing}"),
            format!("cannot read the key file {missing}: No such file"),
        ),
        (format!("file:{open}"), format!("chmod 600 {open}")),
        (
            format!("file:{short}"),
            "gave 31 bytes; a key has 32 at least".into(),
        ),
        (format!("file:{long}"), "gave more than 4096 bytes".into()),
        (
            format!("passphrase-file:{empty}"),
            "gave an empty passphrase".into(),
        ),
        (
            "command:/no/such/program".into(),
            "cannot start `command:/no/such/program`".into(),
        ),
        (
            "command:ls /no/such/folder".into(),
            "`command:ls` gave no key: exit status: 2".into(),
        ),
        ("command:true".into(), "gave 0 bytes".into()),
        ("credential:disk0".into(), "LoadCredential=disk0:".into()),
    ] {
        let error = source(&text).fetch().expect_err(&text).to_string();
        assert!(error.contains(&expected), "{text}: {error}");
    }
}

#[test]
fn a_command_gives_what_it_writes() {
    let folder = Folder::new("command");
    let phrase = folder.file("phrase", b"open sesame\n", 0o600);
    let secret = source(&format!("passphrase-command:cat {phrase}")).fetch();
    let typed = Secret::new(SecretKind::Passphrase, b"open sesame".to_vec());
    assert!(alike(&secret.expect("a passphrase"), &typed));
    // One that writes without an end is stopped where no secret goes on.
    let endless = source("command:cat /dev/zero").fetch();
    let error = endless.expect_err("it is no key").to_string();
    assert!(error.contains("gave no key"), "{error}");
}

/// Whatever is wrong with them: what may be the secret itself is not told, for it goes to logs.
#[test]
fn no_error_tells_a_secret() {
    let error = "hunter2".parse::<KeySource>().expect_err("no place");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let folder = Folder::new("told");
    let talks = folder.file("talks", b"echo $1 >&2; exit 3", 0o600);
    for command in [
        "/no/such/program --password hunter2".to_owned(),
        "true hunter2".to_owned(),
        "cat /dev/zero hunter2".to_owned(),
        format!("sh {talks} hunter2"),
    ] {
        let error = source(&format!("command:{command}")).fetch();
        let error = error.expect_err(&command).to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let program = command.split(' ').next().expect("a word");
        assert!(error.contains(&format!("command:{program}")), "{error}");
    }
}
