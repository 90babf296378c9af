//! TLS before the API: who gets in, and who does not.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashyard_testbed::Scratch;
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVersion};
use openssl::symm::Cipher;

use super::super::slots::Slots;
use super::super::tls::store;
use super::super::{
    AccessFiles, Api, Place, Remote, RemoteFiles, Renewal, Tcp, TlsFiles, ask as ask_target,
};
use super::certificates::{For, Pair, Wish};
use crate::audit::Audit;
use crate::control::{Asker, KindName, Page, Request};
use crate::listening::Listening;

const TOKEN: &str = "0123456789abcdef";

/// A listening API behind TLS.
struct Rig {
    _api: Api,
    directory: Scratch,
    authority: Pair,
    at: SocketAddr,
    renewal: Renewal,
}

/// The files of a target, as an operator would put them there.
fn files(directory: &Path, authority: &Pair, tokens: &str, client_ca: bool) -> AccessFiles {
    let (cert, key) = authority
        .signed("target", For::Server)
        .write(directory, "target");
    let client_ca = client_ca.then(|| authority.write(directory, "ca").0);
    let path = directory.join("tokens");
    put_tokens(&path, tokens);
    AccessFiles {
        tokens: path,
        tls: Some(TlsFiles {
            cert,
            key,
            client_ca,
        }),
    }
}

