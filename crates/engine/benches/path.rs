//! The cost of an I/O on a null device: a target in one process, a host that does as little as it
//! can in another.
//!
//! `path serve PORT [POLL [HOME]]` serves until its first host has gone, polling for POLL
//! microseconds before it sleeps. With HOME it has two cores: I/O comes to core 1, and the device
//! is at home on core HOME, so 1 is the device of the same core, and 0 is that of the other one.
//! `path load PORT read|write DEPTH COUNT` is that host, on blocking sockets. To count
//! instructions, run the target under callgrind with two counts and divide the difference:
//!
//! ```text
//! cargo bench -p flashyard-engine --bench path --no-run
//! valgrind --tool=callgrind target/release/deps/path-... serve 4499 &
//! target/release/deps/path-... load 4499 read 128 100000
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::NullDevice;
use flashyard_engine::{
    Class, Core, Limits, NamespaceSpec, SubsystemNames, Target, TargetConfig, TenantId, TenantSpec,
};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::tcp::{CapsuleCmd, ICReq, MAX_HEADER, Outgoing};
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::uring::{self, Config};
use flashyard_sched::{Fifo, Window};
use flashyard_time::Duration;

const PREFIX: &str = "nqn.2026-11.dev.flashyard";
const BLOCK: u32 = 4096;
const RESPONSE: usize = 24;
const INITIALIZE: usize = 128;

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", port] => serve(number(port) as u16, Config::default().poll, None),
        ["serve", port, poll] => {
            let poll = Duration::from_us(number(poll) as u64);
            serve(number(port) as u16, poll, None);
        }
        ["serve", port, poll, home] => {
            let poll = Duration::from_us(number(poll) as u64);
            serve(number(port) as u16, poll, Some(number(home)));
        }
        ["load", port, kind @ ("read" | "write"), depth, count] => {
            load(
                number(port) as u16,
                kind == "write",
                number(depth),
                number(count),
            );
        }
        // What `cargo bench` runs: small, so that it cannot rot.
        _ => {
            let server = std::thread::spawn(|| serve(4498, Config::default().poll, None));
            std::thread::sleep(std::time::Duration::from_millis(300));
            load(4498, false, 128, 100_000);
            server.join().expect("the target ends with its host");
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

fn serve(port: u16, poll: Duration, home: Option<usize>) {
    let cores = if home.is_some() { 2 } else { 1 };
    let target = Target::new(TargetConfig {
        nqn_prefix: PREFIX.into(),
        target_uuid: [1; 16],
        limits: Limits::default(),
        cores,
    });
    let spec = TenantSpec {
        id: TenantId(1),
        name: "bench".into(),
        hosts: vec!["*".into()],
        class: Class::Throughput,
        names: SubsystemNames::default(),
    };
    target.set_tenant(spec).expect("a good tenant");
    let home = home.unwrap_or(0);
    let threads: Vec<_> = (0..cores)
        .map(|core| {
            let target = target.clone();
            let config = Config {
                core,
                processor: (cores == 1).then_some(0),
                poll,
                ..Config::default()
            };
            let listen = (core == 0).then_some(port);
            std::thread::spawn(move || {
                uring::run(config, move |rt| serve_on(rt, target, core, home, listen))
                    .expect("io_uring is allowed here");
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a core ends with its host");
    }
}

async fn serve_on(rt: Rt, target: Arc<Target>, index: usize, home: usize, listen: Option<u16>) {
    let core = Core::start(rt.clone(), target.clone(), index);
    if index == home {
        let null = Rc::new(NullDevice::new(BLOCK, 1 << 40).expect("a good size"));
        let switch = core.add_switch(Box::new(Fifo::new(Window::UNLIMITED)));
        let namespace = NamespaceSpec::new(1, [1; 16], core.add_device(null, &switch));
        target.attach("bench", namespace).expect("a free number");
    }
    if let Some(port) = listen {
        core.listen(SocketAddr::from(([127, 0, 0, 1], port)))
            .expect("a free port");
    }
    while target.snapshot().controllers.is_empty() {
        rt.sleep(Duration::from_ms(10)).await;
    }
    while !target.snapshot().controllers.is_empty() {
        rt.sleep(Duration::from_ms(10)).await;
    }
}

fn load(port: u16, write: bool, depth: usize, count: usize) {
    let mut admin = connect(port);
    let cntlid = join(
        &mut admin,
        Connect {
            sqsize: 31,
            ..Connect::default()
        },
        ConnectData::DYNAMIC,
    );
    command(
        &mut admin,
        &SubmissionQueueEntry::property_set(0x14, false, 0x0046_0001),
        &[],
    );
    let mut io = connect(port);
    let sqsize = u16::try_from(depth.max(1)).expect("a queue depth");
    let connect = Connect {
        qid: 1,
        sqsize,
        cattr: Connect::CATTR_DISABLE_SQ_FLOW_CONTROL,
        ..Connect::default()
    };
    join(&mut io, connect, cntlid);
    let begun = std::time::Instant::now();
    closed_loop(&mut io, write, depth, count);
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} in {seconds:.3} s: {:.0} per second",
        count as f64 / seconds
    );
}

/// Keeps `depth` commands outstanding. A null device answers in order, so counting bytes is enough.
fn closed_loop(io: &mut TcpStream, write: bool, depth: usize, count: usize) {
    let reply = if write {
        RESPONSE
    } else {
        RESPONSE + BLOCK as usize
    };
    let (mut sent, mut seen) = (0, 0);
    let mut batch = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    while seen < count * reply {
        batch.clear();
        while sent < count && sent < seen / reply + depth {
            push(
                &mut batch,
                write,
                (sent % depth) as u16,
                sent as u64 % 1_000_000,
            );
            sent += 1;
        }
        io.write_all(&batch).expect("the target takes commands");
        let n = io.read(&mut buffer).expect("the target answers");
        assert!(n > 0, "the target closed");
        seen += n;
    }
}

fn push(batch: &mut Vec<u8>, write: bool, cid: u16, slba: u64) {
    let range = LbaRange { slba, blocks: 1 };
    let (entry, data_len) = if write {
        (
            SubmissionQueueEntry::write(
                1,
                range,
                Sgl::InCapsule {
                    offset: 0,
                    length: BLOCK,
                },
            ),
            BLOCK,
        )
    } else {
        (
            SubmissionQueueEntry::read(1, range, Sgl::Transport { length: BLOCK }),
            0,
        )
    };
    let mut header = [0; MAX_HEADER];
    let len = CapsuleCmd {
        entry: entry.with_cid(cid),
        data_len,
    }
    .encode(Outgoing::default(), &mut header);
    batch.extend_from_slice(&header[..len]);
    batch.resize(batch.len() + data_len as usize, 0x5a);
}

fn connect(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the target listens");
    stream.set_nodelay(true).expect("a socket");
    stream
        .write_all(&ICReq::default().encode())
        .expect("an open connection");
    stream.read_exact(&mut [0; INITIALIZE]).expect("an ICResp");
    stream
}

fn join(stream: &mut TcpStream, connect: Connect, cntlid: u16) -> u16 {
    let hostnqn = Nqn::new("nqn.2014-08.org.nvmexpress:uuid:bench").expect("a good name");
    let subnqn = Nqn::new(&format!("{PREFIX}:bench")).expect("a good name");
    let data = ConnectData {
        hostid: [1; 16],
        cntlid,
        subnqn,
        hostnqn,
    };
    let response = command(
        stream,
        &SubmissionQueueEntry::connect(connect),
        &data.encode(),
    );
    u16::from_le_bytes([response[8], response[9]])
}

fn command(stream: &mut TcpStream, entry: &SubmissionQueueEntry, data: &[u8]) -> [u8; RESPONSE] {
    let mut header = [0; MAX_HEADER];
    let capsule = CapsuleCmd {
        entry: *entry,
        data_len: data.len() as u32,
    };
    let len = capsule.encode(Outgoing::default(), &mut header);
    stream
        .write_all(&header[..len])
        .expect("an open connection");
    stream.write_all(data).expect("an open connection");
    let mut response = [0; RESPONSE];
    stream.read_exact(&mut response).expect("a response");
    assert!(
        response[22] & 0xfe == 0 && response[23] == 0,
        "success: {response:?}"
    );
    response
}
