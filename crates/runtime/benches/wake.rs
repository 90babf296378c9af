//! How late timers fire: the usual ones, which let the core sleep until the kernel wakes it, and
//! the precise ones.
//!
//! `cargo bench -p flashyard-runtime --bench wake -- [seconds per row]`

use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_time::{Duration, Histogram};

fn main() {
    let seconds = std::env::args()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(2);
    println!("timer    every us   late us: p50      p99      max   processor");
    for precise in [false, true] {
        for span in [50, 150, 1000, 5000].map(Duration::from_us) {
            row(precise, span, Duration::from_secs(seconds));
        }
    }
}

fn row(precise: bool, span: Duration, length: Duration) {
    // Without polling after each timer, which would hide what is measured.
    let config = Config {
        poll: Duration::ZERO,
        ..Config::default()
    };
    let used = processor_time();
    let late = uring::run(config, move |rt| measure(rt, precise, span, length));
    let late = late.expect("this machine has io_uring");
    let used = processor_time() - used;
    println!(
        "{:8} {:8} {:15.1} {:8.1} {:8.1} {:9.1} %",
        if precise { "precise" } else { "usual" },
        span.as_us(),
        late.percentile(500_000) as f64 / 1e3,
        late.percentile(990_000) as f64 / 1e3,
        late.max() as f64 / 1e3,
        used / length.as_secs_f64() * 100.0,
    );
}

async fn measure(rt: Rt, precise: bool, span: Duration, length: Duration) -> Histogram {
    let mut late = Histogram::new();
    let end = rt.now() + length;
    loop {
        let deadline = rt.now() + span;
        if deadline > end {
            return late;
        }
        if precise {
            rt.sleep_until_precise(deadline).await;
        } else {
            rt.sleep_until(deadline).await;
        }
        late.record(rt.now().since(deadline).as_ns());
    }
}

/// Seconds of processor time that this process has used.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields = stat.rsplit(')').next().unwrap_or_default();
    // User and system time are the 14th and 15th field; two stand before the bracket. 100 ticks are
    // a second.
    let ticks = |place: usize| -> f64 {
        let field = fields.split_whitespace().nth(place - 3);
        field.and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0)
    };
    (ticks(14) + ticks(15)) / 100.0
}
