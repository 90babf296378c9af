//! Parties that take all they may of connections, queues and controllers, and those who come after
//! them.

use flashyard_engine::Limits;
use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::{Nqn, Status};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Bench, Client, Identity, NO_DIGESTS, Site, subnqn, tenant};
use flashyard_time::Duration;

/// What a host asks for: a queue of a subsystem's controller.
struct Wish<'a> {
    subnqn: &'a str,
    host: u8,
    cntlid: u16,
    qid: u16,
}

/// Its connection, unless the target has too many already.
async fn connect(bench: &Bench, rt: &Rt, wish: Wish<'_>) -> Option<Client> {
    let mut client = Client::initialized(rt, bench.addr, NO_DIGESTS).await;
    let connect = Connect {
        sqsize: 31,
        qid: wish.qid,
        ..Connect::default()
    };
    let host = Identity::number(wish.host.into());
    let answer = client
        .connect(connect, wish.cntlid, wish.subnqn, &host)
        .await;
    let status = answer.status();
    let busy = status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.dnr();
    assert!(status.is_success() || busy, "{answer:?}");
    status.is_success().then_some(client)
}

/// As many controllers as `bench.host_rt` gets of a subsystem, by hosts from number `host` on.
async fn controllers(bench: &Bench, rt: &Rt, subnqn: &str, host: u8) -> Vec<Client> {
    let mut clients = Vec::new();
    for host in host.. {
        let wish = Wish {
            subnqn,
            host,
            cntlid: ConnectData::DYNAMIC,
            qid: 0,
        };
        match connect(bench, rt, wish).await {
            Some(client) => clients.push(client),
            None => break,
        }
    }
    clients
}

/// Addresses that hold all the connections they may, without a word on them, leave some to the
/// next; alone, each has many.
#[test]
fn idle_connections_of_two_addresses() {
    let limits = Limits {
        unconnected: 100,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(1), 1, limits);
    let others = [1, 2].map(|_| site.world.machine(1).rt(0));
    site.run(move |bench| async move {
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for rt in others {
            for _ in 0..100 {
                held.push(Client::silent(&rt, bench.addr).await);
            }
            bench.host_rt.sleep(Duration::from_ms(100)).await;
            counts.push(bench.target.snapshot().unconnected);
        }
        assert_eq!(counts, [20, 36]);
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        assert!(io.read(1, 0, 1, BLOCK).await.is_ok());
    });
}

/// Nor does it help to ask for the discovery log under many names.
#[test]
fn discovery_controllers_of_one_address() {
    let limits = Limits {
        discovery_controllers: 40,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(2), 1, limits);
    let other = site.world.machine(1).rt(0);
    site.run(move |bench| async move {
        let name = Nqn::DISCOVERY.to_string();
        let mut first = controllers(&bench, &bench.host_rt, &name, 1).await;
        assert_eq!(first.len(), 8);
        let second = controllers(&bench, &other, &name, 1).await;
        assert_eq!(second.len(), 6);
        // What is given back can be had again.
        first.truncate(2);
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        let again = controllers(&bench, &bench.host_rt, &name, 100).await;
        assert!(again.len() >= 4, "{}", again.len());
        drop(bench.admin("a", 1).await);
    });
}

/// Tenants that make as many controllers as they may leave some to the next.
#[test]
fn controllers_of_greedy_tenants() {
    let limits = Limits {
        controllers: 140,
        discovery_controllers: 40,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(3), 1, limits);
    site.run(|bench| async move {
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for (id, name) in (3..).zip(["c", "d", "e", "f", "g"]) {
            let spec = tenant(id, name, &["*"]);
            bench.target.set_tenant(spec).expect("a good tenant");
            let got = controllers(&bench, &bench.host_rt, &subnqn(name), 1).await;
            counts.push(got.len());
            held.push(got);
        }
        assert_eq!(counts, [20, 16, 13, 10, 8]);
        let discovering = controllers(&bench, &bench.host_rt, &Nqn::DISCOVERY.to_string(), 1).await;
        assert_eq!(discovering.len(), 8, "they have their own");
        drop(bench.connect("a", 1).await);
    });
}

/// Nor may they have all connections for their queues.
#[test]
fn queues_of_greedy_tenants() {
    let limits = Limits {
        connections: 400,
        unconnected: 50,
        discovery_controllers: 50,
        ..Limits::default()
    };
    let site = Site::with_limits(Config::calm(4), 1, limits);
    site.run(|bench| async move {
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for (id, name) in (3..).zip(["c", "d", "e"]) {
            let spec = tenant(id, name, &["*"]);
            bench.target.set_tenant(spec).expect("a good tenant");
            let (admin, cntlid) = bench.admin(name, 1).await;
            held.push(admin);
            let mut queues = 1;
            for qid in 1..=128 {
                let subnqn = &subnqn(name);
                let wish = Wish {
                    subnqn,
                    host: 1,
                    cntlid,
                    qid,
                };
                let Some(queue) = connect(&bench, &bench.host_rt, wish).await else {
                    break;
                };
                held.push(queue);
                queues += 1;
            }
            counts.push(queues);
        }
        assert_eq!(counts, [60, 48, 38]);
        bench.attach_memory("a", 1);
        let (_admin, mut io) = bench.connect("a", 1).await;
        assert!(io.read(1, 0, 1, BLOCK).await.is_ok());
    });
}
