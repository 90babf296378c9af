//! The socket under clients of every kind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use flashyard_testbed::Scratch;

use super::*;

/// What a user would read, asked whether the target runs: nothing if it answers as it should.
fn status(state: &Path) -> String {
    match ask::<u32>(state, &Request::Status) {
        Ok(answer) => {
            assert_eq!(answer, 7);
            String::new()
        }
        Err(error) => error.to_string(),
    }
}

/// A control socket of its own for a test, and what it has executed.
struct Rig {
    control: Option<Control>,
    directory: Scratch,
    executed: Arc<AtomicUsize>,
}

impl Rig {
    fn start(name: &str, serve: impl Fn(&Request) + Send + Sync + 'static) -> Self {
        let directory = Scratch::new(name);
        let executed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&executed);
        let control = Control::start(&directory, move |request, _| {
            count.fetch_add(1, Ordering::SeqCst);
            serve(&request);
            Ok::<_, AskError>(7)
        });
        Self {
            control: Some(control.expect("it listens")),
            directory,
            executed,
        }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.join(SOCKET)).expect("it listens")
    }

    fn executed(&self) -> usize {
        self.executed.load(Ordering::SeqCst)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.control.take());
    }
}

impl HasKind for String {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }
}

/// All that comes until the end. A close may cut off what the client was still sending.
fn rest(stream: &UnixStream) -> String {
    let mut rest = Vec::new();
    let mut reader = stream;
    let end = reader.read_to_end(&mut rest);
    let reset = io::ErrorKind::ConnectionReset;
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == reset));
    String::from_utf8(rest).expect("JSON")
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line);
    assert!(read.expect("it answers") > 0);
    line
}

/// A line that is too long is refused, and nothing behind its bound is taken for a request.
#[test]
fn a_line_that_is_too_long_is_not_executed() {
    let rig = Rig::start("long", |_| {});
    let mut stream = rig.connect();
    let mut text = vec![b' '; REQUEST_BYTES_MAX];
    text.extend(b"\"status\"\n\"status\"\n");
    // The target closes before it has all of it.
    let _ = stream.write_all(&text);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let answer = rest(&stream);
    assert_eq!(answer.lines().count(), 1, "{answer}");
    assert!(answer.contains("at most 16 MiB"), "{answer}");
    assert_eq!(rig.executed(), 0);

    // One that is as long as it may be is a request.
    let mut stream = rig.connect();
    let mut text = vec![b' '; REQUEST_BYTES_MAX];
    text[REQUEST_BYTES_MAX - 9..].copy_from_slice(b"\"status\"\n");
    stream.write_all(&text).expect("it reads");
    assert_eq!(line(&stream), "{\"ok\":7}\n");
    assert_eq!(rig.executed(), 1);

    let long = Request::Show(KindName::Pool, "p".repeat(REQUEST_BYTES_MAX));
    let refused = ask::<u32>(&rig.directory, &long);
    let refused = refused.expect_err("too long").to_string();
    assert!(refused.contains("at most 16 MiB"), "{refused}");
    assert_eq!(rig.executed(), 1);
}

/// Half a request and bytes that are no text are answered, and not executed.
#[test]
fn a_request_that_was_cut_is_not_executed() {
    let rig = Rig::start("cut", |_| {});
    let mut stream = rig.connect();
    stream.write_all(b"\"status\"").expect("it reads");
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("it is open");
    assert!(rest(&stream).contains("no end of line"));
    let mut stream = rig.connect();
    stream.write_all(b"\xff\xfe\n").expect("it reads");
    assert!(line(&stream).contains("not understood"));
    assert_eq!(rig.executed(), 0);
}

/// Those who ask nothing, or half of something, make room for those who do, oldest first.
#[test]
fn idle_connections_never_keep_others_out() {
    let rig = Rig::start("idle", |_| {});
    let idle: Vec<UnixStream> = (0..3 * Seats::MOST)
        .map(|place| {
            let mut stream = rig.connect();
            if place % 2 == 0 {
                stream.write_all(b"{\"show\":").expect("it reads");
            }
            stream
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(status(&rig.directory), "");
    }
    assert_eq!(rest(&idle[0]), "", "the oldest has gone");
    let mut newest = idle.last().expect("there are some");
    newest.write_all(b"\"status\"\n").expect("it is open");
    assert_eq!(line(newest), "{\"ok\":7}\n");
    assert_eq!(rig.executed(), 4);
}

/// A request at work keeps its connection, whoever comes; when there is no room at all, that is
/// told.
#[test]
fn who_is_served_is_not_dropped() {
    let (arrived, arrivals) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let rig = Rig::start("served", move |_| {
        arrived.send(()).expect("the test waits");
        // The test lets all of them go by ending.
        let _ = may_go.lock().expect("nobody panics").recv();
    });
    let working: Vec<UnixStream> = (0..Seats::MOST)
        .map(|_| {
            let mut stream = rig.connect();
            stream.write_all(b"\"status\"\n").expect("it reads");
            arrivals.recv().expect("it is served");
            stream
        })
        .collect();
    let answer = line(&rig.connect());
    assert!(answer.contains("ask again in a moment"), "{answer}");
    drop(go);
    for stream in &working {
        assert_eq!(line(stream), "{\"ok\":7}\n");
    }
    assert_eq!(rig.executed(), Seats::MOST);
}

#[test]
fn a_target_that_dies_before_it_answers_is_told() {
    let directory = Scratch::new("dies");
    let socket = UnixListener::bind(directory.join(SOCKET)).expect("nobody has it");
    let dies = thread::spawn(move || {
        let (stream, _) = socket.accept().expect("somebody asks");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)
    });
    let fault = status(&directory);
    assert!(fault.contains("went away in the middle"), "{fault}");
    assert!(dies.join().expect("it ended").is_ok());
}

#[test]
fn a_request_is_answered_and_rubbish_is_told() {
    let directory = Scratch::new("control");
    let control = Control::start(&directory, |request, _| match request {
        Request::Status => Ok(7),
        other => Err(format!("{other:?}")),
    })
    .expect("it listens");
    assert_eq!(status(&directory), "");
    let refused = ask::<u32>(&directory, &Request::List(KindName::Pool));
    let refused = refused.expect_err("an error comes as one").to_string();
    assert!(refused.contains("Pool"), "{refused}");

    let mut stream = UnixStream::connect(directory.join(SOCKET)).expect("it listens");
    stream
        .write_all(b"{\"open\": \"sesame\"}\n")
        .expect("it reads");
    let mut line = String::new();
    BufReader::new(&stream)
        .read_line(&mut line)
        .expect("it answers");
    assert!(line.contains("not understood"), "{line}");

    drop(control);
    let gone = status(&directory);
    assert!(gone.contains("flashyard serve"), "{gone}");
}
