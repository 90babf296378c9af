//! Requests and replies of NVMe/TCP's sizes on the bare runtime: 72 bytes up, 24 + 4096 + 24 bytes down. Server on
//! processor 0, client on processor 1, both polling. What the executor costs shows beside the figures for bare sockets.
//!
//! `cargo bench -p flashyard-runtime --bench echo_limit -- [seconds]`

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;

use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, CommandPool, Data, Gather, Rt, TcpStream};
use flashyard_time::{Duration, Histogram, Time};

const REQUEST: usize = 72;
const REPLY: usize = 24 + 4096 + 24;

fn main() {
    let seconds = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .next()
        .unwrap_or(1);
    println!("server             QD  requests/s   mean us    p99 us  server cpu  client cpu");
    for kind in [Kind::Buffers, Kind::Zeroes, Kind::Commands] {
        for depth in [1, 32, 128] {
            round(kind, depth, Duration::from_secs(seconds));
        }
    }
}

/// What the server answers with, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A buffer from the pool for each request.
    Buffers,
    /// The shared zeroes.
    Zeroes,
    /// A buffer, and each request is a future of a command pool.
    Commands,
}

fn round(kind: Kind, depth: usize, span: Duration) {
    let (tell, told) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let config = Config {
            processor: Some(0),
            ..Config::default()
        };
        let main = move |rt: Rt| async move {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let listener = rt.listen(any).expect("a port is free");
            tell.send(listener.local_addr())
                .expect("the client waits for it");
            let stream = listener.accept().await.expect("the client connects");
            let before = thread_cpu();
            serve(&rt, kind, Rc::new(stream)).await;
            thread_cpu().since(before)
        };
        uring::run(config, main).expect("this machine has io_uring")
    });
    let addr = told.recv().expect("the server tells");
    let config = Config {
        core: 1,
        processor: Some(1),
        ..Config::default()
    };
    let main = move |rt: Rt| async move {
        let stream = rt.connect(addr).await.expect("the server listens");
        let before = thread_cpu();
        let latencies = ask(&rt, stream, depth, span).await;
        (latencies, thread_cpu().since(before))
    };
    let (latencies, client_cpu) = uring::run(config, main).expect("this machine has io_uring");
    let server_cpu = server.join().expect("the server ends well");
    let percent = |cpu: Duration| cpu.as_ns() * 100 / span.as_ns();
    println!(
        "{:14} {depth:6} {:11} {:9.1} {:9.1} {:9} % {:9} %",
        format!("{kind:?}"),
        latencies.count() * 1_000_000_000 / span.as_ns(),
        latencies.mean() as f64 / 1e3,
        latencies.percentile(990_000) as f64 / 1e3,
        percent(server_cpu),
        percent(client_cpu),
    );
}

/// Answers everything that came by one receive with one send.
async fn serve(rt: &Rt, kind: Kind, stream: Rc<TcpStream>) {
    let replies = Rc::new(std::cell::RefCell::new(Gather::new()));
    let pool = CommandPool::new(rt, 128);
    let (mut rest, mut spare) = (0, Gather::new());
    loop {
        let chunk = stream.recv().await.expect("the client sends");
        if chunk.is_empty() {
            return;
        }
        let requests = (rest + chunk.len()) / REQUEST;
        rest = (rest + chunk.len()) % REQUEST;
        drop(chunk);
        for _ in 0..requests {
            if kind == Kind::Commands {
                let replies = replies.clone();
                let command = async move {
                    let data = read(kind).await;
                    reply(&mut replies.borrow_mut(), data);
                };
                assert!(pool.run(command).is_ok(), "commands end at once here");
            } else {
                reply(&mut replies.borrow_mut(), read(kind).await);
            }
        }
        if !replies.borrow().is_empty() {
            let (result, sent) = stream.send(replies.replace(spare)).await;
            result.expect("the client receives");
            spare = sent;
            spare.clear();
        }
    }
}

async fn read(kind: Kind) -> Data {
    match kind {
        Kind::Zeroes => Data::Zeroes(4096),
        _ => Data::Buf(Buf::take(4096).expect("the bound is far")),
    }
}

fn reply(replies: &mut Gather, data: Data) {
    replies.push_bytes(&[7; 24]);
    replies.push_data(data, 0..4096);
    replies.push_bytes(&[16; 24]);
}

/// Keeps `depth` requests in flight for `span`.
async fn ask(rt: &Rt, stream: TcpStream, depth: usize, span: Duration) -> Histogram {
    let mut latencies = Histogram::new();
    let start = rt.now();
    let (mut gather, mut buf) = (
        Gather::new(),
        Buf::take(256 << 10).expect("the bound is far"),
    );
    let mut sent_at = std::collections::VecDeque::with_capacity(depth);
    let (mut free, mut rest) = (depth, 0);
    loop {
        let now = rt.now();
        let stop = now.since(start) >= span;
        if stop && free == depth {
            return latencies;
        }
        if !stop && free > 0 {
            gather.clear();
            for _ in 0..free {
                gather.push_bytes(&[4; REQUEST]);
                sent_at.push_back(now);
            }
            let (result, back) = stream.send(gather).await;
            result.expect("the server receives");
            (gather, free) = (back, 0);
        }
        let (result, back) = stream.recv_into(buf, 0).await;
        buf = back;
        let received = rest + result.expect("the server answers");
        rest = received % REPLY;
        let now = rt.now();
        for _ in 0..received / REPLY {
            let sent = sent_at.pop_front().expect("a reply follows a request");
            latencies.record(now.since(sent).as_ns());
            free += 1;
        }
    }
}

fn thread_cpu() -> Time {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills in `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Time::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
