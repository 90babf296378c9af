//! The discovery subsystem, at the same address.

use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::feature::AsyncEventConfiguration;
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{Bench, Client, Identity, NO_DIGESTS, Site, tenant};

async fn connect(bench: &Bench, host: u8) -> Client {
    let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
    let connect = Connect {
        sqsize: 31,
        ..Connect::default()
    };
    let nqn = Nqn::DISCOVERY;
    let answer = client
        .connect(
            connect,
            ConnectData::DYNAMIC,
            nqn.as_str(),
            &Identity::number(host.into()),
        )
        .await;
    assert!(answer.status().is_success());
    client.enable().await;
    client
}

async fn log(client: &mut Client) -> (u64, Vec<String>) {
    let length = 8192;
    let entry = SubmissionQueueEntry::raw(0x02, 0)
        .with_cdw(10, 0x70 | (length / 4 - 1) << 16)
        .with_sgl(Sgl::Transport { length });
    let page = client.fetch(entry).await.expect("the log");
    let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"));
    let names = (0..word(8) as usize).map(|record| {
        let field = &page[1024 * (record + 1) + 256..][..256];
        let end = field
            .iter()
            .position(|byte| *byte == 0)
            .expect("a terminated name");
        String::from_utf8_lossy(&field[..end]).into_owned()
    });
    (word(0), names.collect())
}

#[test]
fn hosts_see_what_they_may_connect_to_and_hear_of_changes() {
    let site = Site::new(Config::stormy(1), 2);
    site.run(|bench| async move {
        let mine = Identity::number(1).hostnqn;
        bench
            .target
            .set_tenant(tenant(2, "b", &[mine.as_str()]))
            .expect("good");
        let (mut one, mut two) = (connect(&bench, 1).await, connect(&bench, 2).await);
        let (generation, names) = log(&mut one).await;
        assert!(
            names.iter().any(|name| name.ends_with(":a"))
                && names.iter().any(|name| name.ends_with(":b"))
        );
        let (_, names) = log(&mut two).await;
        assert!(
            names.iter().any(|name| name.ends_with(":a"))
                && !names.iter().any(|name| name.ends_with(":b"))
        );

        for client in [&mut one, &mut two] {
            client.want_events(AsyncEventConfiguration::DISCOVERY).await;
            client
                .submit(SubmissionQueueEntry::async_event_request(), &[])
                .await;
        }
        bench
            .target
            .set_tenant(tenant(3, "c", &[mine.as_str()]))
            .expect("good");
        assert_eq!(one.response().await.dw0(), 0x0070_f002);
        let (later, names) = log(&mut one).await;
        assert!(later > generation && names.iter().any(|name| name.ends_with(":c")));
        assert!(
            two.command(SubmissionQueueEntry::keep_alive(), &[])
                .await
                .status()
                .is_success(),
            "not shown"
        );
    });
}
