//! TCP over loopback on the real driver.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, Data, Gather, Rt, TcpStream};
use flashyard_time::{Duration, Rng, Time};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn run<F: Future + 'static>(main: impl FnOnce(Rt) -> F) -> F::Output {
    uring::run(Config::default(), main).expect("this machine has io_uring")
}

/// Two ends of a connection.
async fn pair(rt: &Rt) -> (TcpStream, TcpStream) {
    let listener = rt.listen(ANY_PORT).expect("a port is free");
    let connecting = rt.spawn({
        let (rt, addr) = (rt.clone(), listener.local_addr());
        async move { rt.connect(addr).await.expect("it listens") }
    });
    let accepted = listener.accept().await.expect("a peer connects");
    (accepted, connecting.await)
}

/// The bytes number `from..` of an endless stream that never repeats early.
fn pattern(from: usize, bytes: &mut [u8]) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        let at = from + at;
        *byte = (at ^ (at >> 8) ^ (at >> 16)) as u8;
    }
}

fn assert_pattern(from: usize, bytes: &[u8]) {
    let mut expected = vec![0; bytes.len()];
    pattern(from, &mut expected);
    assert!(
        bytes == expected,
        "wrong bytes between {from} and {}",
        from + bytes.len()
    );
}

/// Sends `total` bytes of the pattern in random gathers.
async fn send_pattern(stream: &TcpStream, total: usize, mut rng: Rng) {
    let mut gather = Gather::new();
    let mut sent = 0;
    while sent < total {
        gather.clear();
        for _ in 0..rng.range(1..40) {
            let len = (rng.range(1..30_000) as usize).min(total - sent);
            if rng.chance(1, 2) {
                let mut header = vec![0; len.min(200)];
                pattern(sent, &mut header);
                gather.push_bytes(&header);
                sent += header.len();
            } else if len > 0 {
                let skip = rng.below(100) as usize;
                let mut buf = Buf::take(skip + len).expect("there is room");
                pattern(sent, &mut buf[skip..]);
                gather.push_data(Data::Buf(buf), skip..skip + len);
                sent += len;
            }
        }
        let (result, back) = stream.send(gather).await;
        result.expect("the peer receives");
        gather = back;
    }
}

#[test]
fn bytes_arrive_in_order_through_both_kinds_of_receive() {
    const TOTAL: usize = 20 << 20;
    run(|rt| async move {
        let (left, right) = pair(&rt).await;
        let sender = rt.spawn(async move { send_pattern(&left, TOTAL, Rng::new(1)).await });
        let mut rng = Rng::new(2);
        let mut received = 0;
        loop {
            let count = if rng.chance(1, 2) {
                let chunk = right.recv().await.expect("the peer sends");
                assert_pattern(received, &chunk);
                chunk.len()
            } else {
                let len = rng.range(1..200_000) as usize;
                let at = rng.below(len as u64) as usize;
                let buf = Buf::take(len).expect("there is room");
                let (result, buf) = right.recv_into(buf, at).await;
                let count = result.expect("the peer sends");
                assert_pattern(received, &buf[at..at + count]);
                count
            };
            received += count;
            if count == 0 {
                break;
            }
        }
        sender.await;
        assert_eq!(received, TOTAL);
    });
    assert_eq!(Buf::balance(), 0);
}

#[test]
fn a_gather_of_many_pieces_and_mebibytes_arrives_whole() {
    run(|rt| async move {
        let (left, right) = pair(&rt).await;
        let mut gather = Gather::new();
        let mut expected = Vec::new();
        for number in 0..3000_u32 {
            gather.push_bytes(&number.to_le_bytes());
            expected.extend_from_slice(&number.to_le_bytes());
            let mut buf = Buf::take(4096).expect("there is room");
            buf.fill(number as u8);
            expected.extend_from_slice(&buf[..4000]);
            gather.push_data(Data::Buf(buf), 0..4000);
        }
        gather.push_data(Data::Zeroes(300_000), 100..300_000);
        expected.resize(expected.len() + 299_900, 0);
        assert!(gather.pieces() > 6000);
        let sender = rt.spawn(async move {
            let (result, gather) = left.send(gather).await;
            result.expect("the peer receives");
            gather.len()
        });
        let mut received = Vec::new();
        loop {
            let chunk = right.recv().await.expect("the peer sends");
            if chunk.is_empty() {
                break;
            }
            received.extend_from_slice(&chunk);
        }
        assert_eq!(sender.await, expected.len());
        assert!(received == expected);
    });
    assert_eq!(Buf::balance(), 0);
}

