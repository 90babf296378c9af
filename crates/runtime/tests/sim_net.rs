//! The simulated network: bytes arrive whole however they are cut, and connections end as TCP
//! connections do.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_runtime::sim::{Config, Machine, Toll, World};
use flashyard_runtime::{Buf, Gather, Rt, TcpStream};
use flashyard_time::{Duration, Rng};

fn addr(machine: &Machine) -> SocketAddr {
    SocketAddr::new(machine.ip(), 4420)
}

fn gather(bytes: &[u8]) -> Gather {
    let mut gather = Gather::new();
    gather.push_bytes(bytes);
    gather
}

async fn send(stream: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.send(gather(bytes)).await.0
}

/// Receives exactly `len` bytes, by any kind of receive.
async fn receive(stream: &TcpStream, len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut received = Vec::new();
    while received.len() < len {
        let before = received.len();
        if rng.chance(1, 3) {
            received.extend_from_slice(&stream.recv().await.expect("the connection lives"));
        } else if rng.chance(1, 2) && len - before > 1 {
            let cut = 1 + rng.below((len - before - 1) as u64) as usize;
            let [front, behind] =
                [cut, len - before - cut].map(|len| Buf::take(len).expect("the bound is far"));
            let (moved, front, behind) = stream.recv_into_both(front, 0, behind).await;
            let moved = moved.expect("the connection lives");
            received.extend_from_slice(&front[..moved.min(cut)]);
            received.extend_from_slice(&behind[..moved.saturating_sub(cut)]);
        } else {
            let buf = Buf::take(len - before).expect("the bound is far");
            let (moved, buf) = stream.recv_into(buf, 0).await;
            received.extend_from_slice(&buf[..moved.expect("the connection lives")]);
        }
        assert!(received.len() > before, "the stream ended early");
    }
    received
}

/// Accepts connections and sends everything back.
fn echo(rt: &Rt) {
    let listener = rt.listen("0.0.0.0:4420".parse().unwrap()).unwrap();
    let inner = rt.clone();
    rt.spawn(async move {
        loop {
            let stream = listener.accept().await.unwrap();
            inner.spawn(echo_one(stream)).detach();
        }
    })
    .detach();
}

async fn echo_one(stream: TcpStream) {
    while let Ok(chunk) = stream.recv().await {
        if chunk.is_empty() || send(&stream, &chunk).await.is_err() {
            return;
        }
    }
}

