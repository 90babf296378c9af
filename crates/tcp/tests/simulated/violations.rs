//! Hosts that break the rules of NVMe/TCP: each gets a `C2HTermReq` with the right FES (and FEI
//! where it has a meaning), then nothing more, and the connection is closed. Others do not notice.

use flashyard_engine::HostEventKind;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::tcp::{Digests, H2CData, ICReq, R2T};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, NO_DIGESTS, Site, pattern};

const HEADER_DIGEST: Digests = Digests {
    header: true,
    data: false,
};

/// Waits for the TermReq and the close behind it.
async fn terminated(client: &mut Client) -> (u16, u32) {
    let term = loop {
        match client.next().await {
            Incoming::TermReq(term) => break term,
            Incoming::End => panic!("closed without a word"),
            _ => {}
        }
    };
    assert!(
        matches!(client.next().await, Incoming::End),
        "nothing after a TermReq"
    );
    (term.fes.0, term.fei)
}

/// An I/O queue with an R2T out for a write of 8 KiB.
async fn with_r2t(bench: &Bench) -> (Client, Client, R2T) {
    let (admin, mut io) = bench.connect("a", 1).await;
    let range = LbaRange { slba: 0, blocks: 2 };
    io.submit(
        SubmissionQueueEntry::write(1, range, Sgl::Transport { length: 8192 }),
        &[],
    )
    .await;
    let Incoming::R2t(r2t) = io.next().await else {
        panic!("an R2T")
    };
    (admin, io, r2t)
}

fn with_site<F: Future<Output = ()> + 'static>(seed: u64, main: impl FnOnce(Bench) -> F) {
    let site = Site::new(Config::stormy(seed), 1);
    site.run(|bench| {
        bench.attach_memory("a", 1);
        main(bench)
    });
}

#[test]
fn the_first_pdu() {
    let ic = ICReq::default().encode();
    let mut longer = ic;
    longer[4] = 129;
    let mut version = ic;
    version[8] = 1;
    let mut alignment = ic;
    alignment[10] = 32;
    let mut kind = ic;
    kind[0] = 0x55;
    let mut command = vec![0u8; 72];
    command[..8].copy_from_slice(&[4, 0, 72, 0, 72, 0, 0, 0]);
    let table: [(&[u8], u16, u32); 5] = [
        (&longer, 1, 4),
        (&version, 6, 8),
        (&alignment, 6, 10),
        (&kind, 1, 0),
        (&command, 2, 0),
    ];
    for (seed, (bytes, fes, fei)) in (0..).zip(table) {
        let bytes = bytes.to_vec();
        with_site(seed, move |bench| async move {
            let mut client = Client::silent(&bench.host_rt, bench.addr).await;
            client.send_bytes(&bytes).await;
            assert_eq!(
                terminated(&mut client).await,
                (fes, fei),
                "{:x?}",
                &bytes[..16]
            );
        });
    }
}

#[test]
fn a_second_icreq_and_pdus_of_the_wrong_direction() {
    let mut response = vec![0u8; 24];
    response[..8].copy_from_slice(&[5, 0, 24, 0, 24, 0, 0, 0]);
    for (seed, (bytes, fes)) in (0..).zip([(ICReq::default().encode().to_vec(), 2), (response, 1)])
    {
        with_site(seed, move |bench| async move {
            let (_admin, mut io) = bench.connect("a", 1).await;
            io.send_bytes(&bytes).await;
            assert_eq!(terminated(&mut io).await.0, fes);
        });
    }
}

#[test]
fn lengths_and_offsets_of_a_capsule() {
    // Where in the common header, what, FEI.
    let table: [(usize, &[u8], u32); 5] = [
        (2, &[71], 2),
        (4, &[71, 0, 0, 0], 4),
        (3, &[70], 3),
        (6, &[0xff], 4),
        (1, &[1], 1),
    ];
    for (seed, (at, value, fei)) in (0..).zip(table) {
        with_site(seed, move |bench| async move {
            let (_admin, mut io) = bench.connect("a", 1).await;
            let sgl = Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            };
            let write = SubmissionQueueEntry::write(1, LbaRange { slba: 0, blocks: 1 }, sgl);
            let mut bytes = io.capsule(write.with_cid(9), &pattern(1, 4096));
            bytes[at..at + value.len()].copy_from_slice(value);
            io.send_bytes(&bytes).await;
            assert_eq!(terminated(&mut io).await, (1, fei), "byte {at}");
        });
    }
}