fn put_tokens(path: &Path, text: &str) {
    fs::write(path, text).expect("it is ours");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

impl Rig {
    fn start(name: &str, tokens: &str, client_ca: bool) -> Self {
        Self::start_at(any(), name, tokens, client_ca)
    }

    fn start_at(address: SocketAddr, name: &str, tokens: &str, client_ca: bool) -> Self {
        let directory = Scratch::new(name);
        let authority = Pair::authority("authority");
        let files = files(&directory, &authority, tokens, client_ca);
        let tcp = Tcp::open(address, files, &Listening::default()).expect("the files are good");
        let (at, renewal) = (tcp.local().expect("it listens"), tcp.renewal());
        let audit = Arc::new(Audit::none());
        let api = Api::start(&directory, Some(tcp), audit, |_, _: &dyn Asker| {
            Ok::<u32, String>(7)
        });
        Self {
            _api: api.expect("it listens"),
            directory,
            authority,
            at,
            renewal,
        }
    }

    /// A client that trusts the authority, with a certificate if it has one.
    fn client(&self, own: Option<&Pair>) -> SslConnector {
        let mut client = SslConnector::builder(SslMethod::tls()).expect("there is TLS");
        let trusted = store(std::slice::from_ref(&self.authority.certificate));
        client.set_cert_store(trusted.expect("it is one"));
        if let Some(own) = own {
            let set = client.set_certificate(&own.certificate);
            set.and_then(|()| client.set_private_key(&own.key))
                .expect("they belong together");
        }
        client.build()
    }

    fn connect(&self, client: &SslConnector) -> Result<SslStream<TcpStream>, String> {
        let stream = TcpStream::connect(self.at).expect("it listens");
        let connected = client.connect("localhost", stream);
        connected.map_err(|error| error.to_string())
    }

    /// What `method path` is answered with; nothing where the connection ends before.
    fn ask(&self, own: Option<&Pair>, request: &str, token: Option<&str>) -> String {
        let Ok(mut stream) = self.connect(&self.client(own)) else {
            return String::new();
        };
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        ask(&mut stream, request, &token.unwrap_or_default())
    }
}

fn ask(stream: &mut SslStream<TcpStream>, request: &str, headers: &str) -> String {
    let text =
        format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    let mut answer = Vec::new();
    // In TLS 1.3 a client hears with the answer that it is refused.
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

const STATUS: &str = "GET /api/v1/status";
const DELETE: &str = "DELETE /api/v1/pools/p";

/// Real TLS 1.3, and a token as without it.
#[test]
fn a_token_gets_in_over_tls_of_today() {
    let rig = Rig::start("tls", &format!("read {TOKEN} ci\n"), false);
    let answer = rig.ask(None, STATUS, Some(TOKEN));
    assert!(
        answer.contains("200 OK") && answer.ends_with("7\n"),
        "{answer}"
    );
    for (request, token, said) in [
        (STATUS, None, "a token is needed"),
        (STATUS, Some("fedcba9876543210"), "a token is needed"),
        (DELETE, Some(TOKEN), "the role `admin`"),
    ] {
        let answer = rig.ask(None, request, token);
        assert!(answer.contains("403") && answer.contains(said), "{answer}");
    }
    let stream = rig.connect(&rig.client(None)).expect("it trusts it");
    assert_eq!(stream.ssl().version_str(), "TLSv1.3");
    assert_eq!(stream.ssl().selected_alpn_protocol(), None);

    let other = |change: fn(&mut openssl::ssl::SslConnectorBuilder)| {
        let mut client = SslConnector::builder(SslMethod::tls()).expect("there is TLS");
        let trusted = store(std::slice::from_ref(&rig.authority.certificate));
        client.set_cert_store(trusted.expect("it is one"));
        change(&mut client);
        rig.connect(&client.build())
    };
    let chosen = other(|client| client.set_alpn_protos(b"\x02h2\x08http/1.1").expect("two"));
    let chosen = chosen.expect("one of them is spoken");
    assert_eq!(
        chosen.ssl().selected_alpn_protocol(),
        Some(&b"http/1.1"[..])
    );
    let refused = other(|client| client.set_alpn_protos(b"\x02h2").expect("one"));
    assert!(refused.is_err(), "HTTP/2 is not spoken");
    let refused = other(|client| {
        let old = client.set_max_proto_version(Some(SslVersion::TLS1_2));
        old.expect("it was once spoken");
    });
    assert!(refused.is_err(), "TLS 1.2 is not spoken");
    // No session: the certificate of a client is looked at each time.
    let again = rig.connect(&rig.client(None)).expect("it trusts it");
    assert!(!again.ssl().session_reused());
}

/// Whoever speaks the other of the two is told, and the next one is served.
#[test]
fn http_is_not_taken_for_tls() {
    let rig = Rig::start("tls-plain", &format!("read {TOKEN}\n"), false);
    let mut plain = TcpStream::connect(rig.at).expect("it listens");
    plain
        .write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    plain.read_to_string(&mut answer).expect("it answers");
    assert!(
        answer.contains("400") && answer.contains("https://"),
        "{answer}"
    );
    assert!(rig.ask(None, STATUS, Some(TOKEN)).contains("200 OK"));

    let directory = Scratch::new("plain-tls");
    let tokens = directory.join("tokens");
    put_tokens(&tokens, &format!("read {TOKEN}\n"));
    let files = AccessFiles { tokens, tls: None };
    let tcp = Tcp::open(any(), files, &Listening::default()).expect("the file is good");
    let at = tcp.local().expect("it listens");
    let audit = Arc::new(Audit::none());
    let _api = Api::start(&directory, Some(tcp), audit, |_, _: &dyn Asker| {
        Ok::<u32, String>(7)
    })
    .expect("it listens");
    let stream = TcpStream::connect(at).expect("it listens");
    assert!(rig.client(None).connect("localhost", stream).is_err());
    let mut stream = TcpStream::connect(at).expect("it listens");
    let text = format!(
        "{STATUS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.contains("200 OK"), "{answer}");
}

/// A client shows a certificate where nothing else is known of anybody.
#[test]
fn a_certificate_gets_in_by_the_line_of_its_name() {
    let rig = Rig::start("mutual", "read cn:reader\nadmin san:ops.example\n", true);
    let of = |name: &str| rig.authority.signed(name, For::Client);
    let stranger = Pair::authority("authority").signed("reader", For::Client);
    let wish = |days, purpose| {
        rig.authority.sign(&Wish {
            name: "reader",
            purpose,
            days,
        })
    };
    for (what, own, request, said) in [
        ("a reader", Some(of("reader")), STATUS, "200 OK"),
        ("a reader", Some(of("reader")), DELETE, "the role `admin`"),
        ("an administrator", Some(of("ops")), DELETE, "200 OK"),
        ("no line", Some(of("other")), STATUS, "no role is given"),
        ("none", None, STATUS, ""),
        ("another authority", Some(stranger), STATUS, ""),
        ("expired", Some(wish((-9, -1), For::Client)), STATUS, ""),
        ("not yet valid", Some(wish((1, 9), For::Client)), STATUS, ""),
        ("of a server", Some(wish((-1, 9), For::Server)), STATUS, ""),
    ] {
        let answer = rig.ask(own.as_ref(), request, None);
        match said {
            "" => assert_eq!(answer, "", "{what}"),
            said => assert!(answer.contains(said), "{what}: {answer}"),
        }
    }
    // A token says nothing where there are none.
    assert_eq!(rig.ask(None, STATUS, Some(TOKEN)), "");
}

/// Where there are tokens too, either will do; a bad certificate does not.
#[test]
fn a_client_has_a_token_or_a_certificate() {
    let rig = Rig::start("either", &format!("read {TOKEN} ci\nadmin cn:ops\n"), true);
    let ops = rig.authority.signed("ops", For::Client);
    let stranger = Pair::authority("another").signed("ops", For::Client);
    for (own, request, token, said) in [
        (None, STATUS, Some(TOKEN), "200 OK"),
        (None, STATUS, None, "a token is needed"),
        (Some(&ops), DELETE, None, "200 OK"),
        // Who sends a token is known by it.
        (Some(&ops), DELETE, Some(TOKEN), "the role `admin`"),
        (Some(&stranger), STATUS, Some(TOKEN), ""),
    ] {
        let answer = rig.ask(own, request, token);
        match said {
            "" => assert_eq!(answer, ""),
            said => assert!(answer.contains(said), "{said}: {answer}"),
        }
    }
}

/// Those who say nothing hold nothing: they give way to each other, and to nobody who is in.
#[test]
fn who_does_not_shake_hands_keeps_nobody_out() {
    let rig = Rig::start("silent", &format!("read {TOKEN}\n"), false);
    let mut served = rig.connect(&rig.client(None)).expect("it trusts it");
    let mut silent: Vec<TcpStream> = (0..3 * Slots::MOST)
        .map(|place| {
            let mut stream = TcpStream::connect(rig.at).expect("it listens");
            if place % 2 == 0 {
                // The beginning of a record that does not come.
                stream.write_all(&[22, 3, 1, 2, 0, 1]).expect("it is open");
            }
            stream
        })
        .collect();
    assert!(rig.ask(None, STATUS, Some(TOKEN)).contains("200 OK"));
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    assert!(ask(&mut served, STATUS, &token).contains("200 OK"));
    let mut nothing = Vec::new();
    // It has gone already, or it never does.
    let patience = Some(std::time::Duration::from_secs(30));
    silent[0].set_read_timeout(patience).expect("it is ours");
    // A connection that is closed with bytes unread ends so.
    let end = silent[0].read_to_end(&mut nothing);
    assert!(end.is_ok() || end.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset));
    assert!(nothing.is_empty(), "the oldest has gone");
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let directory = Scratch::new("tls-files");
    let authority = Pair::authority("authority");
    let good = files(&directory, &authority, &format!("read {TOKEN}\n"), true);
    assert!(Tcp::open(any(), good.clone(), &Listening::default()).is_ok());
    let open = |change: &dyn Fn(&mut TlsFiles)| {
        let mut files = good.clone();
        change(files.tls.as_mut().expect("there is TLS"));
        Tcp::open(any(), files, &Listening::default())
            .expect_err("they are bad")
            .to_string()
    };
    let other = authority.signed("other", For::Server);
    let (_, other_key) = other.write(&directory, "other");
    let refused = open(&|files| files.key.clone_from(&other_key));
    assert!(refused.contains("belong together"), "{refused}");
    fs::set_permissions(&other_key, fs::Permissions::from_mode(0o640)).expect("it is ours");
    let refused = open(&|files| files.key.clone_from(&other_key));
    assert!(refused.contains("chmod 600"), "{refused}");
    let text = directory.join("text");
    fs::write(&text, "hello").expect("it is ours");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let refused = open(&|files| files.cert.clone_from(&text));
    assert!(refused.contains("no certificate"), "{refused}");
    let refused = open(&|files| files.client_ca = Some(text.clone()));
    assert!(refused.contains("no certificate"), "{refused}");
    let refused = open(&|files| files.key.clone_from(&text));
    assert!(refused.contains("no private key"), "{refused}");
    let refused = open(&|files| files.cert = PathBuf::from("/nowhere/at/all"));
    assert!(refused.contains("cannot read /nowhere/at/all"), "{refused}");
    // It wants a passphrase, and nobody is there to type it.
    let locked = other
        .key
        .private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"hunter2")
        .expect("it has a form");
    fs::write(&text, locked).expect("it is ours");
    let refused = open(&|files| files.key.clone_from(&text));
    assert!(refused.contains("wants a passphrase"), "{refused}");
}

/// A renewed certificate is shown from then on, and a bad one is not; who is connected comes again.
#[test]
fn files_are_read_anew_as_one() {
    let rig = Rig::start("renewed", &format!("read {TOKEN}\nadmin cn:ops\n"), true);
    let shown = || {
        let stream = rig.connect(&rig.client(None)).expect("it trusts it");
        let shown = stream.ssl().peer_certificate().expect("it has one");
        shown.serial_number().to_bn().expect("a number").to_vec()
    };
    let first = shown();
    let ops = rig.authority.signed("ops", For::Client);
    let mut idle = rig.connect(&rig.client(Some(&ops))).expect("it trusts it");
    assert!(rig.ask(Some(&ops), DELETE, None).contains("200 OK"));

    rig.authority
        .signed("target", For::Server)
        .write(&rig.directory, "target");
    assert_eq!(shown(), first, "nobody has said so");
    rig.renewal.renew().expect("the files are good");
    let second = shown();
    assert_ne!(second, first);
    let mut end = Vec::new();
    idle.read_to_end(&mut end)
        .expect("it is closed in good order");
    assert!(end.is_empty());

    // The new certificate is there and its key is not yet.
    let next = rig.authority.signed("target", For::Server);
    let pem = next.certificate.to_pem().expect("it has a form");
    fs::write(rig.directory.join("target.crt"), pem).expect("it is ours");
    put_tokens(&rig.directory.join("tokens"), &format!("admin {TOKEN}\n"));
    let refused = rig.renewal.renew().expect_err("they do not fit");
    assert!(refused.to_string().contains("belong together"), "{refused}");
    assert_eq!(shown(), second);
    assert!(rig.ask(Some(&ops), DELETE, None).contains("200 OK"));
    assert!(rig.ask(None, DELETE, Some(TOKEN)).contains("403"));

    // With both, all of it counts: the line of the certificate has gone.
    next.write(&rig.directory, "target");
    rig.renewal.renew().expect("the files are good");
    assert_ne!(shown(), second);
    assert!(
        rig.ask(Some(&ops), DELETE, None)
            .contains("no role is given")
    );
    assert!(rig.ask(None, DELETE, Some(TOKEN)).contains("200 OK"));
}

/// The command line's side: it looks at who the target is, and says who it is itself.
#[test]
fn a_command_asks_from_elsewhere() {
    let rig = Rig::start(
        "elsewhere",
        &format!("admin {TOKEN} ci\nread cn:ops\n"),
        true,
    );
    let (certificate, key) = rig
        .authority
        .signed("ops", For::Client)
        .write(&rig.directory, "ops");
    let token = rig.directory.join("token");
    put_tokens(&token, &format!("{TOKEN}\n"));
    let ca = Some(rig.directory.join("ca.crt"));
    let port = rig.at.port();
    let asked = |host: &str, files: RemoteFiles, request: &Request| {
        let remote = Remote::new(&format!("https://{host}:{port}"), &files);
        ask_target::<u32>(&Place::Remote(remote.expect("the files are good")), request)
    };
    let by_token = RemoteFiles {
        ca: ca.clone(),
        token: Some(token.clone()),
        own: None,
    };
    let by_certificate = RemoteFiles {
        ca: ca.clone(),
        token: None,
        own: Some((certificate, key)),
    };
    let nobody = RemoteFiles {
        ca,
        ..RemoteFiles::default()
    };
    let delete = Request::Delete(KindName::Pool, "p".to_owned());
    for host in ["localhost", "127.0.0.1"] {
        let done = asked(host, by_token.clone(), &delete);
        assert_eq!(done.expect("it may"), 7);
    }
    let done = asked(
        "localhost",
        by_certificate.clone(),
        &Request::Status(Page::default()),
    );
    assert_eq!(done.expect("it may"), 7);
    for (files, said) in [
        (by_certificate, "the role `admin`"),
        (nobody, "a token is needed"),
        (
            RemoteFiles {
                ca: None,
                ..by_token.clone()
            },
            "its certificate is refused: unable to get local issuer certificate",
        ),
    ] {
        let refused = asked("localhost", files, &delete).expect_err("it may not");
        assert!(refused.to_string().contains(said), "{refused}");
    }
    // Its address is not in its certificate.
    let other = "127.0.0.2:0".parse().expect("an address");
    let other = Rig::start_at(other, "unnamed", &format!("admin {TOKEN}\n"), true);
    let trusting = RemoteFiles {
        ca: Some(other.directory.join("ca.crt")),
        ..by_token.clone()
    };
    let remote = Remote::new(&format!("https://{}", other.at), &trusting);
    let remote = Place::Remote(remote.expect("the files are good"));
    let refused = ask_target::<u32>(&remote, &delete).expect_err("it is another one");
    assert!(refused.to_string().contains("mismatch"), "{refused}");

    for url in [
        "http://localhost",
        "localhost:1",
        "https://",
        "https://a/b",
        "https://a?b",
    ] {
        let refused = Remote::new(url, &by_token).expect_err("it is no address");
        assert!(refused.to_string().contains(url), "{refused}");
    }
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let refused = Remote::new("https://a", &by_token).expect_err("others may read it");
    assert!(refused.to_string().contains("chmod 600"), "{refused}");
}

/// A target that accepts and then says nothing is not waited for without end.
#[test]
fn a_command_does_not_wait_for_a_target_that_never_answers() {
    let mute = std::net::TcpListener::bind(any()).expect("there is a port");
    let at = mute.local_addr().expect("it has one");
    let remote = Remote::new(&format!("https://{at}"), &RemoteFiles::default());
    let remote = remote.expect("it is an address");
    let place = Place::Remote(remote.with_patience(std::time::Duration::from_millis(50)));
    let refused =
        ask_target::<u32>(&place, &Request::Status(Page::default())).expect_err("nobody answers");
    assert!(refused.to_string().contains("timed out"), "{refused}");
}
