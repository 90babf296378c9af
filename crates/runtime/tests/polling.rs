//! What polling costs a core on the real driver, in processor time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use flashyard_runtime::Gather;
use flashyard_runtime::uring::{self, Config};
use flashyard_time::Duration;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const POLL: Duration = Duration::from_ms(5);
/// A pause after which no core should be polling any more.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Processor time of this thread so far.
fn spent() -> Duration {
    const TICK: Duration = Duration::from_ms(10);
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux has it");
    // Behind the name, which is in brackets: user and system time are the 12th and the 13th.
    let (_, behind) = stat.rsplit_once(')').expect("there is a name");
    let ticks = behind.split_whitespace().skip(11).take(2);
    TICK * ticks
        .map(|ticks| ticks.parse::<u64>().expect("it is a number"))
        .sum()
}

#[test]
fn a_load_with_pauses_costs_no_polls() {
    const QUESTIONS: u64 = 100;
    let config = Config {
        poll: POLL,
        ..Config::default()
    };
    let spent = uring::run(config, |rt| async move {
        let listener = rt.listen(ANY_PORT).expect("a port is free");
        let addr = listener.local_addr();
        let peer = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(addr).expect("it listens");
            for _ in 0..QUESTIONS {
                std::thread::sleep(PAUSE);
                stream.write_all(&[7]).expect("the core receives");
                stream.read_exact(&mut [0]).expect("the core answers");
            }
        });
        let stream = listener.accept().await.expect("the thread connects");
        let before = spent();
        while !stream.recv().await.expect("the thread sends").is_empty() {
            let mut answer = Gather::new();
            answer.push_bytes(&[7]);
            stream.send(answer).await.0.expect("the thread is there");
        }
        peer.join().expect("the thread ends well");
        spent() - before
    })
    .expect("this machine has io_uring");
    // A poll after each question would cost twice as much.
    assert!(spent < POLL * (QUESTIONS / 2), "{spent}");
}