#[test]
fn a_thousand_connections_are_all_served() {
    const CONNECTIONS: u32 = 1000;
    run(|rt| async move {
        let listener = rt.listen(ANY_PORT).expect("a port is free");
        let addr = listener.local_addr();
        let server = rt.spawn({
            let rt = rt.clone();
            async move {
                for _ in 0..CONNECTIONS {
                    let stream = listener.accept().await.expect("a peer connects");
                    rt.spawn(echo(stream)).detach();
                }
            }
        });
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let rt = rt.clone();
                rt.clone().spawn(async move {
                    let stream = rt.connect(addr).await.expect("it listens");
                    for round in 0..5 {
                        let question = (number * 10 + round).to_le_bytes();
                        let mut gather = Gather::new();
                        gather.push_bytes(&question);
                        stream.send(gather).await.0.expect("the server receives");
                        assert_eq!(*stream.recv().await.expect("the server answers"), question);
                        rt.sleep(Duration::from_ms(1)).await;
                    }
                })
            })
            .collect();
        for client in clients {
            client.await;
        }
        server.await;
    });
}

async fn echo(stream: TcpStream) {
    let mut gather = Gather::new();
    loop {
        let chunk = stream.recv().await.expect("the client sends");
        if chunk.is_empty() {
            return;
        }
        gather.push_bytes(&chunk);
        drop(chunk);
        let (result, back) = stream.send(gather).await;
        result.expect("the client receives");
        gather = back;
        gather.clear();
    }
}

#[test]
fn receives_wait_for_chunks_when_all_are_held() {
    let config = Config {
        chunks: 2,
        // Receives go to the ring at once when the core does not poll.
        poll: Duration::ZERO,
        ..Config::default()
    };
    let done = uring::run(config, |rt| async move {
        let mut pairs = Vec::new();
        for _ in 0..4 {
            pairs.push(pair(&rt).await);
        }
        for (left, _) in &pairs {
            let mut gather = Gather::new();
            gather.push_bytes(b"hello");
            left.send(gather).await.0.expect("the peer receives");
        }
        let held = [pairs[0].1.recv().await, pairs[1].1.recv().await];
        let late = Rc::new(pairs[2].1.recv());
        let cancelled = pairs[3].1.recv();
        rt.sleep(Duration::from_ms(5)).await;
        drop(cancelled);
        drop(held);
        let late = Rc::into_inner(late).expect("it has no other holder");
        late.await.expect("a chunk came back").to_vec()
    });
    assert_eq!(done.expect("this machine has io_uring"), b"hello");
}

#[test]
fn dropping_an_operation_half_way_frees_everything() {
    run(|rt| async move {
        for round in 0..50 {
            let (left, right) = pair(&rt).await;
            let receive = right.recv();
            let into = left.recv_into(Buf::take(1 << 20).expect("the bound is far"), 0);
            let mut gather = Gather::new();
            for _ in 0..16 {
                let buf = Buf::take(1 << 20).expect("what earlier rounds took has come back");
                gather.push_data(Data::Buf(buf), 0..1 << 20);
            }
            // More than the socket takes, and the peer does not receive.
            let send = left.send(gather);
            if round % 2 == 0 {
                rt.sleep(Duration::from_us(200)).await;
            }
            match round % 3 {
                0 => drop((receive, into, send)),
                1 => drop((left, right, receive, into, send)),
                _ => {
                    drop((left, right));
                    assert!(send.await.0.is_err());
                    assert!(into.await.0.is_err());
                    // What was sent before may have come.
                    let _ = receive.await;
                }
            }
            rt.sleep(Duration::from_us(100)).await;
        }
    });
    assert_eq!(Buf::balance(), 0, "every buffer came back");
}

#[test]
fn a_direction_given_up_half_way_only_fails() {
    run(|rt| async move {
        let (left, right) = pair(&rt).await;
        drop(right.recv());
        let mut gather = Gather::new();
        gather.push_bytes(b"lost?");
        left.send(gather)
            .await
            .0
            .expect("the other direction is whole");
        assert!(right.recv().await.is_err());
        drop(left);
    });
}

