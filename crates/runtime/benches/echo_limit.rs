//! Requests and replies of NVMe/TCP's sizes: 72 bytes up, 24 + 4096 + 24 bytes down. The server, on
//! processor 0, is either bare non-blocking sockets or the runtime; the client, on processor 1, is
//! bare sockets, or the runtime in the last rows. All poll. The difference between the rows is what
//! the executor costs; compare rows of one run only, and only where both sides had their processor
//! (the last columns).
//!
//! `cargo bench -p flashyard-runtime --bench echo_limit -- [seconds]`

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;

use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, CommandPool, Data, Gather, Rt, TcpStream};
use flashyard_time::{Duration, Histogram, Time};

const REQUEST: usize = 72;
const DATA: usize = 4096;
const REPLY: usize = 24 + DATA + 24;

fn main() {
    let seconds = std::env::args()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1);
    println!("server    client       QD  requests/s   mean us    p99 us  server cpu  client cpu");
    for depth in [1, 32, 128] {
        for (server, client) in [
            (Server::Bare, Client::Bare),
            (Server::Buffers, Client::Bare),
            (Server::Zeroes, Client::Bare),
            (Server::Commands, Client::Bare),
            (Server::Commands, Client::Runtime),
            (Server::Bare, Client::Bare),
        ] {
            round(server, client, depth, Duration::from_secs(seconds));
        }
    }
}

/// What the server answers with, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    /// No runtime: one read, one gathered write.
    Bare,
    /// A buffer from the pool for each request.
    Buffers,
    /// The shared zeroes.
    Zeroes,
    /// A buffer, and each request is a future of a command pool.
    Commands,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Client {
    Bare,
    Runtime,
}

fn round(server: Server, client: Client, depth: usize, span: Duration) {
    let (tell, address) = mpsc::channel();
    let serving = std::thread::spawn(move || match server {
        Server::Bare => serve_bare(&tell),
        _ => run(0, move |rt| serve(rt, server, tell)),
    });
    let addr = address.recv().expect("the server listens");
    let asking = std::thread::spawn(move || match client {
        Client::Bare => ask_bare(addr, depth, span),
        Client::Runtime => run(1, move |rt| ask(rt, addr, depth, span)),
    });
    let (latencies, client_cpu) = asking.join().expect("the client ends well");
    let server_cpu = serving.join().expect("the server ends well");
    let percent = |cpu: Duration| cpu.as_ns() * 100 / span.as_ns();
    println!(
        "{:9} {:9} {depth:5} {:11} {:9.1} {:9.1} {:9} % {:9} %",
        format!("{server:?}"),
        format!("{client:?}"),
        latencies.count() * 1_000_000_000 / span.as_ns(),
        latencies.mean() as f64 / 1e3,
        latencies.percentile(990_000) as f64 / 1e3,
        percent(server_cpu),
        percent(client_cpu),
    );
}

fn run<F: Future + 'static>(processor: usize, main: impl FnOnce(Rt) -> F) -> F::Output {
    let config = Config {
        core: processor,
        processor: Some(processor),
        ..Config::default()
    };
    uring::run(config, main).expect("this machine has io_uring")
}

/// Answers everything that came by one receive with one send; the next receive is asked for behind
/// it.
async fn serve(rt: Rt, kind: Server, tell: mpsc::Sender<SocketAddr>) -> Duration {
    let listener = rt
        .listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .expect("a port is free");
    tell.send(listener.local_addr())
        .expect("the client waits for it");
    let stream = listener.accept().await.expect("the client connects");
    let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let replies = Rc::new(RefCell::new(Gather::new()));
    let pool = CommandPool::new(&rt, 128);
    let (mut rest, mut spare) = (0, Gather::new());
    let mut receive = stream.recv();
    loop {
        let chunk = receive.await.expect("the client sends");
        if chunk.is_empty() {
            return cpu_time(libc::CLOCK_THREAD_CPUTIME_ID).since(before);
        }
        let requests = (rest + chunk.len()) / REQUEST;
        rest = (rest + chunk.len()) % REQUEST;
        drop(chunk);
        for _ in 0..requests {
            if kind == Server::Commands {
                let replies = replies.clone();
                let command = async move { reply(&replies, kind) };
                assert!(pool.run(command).is_ok(), "commands end at once here");
            } else {
                reply(&replies, kind);
            }
        }
        let full = replies.replace(spare);
        if full.is_empty() {
            spare = full;
            receive = stream.recv();
        } else {
            let sending = stream.send(full);
            receive = stream.recv();
            let (result, sent) = sending.await;
            result.expect("the client receives");
            spare = sent;
            spare.clear();
        }
    }
}

fn reply(replies: &RefCell<Gather>, kind: Server) {
    let data = match kind {
        Server::Zeroes => Data::Zeroes(DATA),
        _ => Data::Buf(Buf::take(DATA).expect("the bound is far")),
    };
    let mut replies = replies.borrow_mut();
    replies.push_bytes(&[7; 24]);
    replies.push_data(data, 0..DATA);
    replies.push_bytes(&[16; 24]);
}

