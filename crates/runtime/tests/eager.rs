//! The edges of the way past the ring on the real driver: receives that end, are given up, or
//! become the ring's while the core polls, and data that comes just then.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, Data, Gather, Rt, TcpStream, channel};
use flashyard_time::{Duration, Rng};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// A core that polls for so long never sleeps here.
const FOR_EVER: Duration = Duration::from_secs(60);

fn run<F: Future + 'static>(poll: Duration, main: impl FnOnce(Rt) -> F) -> F::Output {
    let config = Config {
        poll,
        ..Config::default()
    };
    uring::run(config, main).expect("this machine has io_uring")
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

/// A connection whose other end is a blocking socket of another thread.
async fn connection_to_thread<T: Send + 'static>(
    rt: &Rt,
    peer: impl FnOnce(std::net::TcpStream) -> T + Send + 'static,
) -> (TcpStream, std::thread::JoinHandle<T>) {
    let listener = rt.listen(ANY_PORT).expect("a port is free");
    let addr = listener.local_addr();
    let thread = std::thread::spawn(move || {
        let stream = std::net::TcpStream::connect(addr).expect("it listens");
        let patience = Some(std::time::Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("it is not zero");
        stream.set_nodelay(true).expect("the socket is whole");
        peer(stream)
    });
    (
        listener.accept().await.expect("the thread connects"),
        thread,
    )
}

fn gather(bytes: &[u8]) -> Gather {
    let mut gather = Gather::new();
    gather.push_bytes(bytes);
    gather
}

async fn turns(rt: &Rt, turns: u64) {
    for _ in 0..turns {
        rt.turn_end().await;
    }
}

#[test]
fn a_receive_is_given_up_at_any_stage() {
    for poll in [Duration::ZERO, Duration::from_us(20), FOR_EVER] {
        run(poll, |rt| async move {
            // More turns than the eager path tries.
            for wait in (0..40).chain([255, 256, 257, 258, 400]) {
                let (left, right) = pair(&rt).await;
                let chunk = right.recv();
                let into = left.recv_into(Buf::take(4096).expect("the bound is far"), 0);
                turns(&rt, wait).await;
                if wait % 2 == 0 {
                    drop((chunk, into));
                    assert!(left.recv().await.is_err(), "which bytes went is unknown");
                } else {
                    drop((left, right));
                    assert!(into.await.0.is_err());
                    let _ = chunk.await;
                }
            }
        });
        assert_eq!(Buf::balance(), 0, "polling for {poll:?}");
    }
}

#[test]
fn the_end_of_a_stream_and_its_reset_arrive_either_way() {
    for poll in [Duration::ZERO, FOR_EVER] {
        run(poll, |rt| async move {
            let (left, right) = pair(&rt).await;
            let waiting = rt.spawn(async move { right.recv().await });
            turns(&rt, 20).await;
            drop(left);
            assert!(waiting.await.expect("an end is no error").is_empty());

            let (left, right) = pair(&rt).await;
            let buf = Buf::take(4096).expect("the bound is far");
            let waiting = right.recv_into(buf, 0);
            turns(&rt, 20).await;
            left.shutdown();
            assert_eq!(waiting.await.0.expect("an end is no error"), 0);

            // Closing with bytes unread resets the connection.
            let (stream, thread) = connection_to_thread(&rt, |mut stream| {
                let mut one = [0];
                stream.read_exact(&mut one).expect("two bytes were sent");
            })
            .await;
            let (result, _) = stream.send(gather(&[1, 2])).await;
            result.expect("the thread is there");
            let error = stream.recv().await.expect_err("a reset is one");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            let (result, _) = stream.send(gather(&[3])).await;
            let error = result.expect_err("the peer is gone");
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
            thread.join().expect("the thread ends well");
        });
    }
    assert_eq!(Buf::balance(), 0);
}

#[test]
fn more_busy_connections_than_are_tried_directly_are_all_served() {
    for connections in [3, 4, 5, 12] {
        run(FOR_EVER, |rt| async move {
            let mut tasks = Vec::new();
            for seed in 0..connections {
                let (left, right) = pair(&rt).await;
                rt.spawn(echo(right)).detach();
                let rt = rt.clone();
                tasks.push(rt.clone().spawn(async move {
                    let mut rng = Rng::new(seed);
                    for round in 0..300_u32 {
                        turns(&rt, rng.below(8)).await;
                        let question = round.to_le_bytes();
                        left.send(gather(&question)).await.0.expect("it is there");
                        assert_eq!(*left.recv().await.expect("it answers"), question);
                    }
                }));
            }
            for task in tasks {
                task.await;
            }
        });
    }
}

async fn echo(stream: TcpStream) {
    loop {
        let chunk = stream.recv().await.expect("the client sends");
        if chunk.is_empty() {
            return;
        }
        let (result, _) = stream.send(gather(&chunk)).await;
        result.expect("the client receives");
    }
}

#[test]
fn what_comes_while_the_core_falls_asleep_wakes_it() {
    const ROUNDS: u32 = 3000;
    for poll in [
        Duration::ZERO,
        Duration::from_us(5),
        Duration::from_us(60),
        Duration::from_us(300),
    ] {
        run(poll, |rt| async move {
            let (stream, thread) = connection_to_thread(&rt, move |mut stream| {
                let mut rng = Rng::new(poll.as_ns());
                for round in 0..ROUNDS {
                    // Around the moment at which the core sleeps.
                    let pause = rng.below(poll.as_ns() * 2 + 40_000);
                    let until = std::time::Instant::now() + std::time::Duration::from_nanos(pause);
                    while std::time::Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    let question = round.to_le_bytes();
                    stream.write_all(&question).expect("the core receives");
                    let mut answer = [0; 4];
                    stream.read_exact(&mut answer).expect("the core answers");
                    assert_eq!(answer, question);
                }
            })
            .await;
            echo(stream).await;
            thread.join().expect("every answer came");
        });
    }
}

#[test]
fn receives_go_on_by_the_ring_when_the_eager_chunks_are_held() {
    let config = Config {
        poll: FOR_EVER,
        chunks: 2,
        ..Config::default()
    };
    let received = uring::run(config, |rt| async move {
        let (left, right) = pair(&rt).await;
        let mut held = Vec::new();
        for number in 0..66_u8 {
            left.send(gather(&[number])).await.0.expect("it is there");
            held.push(right.recv().await.expect("there is a chunk"));
        }
        left.send(gather(&[66])).await.0.expect("it is there");
        let starved = rt.spawn(async move { right.recv().await });
        rt.sleep(Duration::from_ms(2)).await;
        assert!(!starved.is_finished(), "all chunks are held");
        let received: Vec<u8> = held.drain(..).map(|chunk| chunk[0]).collect();
        let last = starved.await.expect("chunks came back");
        [&received[..], &last].concat()
    });
    let received = received.expect("this machine has io_uring");
    assert!(received.into_iter().eq(0..=66));
}

#[test]
fn sends_that_the_socket_takes_in_part_arrive_whole() {
    const SENDS: usize = 400;
    const LEN: usize = 60_000;
    run(FOR_EVER, |rt| async move {
        let (left, right) = pair(&rt).await;
        let sender = rt.spawn(async move {
            for number in 0..SENDS {
                let mut buf = Buf::take(LEN).expect("the bound is far");
                buf.fill(number as u8);
                let mut gather = gather(&[number as u8]);
                gather.push_data(Data::Buf(buf), 1..LEN);
                left.send(gather).await.0.expect("it is there");
            }
        });
        // The socket is full by now.
        rt.sleep(Duration::from_ms(5)).await;
        assert!(!sender.is_finished());
        let mut received = 0;
        loop {
            let chunk = right.recv().await.expect("it sends");
            if chunk.is_empty() {
                break;
            }
            let expected = (received..).map(|at| (at / LEN) as u8);
            assert!(chunk.iter().copied().eq(expected.take(chunk.len())));
            received += chunk.len();
        }
        assert_eq!(received, SENDS * LEN);
        sender.await;
    });
    assert_eq!(Buf::balance(), 0);
}

#[test]
fn timers_wakes_and_accepts_are_served_beside_a_receive_that_is_tried() {
    run(FOR_EVER, |rt| async move {
        let (left, right) = pair(&rt).await;
        let waiting = rt.spawn(async move { right.recv().await });
        rt.sleep(Duration::from_us(50)).await;
        let (sender, receiver) = channel::channel();
        let thread = std::thread::spawn(move || sender.send(7));
        assert_eq!(receiver.recv().await, Some(7));
        thread.join().expect("it ends well").expect("it is wanted");
        let (one, two) = pair(&rt).await;
        one.send(gather(b"x")).await.0.expect("it is there");
        assert_eq!(*two.recv().await.expect("it sends"), *b"x");
        assert!(!waiting.is_finished());
        left.send(gather(b"y")).await.0.expect("it is there");
        assert_eq!(*waiting.await.expect("it sends"), *b"y");
    });
}

/// Bytes come whole and in order into two buffers, however they were cut, whether the core tries
/// the receives or the ring has them; what waits half-way is given up with its buffers.
#[test]
fn a_receive_into_two_buffers_fills_one_after_the_other() {
    for (seed, poll) in [
        (1, Duration::ZERO),
        (2, Duration::from_us(20)),
        (3, FOR_EVER),
    ] {
        run(poll, move |rt| async move {
            const BYTES: usize = 3 << 20;
            let mut rng = Rng::new(seed);
            let (stream, thread) = connection_to_thread(&rt, move |mut stream| {
                let (mut rng, mut sent) = (Rng::new(seed + 10), 0);
                while sent < BYTES {
                    let len = (1 + rng.below(200_000) as usize).min(BYTES - sent);
                    let bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
                    stream.write_all(&bytes).expect("the core receives");
                    sent += len;
                }
                // Until the core has gone.
                let _ = stream.read(&mut [0]);
            })
            .await;
            let mut received = 0;
            while received < BYTES {
                let [first, second] = [(); 2].map(|()| 1 + rng.below(140_000) as usize);
                let at = rng.below(first as u64) as usize;
                let [front, behind] = [first, second].map(|len| Buf::take(len).expect("memory"));
                let (moved, front, behind) = stream.recv_into_both(front, at, behind).await;
                let moved = moved.expect("it sends");
                assert!(moved > 0 && moved <= first - at + second);
                let bytes = front[at..].iter().chain(&behind[..]).take(moved);
                assert!(bytes.copied().eq((received..received + moved).map(byte)));
                received += moved;
            }
            let [front, behind] = [(); 2].map(|()| Buf::take(4096).expect("memory"));
            let waiting = stream.recv_into_both(front, 0, behind);
            turns(&rt, rng.below(300)).await;
            drop(waiting);
            // The socket is open until the ring has let go of the receive.
            stream.shutdown();
            thread.join().expect("it ends well");
        });
        assert_eq!(Buf::balance(), 0, "polling for {poll:?}");
    }
}

/// The byte at this place of a stream.
fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// More sockets than the core tries by itself, each with sends and receives that come and go at
/// random: every byte arrives, and buffers come back from whatever was given up.
#[test]
fn receives_change_between_the_core_and_the_ring() {
    for (seed, poll) in [
        (1, Duration::ZERO),
        (2, Duration::from_us(5)),
        (3, FOR_EVER),
    ] {
        run(poll, move |rt| async move {
            let tasks: Vec<_> = (0..9)
                .map(|number| {
                    let inner = rt.clone();
                    rt.spawn(async move { exchange(&inner, Rng::new(seed * 100 + number)).await })
                })
                .collect();
            for task in tasks {
                task.await;
            }
        });
        assert_eq!(Buf::balance(), 0, "polling for {poll:?}");
    }
}

async fn exchange(rt: &Rt, mut rng: Rng) {
    for _ in 0..4 {
        let (left, right) = pair(rt).await;
        for _ in 0..rng.below(40) {
            let len = 1 + rng.below(100_000) as usize;
            let buf = Buf::take(len).expect("memory");
            let receiving = right.recv_into(buf, 0);
            turns(rt, rng.below(3)).await;
            let sent = 1 + rng.below(len as u64) as usize;
            let bytes: Vec<u8> = (0..sent).map(byte).collect();
            left.send(gather(&bytes)).await.0.expect("it is there");
            let (moved, buf) = receiving.await;
            let mut moved = moved.expect("it was sent");
            let mut got = buf[..moved].to_vec();
            while moved < sent {
                got.extend_from_slice(&right.recv().await.expect("there is more"));
                moved = got.len();
            }
            assert_eq!(got, bytes);
        }
        let given_up = right.recv_into(Buf::take(100).expect("memory"), 0);
        turns(rt, rng.below(20)).await;
        if rng.chance(1, 2) {
            drop(given_up);
        } else {
            drop(right);
            assert!(given_up.await.0.is_err());
        }
    }
}
