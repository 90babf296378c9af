//! What completions tell that a host may have outstanding, byte by byte.

use flashyard_block::IoError;
use flashyard_engine::TenantId;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::Connect;
use flashyard_nvme::feature::{CompletionCoalescing, FeatureId};
use flashyard_nvme::tcp::Digests;
use flashyard_nvme::{Allowance, CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_sched::{Ask, Credit, Fair, Fifo, IoId, Next, Outcome, Policy, Window};
use flashyard_testbed::{
    BLOCK, Bench, Client, Identity, Incoming, NO_DIGESTS, Site, memory, subnqn,
};
use flashyard_time::{Duration, Time};

use crate::devices::Held;
use crate::drive::drive;

/// What an I/O takes; one after the other.
const SERVICE: Duration = Duration::from_us(50);

/// Gives the tenants a device with a speed, at home on the last core, behind `policy`.
fn attach_slow(site: &Site, policy: Box<dyn Policy>) {
    let last = site.bench.cores.len() - 1;
    let home = &site.bench.cores[last];
    let (slow, _) = drive(&site.server.rt(last), 1, SERVICE);
    let device = home.add_device(slow, &home.add_switch(policy));
    for tenant in ["a", "b"] {
        site.bench.attach_handle(tenant, 1, &device);
    }
}

async fn ask_for_credits(admin: &mut Client) {
    let set = SubmissionQueueEntry::set_features(FeatureId::COMMAND_CREDITS.0, 0, 1);
    assert!(admin.command(set, &[]).await.status().is_success());
}

/// An association of host number `host`, and an I/O queue that asks for credits or does not.
async fn connect(bench: &Bench, tenant: &str, host: u8, asks: bool) -> (Client, Client) {
    let (mut admin, cntlid) = bench.admin(tenant, host).await;
    if asks {
        ask_for_credits(&mut admin).await;
    }
    let io = bench
        .io_with(tenant, host, NO_DIGESTS, (cntlid, 1, 128))
        .await;
    (admin, io)
}

fn read() -> SubmissionQueueEntry {
    let range = LbaRange { slba: 0, blocks: 1 };
    SubmissionQueueEntry::read(1, range, Sgl::Transport { length: BLOCK })
}

fn write(slba: u64) -> SubmissionQueueEntry {
    let length = BLOCK;
    SubmissionQueueEntry::write(
        1,
        LbaRange { slba, blocks: 1 },
        Sgl::InCapsule { offset: 0, length },
    )
}

/// The next completion, whatever data come before it.
async fn completion(io: &mut Client) -> CompletionQueueEntry {
    loop {
        match io.next().await {
            Incoming::Response(entry) => return entry,
            Incoming::Data { .. } => {}
            other => panic!("a completion: {other:?}"),
        }
    }
}

/// Every kind of success and of failure: what is in the bytes beside the identifier, the head and
/// the status.
async fn answers(io: &mut Client) -> Vec<(Status, [u8; 8], u16)> {
    let beyond = 1 << 40;
    let zeroes = LbaRange { slba: 0, blocks: 1 };
    let commands = [
        (read(), vec![]),
        (write(0), vec![1; BLOCK as usize]),
        (write(0).with_fua(), vec![1; BLOCK as usize]),
        (SubmissionQueueEntry::flush(1), vec![]),
        (write(beyond), vec![1; BLOCK as usize]),
        (SubmissionQueueEntry::flush(9), vec![]),
        (SubmissionQueueEntry::write_zeroes(1, zeroes, false), vec![]),
    ];
    let mut answers = Vec::new();
    for (entry, data) in commands {
        io.submit(entry, &data).await;
        let entry = completion(io).await;
        answers.push((entry.status(), entry.value().to_le_bytes(), entry.sqid()));
    }
    answers
}

#[test]
fn a_host_that_did_not_ask_gets_no_credits() {
    for cores in [1, 2] {
        let site = Site::new(Config::calm(1), cores);
        attach_slow(&site, Box::new(Fair::new()));
        site.run(|bench| async move {
            // Others of its tenant do ask.
            let (_admin, mut asking) = connect(&bench, "a", 1, true).await;
            let (_other, mut plain) = connect(&bench, "a", 2, false).await;
            let asking = answers(&mut asking).await;
            let plain = answers(&mut plain).await;
            for ((status, dwords, sqid), (asking_status, asking_dwords, code)) in
                plain.into_iter().zip(asking)
            {
                assert_eq!((status, dwords, sqid), (asking_status, [0; 8], 0));
                assert_eq!(asking_dwords, [0; 8]);
                let allowance = Allowance::from_code(code >> 3);
                assert_eq!(code & 7, 0, "retires nothing else");
                let units = matches!(allowance, Allowance::Units(units) if units >= 8);
                let silent = allowance == Allowance::Silent;
                assert!(
                    if status.is_success() { units } else { silent },
                    "{status}: {allowance:?}"
                );
            }
        });
    }
}

#[test]
fn a_policy_that_says_nothing_is_told_as_no_bound() {
    let site = Site::new(Config::calm(2), 2);
    attach_slow(&site, Box::new(Fifo::new(Window::UNLIMITED)));
    site.run(|bench| async move {
        let (_admin, mut io) = connect(&bench, "a", 1, true).await;
        for _ in 0..3 {
            io.submit(read(), &[]).await;
            assert_eq!(completion(&mut io).await.allowance(), Allowance::Unbounded);
        }
    });
}

/// Reads one after the other with `depth` in flight, until `until`; gives how many came back.
async fn hammer(io: &mut Client, depth: usize, until: Time, rt: &Rt) -> u64 {
    let mut done = 0;
    for _ in 0..depth {
        io.submit(read(), &[]).await;
    }
    while rt.now() < until {
        assert!(completion(io).await.status().is_success());
        done += 1;
        io.submit(read(), &[]).await;
    }
    done
}

/// A host that asks for credits and then does as it likes gets what one gets that never asked, and
/// so does the tenant beside it.
#[test]
fn who_does_not_heed_its_credit_gains_nothing_and_harms_nobody() {
    let rates = |asks: bool| {
        let site = Site::new(Config::calm(3), 1);
        attach_slow(&site, Box::new(Fair::new()));
        site.run(move |bench| async move {
            let rt = bench.host_rt.clone();
            let (_admin, mut greedy) = connect(&bench, "a", 1, asks).await;
            let (_other, mut modest) = connect(&bench, "b", 2, false).await;
            let until = rt.now() + Duration::from_ms(300);
            let clock = rt.clone();
            let modest = rt.spawn(async move { hammer(&mut modest, 16, until, &clock).await });
            let greedy = hammer(&mut greedy, 100, until, &rt).await;
            [greedy, modest.await]
        })
    };
    let (heedless, plain) = (rates(true), rates(false));
    for (heedless, plain) in heedless.into_iter().zip(plain) {
        assert!(plain > 2_000, "{plain}");
        assert!(
            heedless.abs_diff(plain) <= plain / 50,
            "{heedless} instead of {plain}"
        );
    }
}

/// A host that gave up flow control gets no completions of reads, but for news of its credit.
#[test]
fn without_completions_of_reads_only_news_are_told() {
    let site = Site::new(Config::calm(4), 1);
    attach_slow(&site, Box::new(Fair::new()));
    site.run(|bench| async move {
        let (mut admin, cntlid) = bench.admin("a", 1).await;
        ask_for_credits(&mut admin).await;
        let mut io = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
        let connect = Connect {
            qid: 1,
            sqsize: 127,
            cattr: Connect::CATTR_DISABLE_SQ_FLOW_CONTROL,
            ..Connect::default()
        };
        let host = Identity::number(1);
        let answer = io.connect(connect, cntlid, &subnqn("a"), &host).await;
        assert!(answer.status().is_success());
        let (mut with_credit, mut silent) = (0, 0);
        for _ in 0..300 {
            io.submit(read(), &[]).await;
            let Incoming::Data { header, .. } = io.next().await else {
                panic!("data")
            };
            if header.success {
                silent += 1;
                continue;
            }
            let entry = completion(&mut io).await;
            assert!(
                matches!(entry.allowance(), Allowance::Units(1..)),
                "{entry:?}"
            );
            with_credit += 1;
        }
        assert!(
            with_credit >= 1 && silent > 250,
            "{with_credit} of {}",
            with_credit + silent
        );
    });
}

/// First come, first served, and always the same credit.
struct Steady {
    inner: Fifo,
    ios: u32,
}

impl Steady {
    fn of(ios: u32) -> Box<dyn Policy> {
        let inner = Fifo::new(Window::UNLIMITED);
        Box::new(Self { inner, ios })
    }
}

impl Policy for Steady {
    fn arrive(&mut self, now: Time, io: Ask) {
        self.inner.arrive(now, io);
    }

    fn next(&mut self, now: Time) -> Next {
        self.inner.next(now)
    }

    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome) {
        self.inner.complete(now, io, outcome);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        self.inner.cancel(now, id);
    }

    fn credit(&self, _: TenantId) -> Option<Credit> {
        Some(Credit {
            ios: self.ios,
            bytes: u64::from(self.ios) * u64::from(BLOCK),
        })
    }
}

