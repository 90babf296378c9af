//! What the parts of the executor cost, in nanoseconds of this machine. With instructions instead:
//! `valgrind --tool=callgrind <the bench's executable> <part> <times>` for two numbers of times;
//! the difference counts.
//!
//! `cargo bench -p flashyard-runtime --bench parts -- [part] [times]`

use std::future::poll_fn;
use std::hint::black_box;
use std::task::Poll;

use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, CommandPool, Data, Gather, Rt};

const PARTS: [&str; 6] = [
    "wake",
    "spawn",
    "pool-ready",
    "pool-waits",
    "buffer",
    "gather",
];

fn main() {
    let args: Vec<String> = std::env::args()
        .filter(|arg| !arg.starts_with("--"))
        .collect();
    let times = args
        .iter()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    let chosen = PARTS
        .iter()
        .filter(|part| args.iter().any(|arg| arg == *part));
    let chosen: Vec<&str> = chosen.copied().collect();
    let parts = if chosen.is_empty() {
        PARTS.to_vec()
    } else {
        chosen
    };
    for part in parts {
        let main = move |rt: Rt| async move {
            let start = rt.now();
            measure(&rt, part, times).await;
            rt.now().since(start)
        };
        let span = uring::run(Config::default(), main).expect("this machine has io_uring");
        println!(
            "{part:12} {:7.1} ns",
            span.as_ns() as f64 / f64::from(times)
        );
    }
}

async fn measure(rt: &Rt, part: &str, times: u32) {
    match part {
        "wake" => wake(times).await,
        "spawn" => {
            for number in 0..times {
                black_box(rt.spawn(async move { number }).await);
            }
        }
        "pool-ready" => {
            let pool = CommandPool::new(rt, 1);
            for number in 0..times {
                assert!(
                    pool.run(async move { assert!(black_box(number) <= times) })
                        .is_ok()
                );
            }
        }
        "pool-waits" => {
            let pool = CommandPool::new(rt, 128);
            for _ in 0..times / 128 {
                (0..128).for_each(|_| assert!(pool.run(wake(1)).is_ok()));
                rt.turn_end().await;
            }
        }
        "buffer" => {
            for _ in 0..times {
                black_box(Buf::take(4096));
            }
        }
        "gather" => {
            let mut gather = Gather::new();
            for _ in 0..times / 128 {
                for _ in 0..128 {
                    gather.push_bytes(&[1; 24]);
                    gather.push_data(Data::Zeroes(4096), 0..4096);
                    gather.push_bytes(&[1; 24]);
                }
                black_box(&gather);
                gather.clear();
            }
        }
        _ => unreachable!("parts are from the list"),
    }
}

/// Waits for its own wake so many times.
async fn wake(mut times: u32) {
    poll_fn(|context| {
        if times == 0 {
            return Poll::Ready(());
        }
        times -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
