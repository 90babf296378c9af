//! Who has to wait until what a dead association has issued has returned: whoever may be the same
//! host. A host is known by its name and its identifier (HOSTNQN and HOSTID), and one that has
//! changed either is still taken for the same.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Bench, Client, Identity, NO_DIGESTS, Site, memory, subnqn};
use flashyard_time::Duration;

use crate::devices::Held;

/// A Connect of the Admin queue, whatever comes of it.
async fn connect(
    bench: &Bench,
    tenant: &str,
    identity: &Identity,
) -> (Client, CompletionQueueEntry) {
    let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
    let connect = Connect {
        sqsize: 31,
        ..Connect::default()
    };
    let dynamic = ConnectData::DYNAMIC;
    let answer = client
        .connect(connect, dynamic, &subnqn(tenant), identity)
        .await;
    (client, answer)
}

/// A write of host 1 is stuck at the device when the host goes; then somebody connects to `tenant`,
/// and writes to the same block. Whether that one had to wait.
fn newcomer_waits(seed: u64, home: usize, tenant: &'static str, newcomer: Identity) -> bool {
    let site = Site::new(Config::stormy(seed), 2);
    site.run(move |bench| async move {
        let (device, gate) = Held::around(memory(1 << 20));
        let device = bench.attach("a", 1, home, device);
        bench.attach_handle("b", 1, &device);
        let (admin, mut io) = bench.connect("a", 1).await;
        gate.shut();
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: BLOCK,
        };
        let range = LbaRange { slba: 0, blocks: 1 };
        let write = SubmissionQueueEntry::write(1, range, sgl);
        io.submit(write, &[1; BLOCK as usize]).await;
        while gate.issued.borrow().is_empty() {
            bench.host_rt.sleep(Duration::from_ms(1)).await;
        }
        drop((admin, io));
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        let (early, answer) = connect(&bench, tenant, &newcomer).await;
        let waits = answer.status().is(Status::CONNECT_CONTROLLER_BUSY);
        assert!(waits || answer.status().is_success(), "{answer:?}");
        assert!(!answer.status().dnr());
        gate.open();
        let (mut admin, answer) = match waits {
            true => connect(&bench, tenant, &newcomer).await,
            false => (early, answer),
        };
        assert!(answer.status().is_success(), "{answer:?}");
        admin.enable().await;
        let seat = (answer.dw0() as u16, 1, 32);
        let nqn = subnqn(tenant);
        let rt = &bench.host_rt;
        let mut io = Client::io(rt, bench.addr, NO_DIGESTS, &nqn, &newcomer, seat).await;
        let data = [2; BLOCK as usize];
        assert_eq!(
            io.write_in_capsule(1, 0, &data, BLOCK).await,
            Status::SUCCESS
        );
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(io.read(1, 0, 1, BLOCK).await.expect("good"), data);
        waits
    })
}

#[test]
fn whoever_may_be_the_host_that_went_has_to_wait() {
    let (gone, other) = (Identity::number(1), Identity::number(2));
    let mixed = |name: &Identity, id: &Identity| Identity {
        hostnqn: name.hostnqn,
        hostid: id.hostid,
    };
    for seed in 0..3 {
        for home in [1, 0] {
            for (newcomer, waits) in [
                (gone, true),
                (mixed(&gone, &other), true),
                (mixed(&other, &gone), true),
                (other, false),
            ] {
                let names = (newcomer.hostnqn.as_str().to_owned(), newcomer.hostid[0]);
                let waited = newcomer_waits(seed, home, "a", newcomer);
                assert_eq!(waited, waits, "seed {seed}, home {home}, {names:?}");
            }
            let elsewhere = newcomer_waits(seed, home, "b", gone);
            assert!(!elsewhere, "what is of another tenant is no fence");
        }
    }
}