/// What so many commands of a block come to.
fn commands(ios: u64) -> Allowance {
    Allowance::Units(ios * Allowance::cost(u64::from(BLOCK)))
}

/// Commands that fail, at the device or on their way, give back what they took: nobody else of the
/// tenant gets fewer credits.
#[test]
fn what_fails_gives_its_credit_back() {
    let site = Site::new(Config::calm(5), 1);
    site.run(|bench| async move {
        let (device, gate) = Held::around(memory(1 << 20));
        let core = &bench.cores[0];
        let device = core.add_device(device, &core.add_switch(Steady::of(64)));
        bench.attach_handle("a", 1, &device);
        let digests = Digests {
            header: false,
            data: true,
        };
        let (mut admin, cntlid) = bench.admin("a", 1).await;
        ask_for_credits(&mut admin).await;
        let mut failing = bench.io_with("a", 1, digests, (cntlid, 1, 128)).await;
        let (_other, mut io) = connect(&bench, "a", 2, true).await;
        let data = vec![1; BLOCK as usize];
        gate.failing.set(Some(IoError::Write));
        for n in 0..100 {
            let command = write(n).with_cid(n as u16);
            let mut bytes = failing.capsule(command, &data);
            if n % 2 == 0 {
                // Damaged on its way.
                bytes[100] ^= 1;
            }
            failing.send_bytes(&bytes).await;
            assert!(!failing.response().await.status().is_success());
        }
        gate.failing.set(None);
        for _ in 0..2 {
            io.submit(read(), &[]).await;
            assert_eq!(completion(&mut io).await.allowance(), commands(64));
        }
    });
}

