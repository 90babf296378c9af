//! What a guest may do that breaks rules, drawn by chance.

use std::os::fd::AsFd;

use flashyard_host::vfio::{Guest, GuestOptions, RAM_BASE};
use flashyard_nvme::vfio_user::pci::{BAR0, BAR4, BAR5, CONFIG};
use flashyard_nvme::vfio_user::{
    DMA_READ, DMA_WRITE, DmaMap, DmaUnmap, IrqAction, IrqData, Request, SetIrqs, UNMAP_ALL,
};
use flashyard_runtime::Rt;
use flashyard_runtime::unix::EventCounter;
use flashyard_time::Rng;

/// One random act of a guest: registers, doorbells, memory under queues and lists, mappings,
/// interrupts.
pub(crate) async fn act(guest: &mut Guest, rt: &Rt, rng: &mut Rng) {
    let mut bytes = vec![0; 64];
    rng.fill_bytes(&mut bytes);
    // What is refused is refused; what is not goes on.
    match rng.below(11) {
        0 => {
            let (offset, len) = (rng.below(0x44) & !3, [4, 8][rng.below(2) as usize]);
            let _ = guest.client.write(BAR0, offset, &bytes[..len]).await;
        }
        1..=3 => {
            let offset = 0x1000 + rng.below(8) * 4;
            let value = rng.below(70) as u32;
            let _ = guest.client.write(BAR0, offset, &value.to_le_bytes()).await;
        }
        4 => {
            let offset = rng.below(0x70);
            let _ = guest.client.write(CONFIG, offset, &bytes[..1]).await;
        }
        5 => {
            let bar = if rng.chance(1, 2) { BAR4 } else { BAR5 };
            let _ = guest.client.write(bar, rng.below(4200), &bytes[..4]).await;
        }
        6 => remap(guest, rng).await,
        7 if rng.chance(1, 2) => interrupts(guest, rt, rng, &bytes).await,
        _ => {
            // Small numbers: commands, addresses and lists that are nearly right.
            for byte in &mut bytes {
                if rng.chance(1, 2) {
                    *byte = 0;
                }
            }
            bytes[0] = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 0x7c][rng.below(11) as usize];
            let page = RAM_BASE + (rng.below(256) << 12);
            bytes[24..32].copy_from_slice(&(page + rng.below(2) * 8).to_le_bytes());
            bytes[32..40].copy_from_slice(&page.to_le_bytes());
            let at = RAM_BASE + rng.below(2048) * 64;
            let _ = guest.store(at, &bytes);
        }
    }
}

/// Maps and unmaps all, or pieces that may overlap what is there, be read-only, or have no memory.
async fn remap(guest: &mut Guest, rng: &mut Rng) {
    let ram = GuestOptions::SMALL.ram;
    match rng.below(16) {
        0 => {
            let _ = guest.unmap_memory().await;
            let _ = guest.map_memory().await;
        }
        1 => {
            let all = DmaUnmap {
                argsz: 24,
                flags: UNMAP_ALL,
                address: 0,
                size: 0,
            };
            let _ = guest.client.ask(&Request::DmaUnmap(all), &[]).await;
        }
        2..=4 => {
            let _ = guest.map_memory().await;
        }
        5..=8 => {
            let file = guest.memory().try_clone().expect("a descriptor");
            let offset = rng.below(ram >> 12) << 12;
            let map = DmaMap {
                flags: [DMA_READ, DMA_READ | DMA_WRITE][rng.below(2) as usize],
                offset,
                address: RAM_BASE + offset + (rng.below(8) / 7) * rng.next_u64(),
                size: (1 + rng.below(64)) << 12,
            };
            let fds = [file.as_fd()];
            let fds = &fds[..usize::from(rng.chance(7, 8))];
            let _ = guest.client.ask(&Request::DmaMap(map), fds).await;
        }
        _ => {}
    }
}

/// Any setting of interrupts, with descriptors of counters and of what is none.
async fn interrupts(guest: &mut Guest, rt: &Rt, rng: &mut Rng, bytes: &[u8]) {
    let counter = EventCounter::new(rt).expect("a counter");
    let file = guest.memory().try_clone().expect("a descriptor");
    let fds = [if rng.chance(3, 4) {
        counter.as_fd()
    } else {
        file.as_fd()
    }];
    let any = |rng: &mut Rng, below: u64| match rng.below(8) {
        0 => rng.next_u64() as u32,
        _ => rng.below(below) as u32,
    };
    let count = any(rng, 4);
    let (data, count, fds) = match rng.below(3) {
        0 => (IrqData::None, count, &fds[..0]),
        1 => (
            IrqData::Bool(&bytes[..count as usize % 60]),
            count % 60,
            &fds[..0],
        ),
        _ => (IrqData::EventFds, 1, &fds[..rng.below(2) as usize]),
    };
    let set = SetIrqs {
        index: [0, 0, 2, 2, 2, any(rng, 6)][rng.below(6) as usize],
        start: any(rng, 70),
        count,
        action: [
            IrqAction::Mask,
            IrqAction::Unmask,
            IrqAction::Trigger,
            IrqAction::Trigger,
        ][rng.below(4) as usize],
        data,
    };
    let _ = guest.client.ask(&Request::SetIrqs(set), fds).await;
}