/// One seed of the echo test: several connections, messages of random sizes. Gives the world's
/// digest.
fn echo_world(seed: u64) -> u64 {
    let world = World::new(Config::stormy(seed));
    let (server, client) = (world.machine(1), world.machine(2));
    echo(&server.rt(0));
    let addr = addr(&server);
    world.run(&client, |rt| async move {
        let tasks = (0..3_u64).map(|task| {
            let inner = rt.clone();
            rt.spawn(async move {
                let mut rng = Rng::new(seed).split(task);
                let stream = inner.connect(addr).await.unwrap();
                for _ in 0..4 {
                    let longest = 1 << rng.below(17);
                    let mut message = vec![0; 1 + rng.below(longest) as usize];
                    rng.fill_bytes(&mut message);
                    let (sent, received) = (
                        stream.send(gather(&message)),
                        receive(&stream, message.len(), &mut rng),
                    );
                    // Both at once: a message may be longer than all the buffers on the way.
                    let sent = inner.spawn(sent);
                    assert!(received.await == message);
                    sent.await.0.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await;
        }
    });
    world.digest()
}

#[test]
fn echo_survives_any_network_fault() {
    for seed in 0..200 {
        echo_world(seed);
    }
}

#[test]
fn one_seed_one_trace() {
    let digests: Vec<u64> = (0..20).map(echo_world).collect();
    assert_eq!(digests, (0..20).map(echo_world).collect::<Vec<_>>());
    let mut different = digests.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), digests.len());
}

/// A server that accepts one connection and a client that has made it.
fn pair(world: &World) -> (Machine, Machine, TcpStream, TcpStream) {
    let (server, client) = (world.machine(1), world.machine(1));
    let listener = server.rt(0).listen(addr(&server)).unwrap();
    let accepted = server
        .rt(0)
        .spawn(async move { listener.accept().await.unwrap() });
    let to = addr(&server);
    let near = world.run(&client, |rt| async move { rt.connect(to).await.unwrap() });
    let far = world.run(&server, |_| accepted);
    (server, client, far, near)
}

#[test]
fn both_ends_know_their_addresses() {
    let world = World::new(Config::default());
    let (server, client, far, near) = pair(&world);
    assert_eq!(near.peer_addr(), addr(&server));
    assert_eq!(far.local_addr(), addr(&server));
    assert_eq!(
        (far.peer_addr(), near.local_addr().ip()),
        (near.local_addr(), client.ip())
    );
}

#[test]
fn the_end_of_a_stream_comes_after_its_bytes() {
    let world = World::new(Config::stormy(3));
    let (server, client, far, near) = pair(&world);
    world.run(&client, |_| async move {
        send(&near, &[7; 1000]).await.unwrap();
    });
    world.run(&server, |_| async move {
        let mut rng = Rng::new(1);
        assert_eq!(receive(&far, 1000, &mut rng).await, [7; 1000]);
        assert!(far.recv().await.unwrap().is_empty());
    });
}

#[test]
fn unread_data_turns_a_close_into_a_reset() {
    let world = World::new(Config::default());
    let (_, client, far, near) = pair(&world);
    world.run(&client, |rt| async move {
        send(&near, b"never read").await.unwrap();
        rt.sleep(Duration::from_ms(1)).await;
        drop(far);
        assert_eq!(
            near.recv().await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        assert_eq!(
            send(&near, b"x").await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    });
}

#[test]
fn sending_to_a_closed_end_resets() {
    let world = World::new(Config::default());
    let (_, client, far, near) = pair(&world);
    world.run(&client, |rt| async move {
        drop(far);
        rt.sleep(Duration::from_ms(1)).await;
        assert!(near.recv().await.unwrap().is_empty());
        send(&near, b"into the void").await.unwrap();
        rt.sleep(Duration::from_ms(1)).await;
        assert_eq!(
            send(&near, b"x").await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    });
}

#[test]
fn shutdown_ends_waiting_operations() {
    let world = World::new(Config::default());
    let (_, client, far, near) = pair(&world);
    world.run(&client, |rt| async move {
        let near = Rc::new(near);
        let (one, two) = (near.clone(), near.clone());
        let receiving = rt.spawn(async move { one.recv().await.unwrap().len() });
        let sending = rt.spawn(async move { two.send(gather(&vec![0; 3 << 20])).await.0 });
        rt.sleep(Duration::from_ms(5)).await;
        assert!(
            !receiving.is_finished() && !sending.is_finished(),
            "the other end does not read"
        );
        near.shutdown();
        assert_eq!(receiving.await, 0);
        assert_eq!(sending.await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        drop(far);
    });
}

#[test]
fn a_send_waits_for_room_and_goes_on() {
    let world = World::new(Config {
        socket_buffer: 4096,
        ..Config::default()
    });
    let (server, client, far, near) = pair(&world);
    let sent = client
        .rt(0)
        .spawn(async move { near.send(gather(&vec![1; 100_000])).await.0 });
    world.run_for(Duration::from_secs(1));
    assert!(!sent.is_finished());
    world.run(&server, |_| async move {
        receive(&far, 100_000, &mut Rng::new(2)).await
    });
    world.run(&client, |_| sent).unwrap();
}

#[test]
fn connects_fail_as_they_do() {
    let world = World::new(Config::default());
    let (server, client) = (world.machine(1), world.machine(1));
    let (to, nowhere) = (addr(&server), "10.0.9.9:1".parse().unwrap());
    let (up, other) = (server.clone(), client.clone());
    let handle = world.handle();
    world.run(&client, |rt| async move {
        assert_eq!(
            rt.connect(nowhere).await.unwrap_err().kind(),
            ErrorKind::NetworkUnreachable
        );
        assert_eq!(
            rt.connect(to).await.unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        let listener = up.rt(0).listen(to).unwrap();
        assert_eq!(
            up.rt(0).listen(to).unwrap_err().kind(),
            ErrorKind::AddrInUse
        );
        assert!(rt.connect(to).await.is_ok());
        up.refuse_connections(true);
        assert_eq!(
            rt.connect(to).await.unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        up.refuse_connections(false);
        handle.partition(&up, &other);
        let started = rt.now();
        assert_eq!(
            rt.connect(to).await.unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        assert_eq!((rt.now() - started).as_secs(), 10);
        handle.heal(&up, &other);
        drop(listener);
        assert_eq!(
            rt.connect(to).await.unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn a_partition_delays_and_loses_nothing() {
    for seed in 0..50 {
        let world = World::new(Config::stormy(seed));
        let (server, client, far, near) = pair(&world);
        world.partition(&server, &client);
        let received = Rc::new(RefCell::new(Vec::new()));
        let (into, sent) = (
            received.clone(),
            (0..1500_u32).map(|n| n as u8).collect::<Vec<_>>(),
        );
        let expected = sent.clone();
        server
            .rt(0)
            .spawn(async move {
                while let Ok(chunk) = far.recv().await {
                    into.borrow_mut().extend_from_slice(&chunk);
                }
            })
            .detach();
        let sending = client
            .rt(0)
            .spawn(async move { send(&near, &sent).await.map(|()| near) });
        world.run_for(Duration::from_secs(100));
        assert!(received.borrow().is_empty());
        world.heal(&server, &client);
        world.run_for(Duration::from_secs(10));
        assert!(*received.borrow() == expected && sending.is_finished());
    }
}

#[test]
fn a_reset_strikes_both_ends_at_once() {
    let world = World::new(Config::default());
    let (server, client, far, near) = pair(&world);
    let waiting = server
        .rt(0)
        .spawn(async move { far.recv().await.unwrap_err().kind() });
    world.run_for(Duration::from_ms(1));
    world.reset_connections(&server, &client);
    world.run(&client, |_| async move {
        assert_eq!(
            near.recv().await.unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        assert_eq!(waiting.await, ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_silent_connection_notifies_neither_side() {
    let world = World::new(Config::default());
    let (server, client, far, near) = pair(&world);
    world.silence_connections(&server, &client);
    let waiting = server
        .rt(0)
        .spawn(async move { far.recv().await.map(|chunk| chunk.len()) });
    world.run(
        &client,
        |_| async move { send(&near, b"hello?").await.unwrap() },
    );
    world.run_for(Duration::from_secs(3600));
    assert!(!waiting.is_finished());
}

#[test]
fn a_killed_program_closes_or_resets() {
    let mut kinds = Vec::new();
    for seed in 0..20 {
        let world = World::new(Config::calm(seed));
        let (server, client, far, near) = pair(&world);
        server
            .rt(0)
            .spawn(async move {
                let _open = far;
                std::future::pending::<()>().await;
            })
            .detach();
        world.run_for(Duration::from_ms(1));
        let killed = server.clone();
        kinds.push(world.run(&client, |_| async move {
            killed.crash();
            assert!(!killed.is_up());
            near.recv()
                .await
                .map(|chunk| chunk.len())
                .map_err(|error| error.kind())
        }));
    }
    assert!(kinds.contains(&Ok(0)) && kinds.contains(&Err(ErrorKind::ConnectionReset)));
    assert!(
        kinds
            .iter()
            .all(|kind| matches!(kind, Ok(0) | Err(ErrorKind::ConnectionReset)))
    );
}

#[test]
fn a_vanished_machine_answers_only_after_its_restart() {
    let world = World::new(Config::default());
    let (server, client, far, near) = pair(&world);
    let far = Rc::new(Cell::new(Some(far)));
    let vanishing = server.clone();
    let (to, held) = (addr(&server), far.clone());
    world.run(&client, |rt| async move {
        vanishing.crash_silently();
        held.take();
        send(&near, b"are you there?").await.unwrap();
        let near = Rc::new(near);
        let reader = near.clone();
        let reading =
            rt.spawn(async move { reader.recv().await.map_err(|error| error.kind()).err() });
        rt.sleep(Duration::from_secs(60)).await;
        assert!(!reading.is_finished());
        assert_eq!(
            rt.connect(to).await.unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        vanishing.restart();
        assert_eq!(reading.await, Some(ErrorKind::ConnectionReset));
        let listener = vanishing.rt(0).listen(to).unwrap();
        assert!(rt.connect(to).await.is_ok());
        drop(listener);
    });
}

#[test]
fn a_connection_moves_to_another_core() {
    let world = World::new(Config::stormy(9));
    let (server, client) = (world.machine(2), world.machine(1));
    let listener = server.rt(0).listen(addr(&server)).unwrap();
    let (other, to) = (server.rt(1), addr(&server));
    server
        .rt(0)
        .spawn(async move {
            let moved = listener.accept().await.unwrap().detach();
            let stream = other.attach(moved);
            other.spawn(echo_one(stream)).detach();
            drop(listener.accept().await.unwrap().detach());
            std::future::pending::<()>().await;
        })
        .detach();
    world.run(&client, |rt| async move {
        let stream = rt.connect(to).await.unwrap();
        send(&stream, b"round trip").await.unwrap();
        assert_eq!(receive(&stream, 10, &mut Rng::new(1)).await, b"round trip");
        let lost = rt.connect(to).await.unwrap();
        assert!(
            lost.recv().await.unwrap().is_empty(),
            "dropped on the way between cores"
        );
    });
}

#[test]
fn dropped_operations_are_cancelled_and_take_nothing() {
    let world = World::new(Config::default());
    let (server, client) = (world.machine(1), world.machine(1));
    let to = addr(&server);
    let listener = server.rt(0).listen(to).unwrap();
    let up = server.clone();
    world.run(&client, |rt| async move {
        let accepting = up.rt(0).spawn(async move {
            let mut given_up = Box::pin(listener.accept());
            let pending = is_pending_once(&mut given_up).await;
            assert!(pending);
            drop(given_up);
            listener.accept().await.unwrap()
        });
        let near = rt.connect(to).await.unwrap();
        let far = accepting.await;
        let balance = Buf::balance();
        {
            let buf = Buf::take(8192).unwrap();
            let mut waiting = Box::pin(near.recv_into(buf, 0));
            assert!(is_pending_once(&mut waiting).await);
        }
        rt.sleep(Duration::from_ms(1)).await;
        assert_eq!(Buf::balance(), balance, "the buffer is back");
        assert_eq!(
            near.recv().await.unwrap_err().kind(),
            ErrorKind::ConnectionAborted
        );
        drop(far);
    });
}

/// Polls once; whether it was pending.
async fn is_pending_once<F: std::future::Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

#[test]
fn random_resets_do_strike() {
    let mut struck = 0;
    for seed in 0..20 {
        let world = World::new(Config {
            resets_per_million: 100_000,
            ..Config::stormy(seed)
        });
        let (_, client, far, near) = pair(&world);
        struck += u32::from(world.run(&client, |_| async move {
            let result = send(&near, &[0; 1000]).await;
            let more = far.recv().await;
            result.is_err() || more.is_err()
        }));
    }
    assert!(struck > 0);
}

#[test]
fn sends_receives_and_a_shared_line_cost_what_is_said() {
    let (us, fixed) = (Duration::from_us, |span| (span, span));
    let world = World::new(Config {
        latency: fixed(us(10)),
        turn: fixed(Duration::ZERO),
        bandwidth: 1_000_000_000,
        toll: Toll {
            send: us(2),
            receive: us(3),
            piece: us(5),
            payload: 1000,
            overhead: 100,
            shared: true,
        },
        ..Config::calm(1)
    });
    let (server, client, far, near) = pair(&world);
    let (handle, rt) = (world.handle(), server.rt(0));
    let times = world.run(&client, |client_rt| async move {
        let begun = client_rt.now();
        let sends = handle.sends();
        let receiving = rt.clone().spawn(async move {
            let mut times = Vec::new();
            for _ in 0..2 {
                let chunk = far.recv().await.expect("it comes");
                times.push((rt.now().since(begun).as_ns(), chunk.len()));
            }
            (times, handle.sends() - sends)
        });
        send(&near, &[1; 5000]).await.expect("it goes");
        client_rt.sleep(us(1)).await;
        send(&near, &[2; 5000]).await.expect("it goes");
        receiving.await
    });
    // 5,000 bytes are five packets and take 5.5 us of the line; they leave 2 us after they were
    // sent. The core of the second receive is busy with the first for 8 us.
    let (times, sends) = times;
    assert_eq!(sends, 2);
    assert_eq!(times[0], (17_500, 5000));
    assert_eq!(times[1], (25_500, 5000));
}