/// A completion that tells of several successes tells what may be outstanding at the namespace of
/// the first.
#[test]
fn a_completion_for_many_tells_of_one_namespace() {
    let site = Site::new(Config::calm(6), 1);
    site.run(|bench| async move {
        let core = &bench.cores[0];
        for nsid in [1, 2] {
            let policy = Steady::of(ios_of(nsid) as u32);
            let device = core.add_device(memory(1 << 20), &core.add_switch(policy));
            bench.attach_handle("a", nsid, &device);
        }
        let (mut admin, cntlid) = bench.admin("a", 1).await;
        ask_for_credits(&mut admin).await;
        let coalescing = CompletionCoalescing {
            window: 5,
            packed: true,
        };
        let feature = FeatureId::COMPLETION_COALESCING.0;
        let set = SubmissionQueueEntry::set_features(feature, 0, coalescing.bits());
        assert!(admin.command(set, &[]).await.status().is_success());
        let mut io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, 1, 128)).await;
        let data = vec![1; BLOCK as usize];
        let mut mixed = 0;
        for nsids in [[1, 1, 1, 1, 1], [1, 2, 1, 2, 2], [2, 1, 1, 1, 1]] {
            let mut bytes = Vec::new();
            for (n, nsid) in (0..).zip(nsids) {
                let length = BLOCK;
                let sgl = Sgl::InCapsule { offset: 0, length };
                let write = SubmissionQueueEntry::write(nsid, LbaRange { slba: n, blocks: 1 }, sgl);
                bytes.extend(io.capsule(write.with_cid(n as u16), &data));
            }
            io.send_bytes(&bytes).await;
            let mut left = nsids.len();
            while left > 0 {
                let answer = completion(&mut io).await;
                let nsid = nsids[usize::from(answer.cid())];
                assert_eq!(answer.allowance(), commands(ios_of(nsid)), "{nsids:?}");
                let bare = answer.with_allowance(Allowance::Silent);
                let more: Vec<_> = bare.retired().expect("at most four").collect();
                let other = |cid: &u16| nsids[usize::from(*cid)] != nsid;
                mixed += usize::from(more.iter().any(other));
                left -= 1 + more.len();
            }
        }
        assert!(mixed >= 2, "they tell of one namespace anyway");
    });
}

/// What may be outstanding at each of two namespaces.
fn ios_of(nsid: u32) -> u64 {
    [64, 16][nsid as usize - 1]
}