#[test]
fn the_end_of_a_run_cancels_what_is_left() {
    let stream = run(|rt| async move {
        let (left, right) = pair(&rt).await;
        rt.spawn(async move {
            let buf = Buf::take(4096).expect("there is room");
            let _ = left.recv_into(buf, 0).await;
            unreachable!("nothing was sent");
        })
        .detach();
        rt.sleep(Duration::from_us(100)).await;
        right
    });
    assert_eq!(Buf::balance(), 0);
    // What outlives its core fails, and can be dropped.
    let mut receive = stream.recv();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let polled = std::pin::Pin::new(&mut receive).poll(&mut context);
    assert!(matches!(polled, std::task::Poll::Ready(Err(_))));
}

#[test]
fn errors_of_the_network_arrive() {
    run(|rt| async move {
        let listener = rt.listen(ANY_PORT).expect("a port is free");
        let addr = listener.local_addr();
        let again = rt.listen(addr).expect_err("the port is taken");
        assert_eq!(again.kind(), std::io::ErrorKind::AddrInUse);
        drop(listener);
        rt.sleep(Duration::from_ms(1)).await;
        let refused = rt.connect(addr).await.expect_err("there is no listener");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

        let (left, right) = pair(&rt).await;
        assert_eq!(
            (left.peer_addr(), left.local_addr()),
            (right.local_addr(), right.peer_addr())
        );
        let waiting = right.recv();
        right.shutdown();
        assert!(waiting.await.map_or(true, |chunk| chunk.is_empty()));
        assert!(left.recv().await.expect("the peer has ended").is_empty());
    });
}

#[test]
fn a_connection_moves_to_another_core() {
    let (moved, arriving) = flashyard_runtime::channel::channel();
    let other = std::thread::spawn(move || {
        run(|rt| async move {
            let stream = rt.attach(arriving.recv().await.expect("a connection comes"));
            echo(stream).await;
        });
    });
    run(|rt| async move {
        let (left, right) = pair(&rt).await;
        assert!(moved.send(left.detach()).is_ok());
        let mut gather = Gather::new();
        gather.push_bytes(b"over there");
        right.send(gather).await.0.expect("the other core receives");
        assert_eq!(
            *right.recv().await.expect("the other core answers"),
            *b"over there"
        );
    });
    other.join().expect("the other core ends well");
}

#[test]
fn an_idle_core_sleeps() {
    let cpu = run(|rt| async move {
        let mut pairs = Vec::new();
        for _ in 0..100 {
            let (left, right) = pair(&rt).await;
            rt.spawn(echo(right)).detach();
            pairs.push(left);
        }
        rt.sleep(Duration::from_ms(20)).await;
        let before = thread_cpu();
        for _ in 0..50 {
            rt.sleep(Duration::from_ms(10)).await;
        }
        thread_cpu().since(before)
    });
    // 1 % of half a second would be 5 ms; the machine may be busy.
    assert!(cpu < Duration::from_ms(15), "{cpu:?} for 50 timers");
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

/// A peer that reads nothing does not make the system keep megabytes for it, and none once it has
/// been given up.
#[test]
fn a_peer_that_reads_nothing_pins_little() {
    const PIECE: usize = 64 << 10;
    run(|rt| async move {
        let listener = rt.listen(ANY_PORT).expect("a port is free");
        let addr = listener.local_addr();
        let mut peer = std::net::TcpStream::connect(addr).expect("it listens");
        let stream = Rc::new(listener.accept().await.expect("a peer connects"));
        let accepted = Rc::new(Cell::new(0));
        let sender = rt.spawn({
            let (stream, accepted) = (stream.clone(), accepted.clone());
            async move {
                let mut gather = Gather::new();
                gather.push_data(Data::Zeroes(PIECE), 0..PIECE);
                loop {
                    let (result, back) = stream.send(gather).await;
                    if result.is_err() {
                        return;
                    }
                    accepted.set(accepted.get() + PIECE);
                    gather = back;
                }
            }
        });
        // Until it takes no more.
        let mut before = 0;
        while before == 0 || accepted.get() != before {
            before = accepted.get();
            rt.sleep(Duration::from_ms(200)).await;
        }
        stream.abort();
        sender.await;
        drop(stream);
        rt.sleep(Duration::from_ms(10)).await;
        let (mut arrived, mut buf) = (0, vec![0; PIECE]);
        let end = loop {
            match std::io::Read::read(&mut peer, &mut buf) {
                Ok(0) => panic!("an end in good order"),
                Ok(n) => arrived += n,
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
        let kept = accepted.get().saturating_sub(arrived);
        assert!(kept <= 768 << 10, "{kept} of {} bytes", accepted.get());
    });
}
