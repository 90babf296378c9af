//! A function whose I/O queues are on several cores of a real target.

use flashyard_host::vfio::{Guest, GuestOptions};
use flashyard_time::Duration;

use crate::functions::{BLOCK, beside, range, small, socket, with_volume};
use crate::rig::{Scratch, Target};

/// Whatever the doorbells are, each core sees those of its queues, and the data of the others.
#[test]
fn queues_of_a_function_are_on_as_many_cores_as_was_chosen() {
    let scratch = Scratch::new("function-cores");
    let target = Target::start(&scratch, &["--cores", "2"]);
    with_volume(&scratch, &target);
    let wide = ["function", "create", "wide", "--tenant", "db"];
    let wide = target.json(&[&wide[..], &["--cores", "2"]].concat());
    assert_eq!(wide["cores"], 2);
    let mapped = ["function", "create", "mapped", "--tenant", "db"];
    let options = ["--cores", "2", "--doorbells", "mapped"];
    let mapped = target.json(&[&mapped[..], &options].concat());
    let sockets = [socket(&wide), socket(&mapped)];
    let target = beside(target, move |rt, _| async move {
        for (number, shadow) in [(0, false), (0, true), (1, false), (1, true)] {
            let options = GuestOptions {
                shadow,
                mapped: number == 1,
                ..small()
            };
            let mut guest = loop {
                match Guest::start(&rt, &sockets[number], options).await {
                    Ok(guest) => break guest,
                    Err(_) => rt.sleep(Duration::from_ms(5)).await,
                }
            };
            for round in 0..100u8 {
                let data = vec![round; BLOCK];
                let (by, other) = [(1, 2), (2, 1)][usize::from(round % 2)];
                let mut read = vec![0; BLOCK];
                let at = range(u64::from(round), 1);
                guest.write((by, 1), at, (0, &data)).await.expect("written");
                let done = guest.read((other, 1), at, (0, &mut read)).await;
                done.expect("read");
                assert!(read == data, "round {round}");
            }
        }
    });
    assert_eq!(target.json(&["function", "show", "wide"])["io_queues"], 0);
    let set = ["function", "set", "wide", "--cores", "1"];
    assert_eq!(target.json(&set)["cores"], 1);
    assert_eq!(target.terminate(), 0);
}
