//! What is answered when nothing uses the guest's memory any more: on no core.

use flashyard_host::vfio::Guest;
use flashyard_nvme::vfio_user::pci::{BAR0, CONFIG};
use flashyard_nvme::vfio_user::{DmaUnmap, RegionAccess, Request, UNMAP_ALL};
use flashyard_testbed::{BLOCK, pattern};
use flashyard_time::Duration;

use super::{GUEST, SOON, begin, range, run, works};

/// What the guest wants to be over before it uses its memory for something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Unmapped,
    Reset,
    FunctionReset,
    /// A reset of the function whose controller the guest has disabled before.
    DisabledFunctionReset,
}

impl Over {
    const ALL: [Self; 4] = [
        Self::Unmapped,
        Self::Reset,
        Self::FunctionReset,
        Self::DisabledFunctionReset,
    ];

    pub(super) async fn ask(self, guest: &mut Guest) {
        if self == Self::DisabledFunctionReset {
            let disabled = guest.client.write(BAR0, 0x14, &[0; 4]).await;
            disabled.expect("written");
        }
        let request = match self {
            Self::Unmapped => Request::DmaUnmap(DmaUnmap {
                argsz: 24,
                flags: UNMAP_ALL,
                address: 0,
                size: 0,
            }),
            Self::Reset => Request::Reset,
            Self::FunctionReset | Self::DisabledFunctionReset => {
                let access = RegionAccess {
                    offset: 0x68,
                    region: CONFIG,
                    count: 2,
                };
                Request::RegionWrite(access, &[0x00, 0x80])
            }
        };
        let sent = guest.client.send(&request.encode(77), &[]).await;
        sent.expect("sent");
    }
}

/// The answer comes when no device moves data any more, whichever core has given it the memory.
#[test]
fn memory_that_another_core_has_lent_is_given_back_when_the_device_is_done() {
    for over in Over::ALL {
        run(move |world| async move {
            let mut guest = world.guest(GUEST).await;
            let data = pattern(7, 8 * BLOCK as usize);
            let written = guest.write((1, 1), range(0, 8), (0, &data)).await;
            written.expect("written");
            let cid = begin(&world, &mut guest).await;
            over.ask(&mut guest).await;
            let (rt, door) = (world.rt().clone(), world.door.clone());
            let opened = rt.clone().spawn(async move {
                rt.sleep(SOON).await;
                door.open();
                rt.now()
            });
            let reply = guest.client.reply().await;
            reply.expect("an answer");
            let answered = world.rt().now();
            assert!(answered >= opened.await, "{over:?}: answered too early");
            let mut seen = vec![0; data.len()];
            let at = guest.data(2, cid, 0);
            guest.load(at, &mut seen).expect("memory");
            assert!(seen == data, "{over:?}: the device was not done");
        });
    }
}

/// A device that does not come to an end holds the client up for 4 s.
#[test]
fn an_answer_does_not_wait_for_a_device_that_hangs() {
    for over in [Over::Unmapped, Over::Reset] {
        run(move |world| async move {
            let mut guest = world.guest(GUEST).await;
            begin(&world, &mut guest).await;
            let began = world.rt().now();
            over.ask(&mut guest).await;
            guest.client.reply().await.expect("an answer");
            let took = world.rt().now() - began;
            let patience = Duration::from_secs(4)..Duration::from_secs(5);
            assert!(patience.contains(&took), "{took}");
            assert!(guest.status().await.expect("CSTS").cfs);
            if over == Over::Unmapped {
                guest
                    .map_memory()
                    .await
                    .expect("the next answers are not held up");
                assert!(world.rt().now() - began < Duration::from_secs(5));
            }
        });
    }
}

#[test]
fn a_controller_is_not_disabled_before_devices_of_other_cores_are_done() {
    run(|world| async move {
        let mut guest = world.guest(GUEST).await;
        for round in 1..4 {
            begin(&world, &mut guest).await;
            let disabled = guest.client.write(BAR0, 0x14, &[0; 4]).await;
            disabled.expect("written");
            for _ in 0..20 {
                world.rt().sleep(Duration::from_ms(5)).await;
                assert!(guest.status().await.expect("CSTS").rdy, "round {round}");
            }
            world.door.open();
            guest.disable().await.expect("RDY is 0");
            guest.enable().await.expect("enabled");
            works(&mut guest, round).await;
        }
    });
}