#[test]
fn more_in_a_capsule_than_the_controller_takes() {
    with_site(1, |bench| async move {
        let (_admin, mut io) = bench.connect("a", 1).await;
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: 12288,
        };
        let write = SubmissionQueueEntry::write(1, LbaRange { slba: 0, blocks: 3 }, sgl);
        io.submit(write, &pattern(1, 12288)).await;
        assert_eq!(terminated(&mut io).await, (1, 4));
    });
}

#[test]
fn a_wrong_header_digest() {
    with_site(2, |bench| async move {
        let (_admin, mut io) = bench.connect_with("a", 1, HEADER_DIGEST, 32).await;
        let mut bytes = io.capsule(SubmissionQueueEntry::flush(1).with_cid(5), &[]);
        bytes[20] ^= 1;
        io.send_bytes(&bytes).await;
        assert_eq!(terminated(&mut io).await.0, 3);
    });
}

#[test]
fn a_wrong_data_digest_is_not_fatal() {
    let digests = Digests {
        header: true,
        data: true,
    };
    with_site(3, move |bench| async move {
        let (_admin, mut io) = bench.connect_with("a", 1, digests, 32).await;
        let data = pattern(1, 4096);
        let range = LbaRange { slba: 0, blocks: 1 };
        let write = SubmissionQueueEntry::write(
            1,
            range,
            Sgl::InCapsule {
                offset: 0,
                length: BLOCK,
            },
        );
        let mut bytes = io.capsule(write.with_cid(5), &data);
        *bytes.last_mut().expect("a digest") ^= 1;
        io.send_bytes(&bytes).await;
        let response = io.response().await;
        assert!(response.cid() == 5 && response.status().is(Status::TRANSIENT_TRANSPORT_ERROR));

        let write = SubmissionQueueEntry::write(1, range, Sgl::Transport { length: BLOCK });
        io.submit_as(6, write, &[]).await;
        let Incoming::R2t(r2t) = io.next().await else {
            panic!("an R2T")
        };
        let pdu = H2CData {
            cccid: 6,
            ttag: r2t.ttag,
            datao: 0,
            datal: BLOCK,
            last: true,
        };
        let mut bytes = io.h2c_data(pdu, &data);
        bytes[100] ^= 1;
        io.send_bytes(&bytes).await;
        assert!(
            io.response()
                .await
                .status()
                .is(Status::TRANSIENT_TRANSPORT_ERROR)
        );
        assert_eq!(
            io.read(1, 0, 1, BLOCK).await.expect("the queue lives"),
            vec![0; 4096],
            "nothing was written"
        );
    });
}

#[test]
fn data_that_nobody_asked_for() {
    let pdu = |cccid, ttag, datao, datal, last| H2CData {
        cccid,
        ttag,
        datao,
        datal,
        last,
    };
    let table = [
        (pdu(2, 0, 0, 8192, true), 2, "the wrong command"),
        (pdu(1, 9, 0, 8192, true), 2, "the wrong tag"),
        (pdu(1, 0xffff, 0, 8192, true), 2, "a tag beyond the table"),
        (pdu(1, 0, 4096, 4096, true), 4, "not the next byte"),
        (pdu(1, 0, 0, 12288, true), 4, "past the end"),
        (
            pdu(1, 0, u32::MAX - 4095, 8192, true),
            4,
            "an end that wraps",
        ),
        (pdu(1, 0, 0, 4096, true), 1, "last too early"),
        (pdu(1, 0, 0, 8192, false), 1, "last missing"),
    ];
    for (seed, (pdu, fes, why)) in (0..).zip(table) {
        with_site(seed, move |bench| async move {
            let (_admin, mut io, r2t) = with_r2t(&bench).await;
            let cccid = if pdu.cccid == 1 {
                r2t.cccid
            } else {
                r2t.cccid + 1
            };
            let ttag = if pdu.ttag == 0 { r2t.ttag } else { pdu.ttag };
            let pdu = H2CData { cccid, ttag, ..pdu };
            let bytes = io.h2c_data(pdu, &vec![1; pdu.datal as usize]);
            io.send_bytes(&bytes).await;
            assert_eq!(terminated(&mut io).await.0, fes, "{why}");
        });
    }
}