/// What is in flight on the client's side.
struct Flight {
    depth: usize,
    sent_at: VecDeque<Time>,
    /// Bytes of a reply of which the end has not come.
    rest: usize,
    latencies: Histogram,
    until: Time,
}

impl Flight {
    fn new(depth: usize, span: Duration) -> Self {
        let (sent_at, latencies) = (VecDeque::with_capacity(depth), Histogram::new());
        Self {
            depth,
            sent_at,
            rest: 0,
            latencies,
            until: clock() + span,
        }
    }

    /// How many requests are to be sent now.
    fn wanted(&mut self) -> usize {
        let now = clock();
        if now >= self.until {
            return 0;
        }
        let wanted = self.depth - self.sent_at.len();
        self.sent_at.extend(std::iter::repeat_n(now, wanted));
        wanted
    }

    /// Takes note of received bytes; whether all is over.
    fn received(&mut self, bytes: usize) -> bool {
        let (now, received) = (clock(), self.rest + bytes);
        self.rest = received % REPLY;
        for _ in 0..received / REPLY {
            let sent = self.sent_at.pop_front().expect("a reply follows a request");
            self.latencies.record(now.since(sent).as_ns());
        }
        self.sent_at.is_empty() && now >= self.until
    }
}

async fn ask(rt: Rt, addr: SocketAddr, depth: usize, span: Duration) -> (Histogram, Duration) {
    let stream: TcpStream = rt.connect(addr).await.expect("the server listens");
    let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut flight = Flight::new(depth, span);
    let (mut gather, mut buf) = (
        Gather::new(),
        Buf::take(256 << 10).expect("the bound is far"),
    );
    loop {
        let wanted = flight.wanted();
        gather.clear();
        (0..wanted).for_each(|_| gather.push_bytes(&[4; REQUEST]));
        let sending = (wanted > 0).then(|| stream.send(std::mem::take(&mut gather)));
        let receive = stream.recv_into(buf, 0);
        if let Some(sending) = sending {
            let (result, back) = sending.await;
            result.expect("the server receives");
            gather = back;
        }
        let (result, back) = receive.await;
        buf = back;
        if flight.received(result.expect("the server answers")) {
            let cpu = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID).since(before);
            return (flight.latencies, cpu);
        }
    }
}

fn serve_bare(tell: &mpsc::Sender<SocketAddr>) -> Duration {
    pin(0);
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = std::net::TcpListener::bind(any).expect("a port is free");
    tell.send(listener.local_addr().expect("it is bound"))
        .expect("the client waits for it");
    let (mut stream, _) = listener.accept().expect("the client connects");
    stream.set_nodelay(true).expect("it is a TCP socket");
    stream.set_nonblocking(true).expect("sockets can be so");
    let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let (mut requests, mut rest) = (vec![0; 16 << 10], 0);
    let (header, data, trailer) = ([7; 24], vec![0; 128 * DATA], [16; 24]);
    loop {
        let count = spin(|| stream.read(&mut requests));
        if count == 0 {
            return cpu_time(libc::CLOCK_THREAD_CPUTIME_ID).since(before);
        }
        let replies = (rest + count) / REQUEST;
        rest = (rest + count) % REQUEST;
        let mut pieces = Vec::with_capacity(3 * replies);
        for at in 0..replies {
            let data = &data[at % 128 * DATA..][..DATA];
            pieces.extend([
                IoSlice::new(&header),
                IoSlice::new(data),
                IoSlice::new(&trailer),
            ]);
        }
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            let count = spin(|| stream.write_vectored(left));
            IoSlice::advance_slices(&mut left, count);
        }
    }
}

fn ask_bare(addr: SocketAddr, depth: usize, span: Duration) -> (Histogram, Duration) {
    pin(1);
    let mut stream = std::net::TcpStream::connect(addr).expect("the server listens");
    stream.set_nodelay(true).expect("it is a TCP socket");
    stream.set_nonblocking(true).expect("sockets can be so");
    let before = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let mut flight = Flight::new(depth, span);
    let (requests, mut buf) = (vec![4; depth * REQUEST], vec![0; 256 << 10]);
    loop {
        let mut left = &requests[..flight.wanted() * REQUEST];
        while !left.is_empty() {
            left = &left[spin(|| stream.write(left))..];
        }
        if flight.received(spin(|| stream.read(&mut buf))) {
            let cpu = cpu_time(libc::CLOCK_THREAD_CPUTIME_ID).since(before);
            return (flight.latencies, cpu);
        }
    }
}

/// Calls until the call would not block.
fn spin(mut call: impl FnMut() -> std::io::Result<usize>) -> usize {
    loop {
        match call() {
            Ok(count) => return count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => panic!("the other side is there: {error}"),
        }
    }
}

fn clock() -> Time {
    cpu_time(libc::CLOCK_MONOTONIC)
}

fn cpu_time(clock: libc::clockid_t) -> Time {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills in `time`.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Time::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn pin(processor: usize) {
    // SAFETY: all zeroes is an empty set, and the set outlives the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
