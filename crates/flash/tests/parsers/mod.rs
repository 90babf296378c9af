//! Any text as the profile of a drive. Used by the tests here and by the fuzz targets.

use flashyard_flash::ssd::{BuildError, Command, Device, Op};
use flashyard_flash::{Profile, channel};
use flashyard_time::Time;

/// Bytes of the drives that are built at most.
const MOST: u64 = 64 << 20;

/// Reads bytes as a profile, builds a small drive and a small open-channel device of it, and lets
/// the drive do some I/O.
pub(crate) fn profile(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let profile = match Profile::parse(text) {
        Ok(profile) => profile,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Some(mut device) = build(|capacity| Device::new(&profile, capacity, 1)) {
        use_it(&mut device);
    }
    let options = channel::Options::default;
    let channel = build(|capacity| channel::Device::new(&profile, capacity, 1, options()));
    if let Some(device) = channel {
        let geometry = device.geometry();
        assert!(geometry.capacity() <= MOST && device.report().count() > 1);
    }
}

/// A small device, if one can be built. The least capacity may leave too little in reserve.
fn build<D>(new: impl Fn(u64) -> Result<D, BuildError>) -> Option<D> {
    let least = match new(0) {
        Err(BuildError::Capacity { least, .. }) => least,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
        Ok(_) => panic!("a device of no bytes"),
    };
    let sizes = [1, 4, 16, 64].map(|times| times * least).into_iter();
    let mut built = sizes.filter(|size| *size <= MOST).map(new);
    built.find_map(Result::ok)
}

fn use_it(device: &mut Device) {
    let mut done = Vec::new();
    let units = device.capacity() / 4096;
    let ops = [
        Op::Write,
        Op::Read,
        Op::WriteThrough,
        Op::Deallocate,
        Op::Flush,
    ];
    for (tag, op) in (0..).zip(ops.into_iter().cycle().take(40)) {
        let command = Command {
            tag,
            op,
            start: tag * 7 % units,
            units: 1,
        };
        let submitted = device.submit(Time::from_ns(tag * 1000), command);
        submitted.expect("it lies on the drive");
    }
    // Some have to be erased first, which may take seconds.
    for _ in 0..10_000 {
        let Some(next) = device.next_event() else {
            break;
        };
        device.advance(next, &mut done);
    }
    assert_eq!(device.check(), Ok(()));
}