#[test]
fn data_for_a_transfer_that_is_over_or_on_the_admin_queue() {
    with_site(4, |bench| async move {
        let (mut admin, mut io, r2t) = with_r2t(&bench).await;
        io.send_requested(&r2t, &[7; 8192], 4096).await;
        assert!(io.response().await.status().is_success());
        io.send_requested(&r2t, &[8; 8192], 8192).await;
        assert_eq!(terminated(&mut io).await.0, 2);
        admin.send_requested(&r2t, &[8; 8192], 8192).await;
        assert_eq!(terminated(&mut admin).await.0, 2);
    });
}

#[test]
fn more_commands_than_the_queue_has_places() {
    with_site(5, |bench| async move {
        let (_admin, mut io) = bench.connect_with("a", 1, NO_DIGESTS, 4).await;
        for _ in 0..5 {
            let write = SubmissionQueueEntry::write(
                1,
                LbaRange { slba: 0, blocks: 1 },
                Sgl::Transport { length: BLOCK },
            );
            io.submit(write, &[]).await;
        }
        assert_eq!(terminated(&mut io).await.0, 2);
    });
}

#[test]
fn an_identifier_in_use_is_refused_and_the_first_goes_on() {
    with_site(6, |bench| async move {
        let (_admin, mut io, r2t) = with_r2t(&bench).await;
        io.submit_as(r2t.cccid, SubmissionQueueEntry::flush(1), &[])
            .await;
        assert!(io.response().await.status().is(Status::COMMAND_ID_CONFLICT));
        io.send_requested(&r2t, &[7; 8192], 4096).await;
        assert!(io.response().await.status().is_success());
        assert_eq!(io.read(1, 0, 2, BLOCK).await.expect("good"), vec![7; 8192]);
    });
}

#[test]
fn a_host_that_gives_up_is_let_go() {
    with_site(7, |bench| async move {
        let (_admin, mut io) = bench.connect("a", 1).await;
        let mut term = vec![0u8; 24];
        term[..8].copy_from_slice(&[2, 0, 24, 0, 24, 0, 0, 0]);
        term[8] = 1;
        io.send_bytes(&term).await;
        assert!(matches!(io.next().await, Incoming::End));
    });
}

#[test]
fn commands_before_connect() {
    with_site(8, |bench| async move {
        let mut client = Client::initialized(&bench.host_rt, bench.addr, NO_DIGESTS).await;
        let status = client
            .command(SubmissionQueueEntry::property_get(0, true), &[])
            .await
            .status();
        assert!(status.is(Status::COMMAND_SEQUENCE_ERROR));
    });
}

/// The last violations are shown, by whomever, and no more than the last.
#[test]
fn violations_are_told_to_whoever_runs_the_target() {
    with_site(9, |bench| async move {
        let (_admin, mut io) = bench.connect("a", 1).await;
        io.send_bytes(&ICReq::default().encode()).await;
        terminated(&mut io).await;
        let event = bench.target.snapshot().recent_events.remove(0);
        let controller = event.controller.expect("it was connected");
        assert_eq!(controller.tenant.as_deref(), Some("a"));
        assert!(matches!(event.kind, HostEventKind::Violation(violation) if violation.fes.0 == 2));
        for _ in 0..70 {
            let mut client = Client::silent(&bench.host_rt, bench.addr).await;
            client.send_bytes(&[0x55; 128]).await;
            terminated(&mut client).await;
        }
        let events = bench.target.snapshot().recent_events;
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (8..=71).collect::<Vec<u64>>());
        assert!(events[0].controller.is_none());
    });
}
