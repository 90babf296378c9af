//! What a controller knows of its NVM subsystem: names, namespaces, and who may connect. Plain
//! data; the target changes it, controllers read it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;

use flashyard_nvme::Nqn;
use flashyard_nvme::identify::ascii_field;

/// What a subsystem calls itself in MN of Identify Controller when nobody says.
pub const MODEL: &str = "Flashyard";

/// An NVM subsystem: one tenant, or the discovery subsystem (which has no namespaces).
#[derive(Clone, Debug)]
pub struct Subsystem {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number, the same over all controllers and restarts ([`serial_number`]).
    pub serial: [u8; 20],
    /// Model number, the same over all controllers.
    pub model: [u8; 40],
    /// Who may connect.
    pub hosts: HostList,
    /// Namespaces by their identifier.
    pub namespaces: BTreeMap<u32, NamespaceInfo>,
    /// The greatest NSID there can be (NN, MNAN).
    pub max_namespaces: u32,
    /// Moves with every change of this value, so that copies know when they are old.
    pub generation: u64,
}

impl Subsystem {
    /// A subsystem without namespaces. `target` is the identity of the target, for the serial
    /// number.
    pub fn new(nqn: Nqn, target: &[u8; 16], hosts: HostList, max_namespaces: u32) -> Self {
        Self {
            nqn,
            serial: serial_number(target, &nqn),
            model: ascii_field(MODEL),
            hosts,
            namespaces: BTreeMap::new(),
            max_namespaces,
            generation: 0,
        }
    }

    /// Whether it has the names of `other`.
    pub fn is_called_as(&self, other: &Self) -> bool {
        (self.nqn, self.serial, self.model) == (other.nqn, other.serial, other.model)
    }

    /// Whether `nsid` may name a namespace, attached or not.
    pub fn is_valid_nsid(&self, nsid: u32) -> bool {
        (1..=self.max_namespaces).contains(&nsid)
    }
}

/// A namespace as its hosts see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamespaceInfo {
    /// Namespace Identifier, from 1.
    pub nsid: u32,
    /// Bytes of a logical block: a power of two from 512 to 64 KiB.
    pub block_size: u32,
    /// Size, logical blocks.
    pub blocks: u64,
    /// Logical blocks that hold data (NUSE); all of them where nobody counts.
    pub used: u64,
    /// Never changes, and is never used for another namespace.
    pub uuid: [u8; 16],
    /// The same for the NGUID.
    pub nguid: [u8; 16],
    /// The same for the EUI64, if there is one.
    pub eui64: Option<[u8; 8]>,
    /// Writes are refused.
    pub read_only: bool,
    /// They are because the configuration says so, whatever the device takes.
    pub write_protected: bool,
    /// Completed writes may be lost by a power cut until a Flush.
    pub volatile_cache: bool,
    /// Deallocate frees space.
    pub deallocate: bool,
    /// Writes of this size and alignment need nothing read to be written, logical blocks; 0 if
    /// nothing is to be said.
    pub write_granularity: u32,
    /// Writes of this size use all of the device, logical blocks; 0 if nothing is to be said.
    pub optimal_write: u32,
    /// Writes up to so many logical blocks survive a power cut whole or not at all; at least 1.
    pub atomic_write: u32,
    /// Best size and alignment of deallocation, logical blocks; 0 if nothing is to be said.
    pub deallocate_granularity: u32,
}

/// Which hosts may connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostList {
    /// Every host.
    Any,
    /// These hosts.
    Only(BTreeSet<Nqn>),
}

impl HostList {
    /// From names; `*` lets anybody in. A name that is not an NQN can be nobody's and is passed
    /// over.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut only = BTreeSet::new();
        for name in names {
            if name == "*" {
                return Self::Any;
            }
            only.extend(Nqn::new(name));
        }
        Self::Only(only)
    }

    /// Whether `host` may connect.
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Only(hosts) => hosts.contains(host),
        }
    }
}

/// A serial or model number as it stands in Identify Controller: printable ASCII, padded with
/// spaces. `None` if the text is empty, too long, has another character, or begins or ends with a
/// space, which hosts do not see.
pub fn printable<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let good = (1..=LEN).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim() == text;
    good.then(|| ascii_field(text))
}

/// The serial number of subsystem `nqn` of a target: `FY` and 16 hexadecimal digits, the same for
/// ever.
pub fn serial_number(target: &[u8; 16], nqn: &Nqn) -> [u8; 20] {
    // FNV-1a: stable by definition, which the hashers of the standard library are not.
    let hash = target
        .iter()
        .chain(nqn.as_str().as_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    ascii_field(&format!("FY{hash:016X}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nqn(name: &str) -> Nqn {
        Nqn::new(name).expect("a name of a test")
    }

    #[test]
    fn a_serial_number_is_stable_and_of_one_subsystem() {
        let a = serial_number(&[7; 16], &nqn("nqn.2026-11.dev.flashyard:a"));
        assert_eq!(&a, b"FY217998935BA1E96F  ");
        assert_ne!(
            a,
            serial_number(&[7; 16], &nqn("nqn.2026-11.dev.flashyard:b"))
        );
        assert_ne!(
            a,
            serial_number(&[8; 16], &nqn("nqn.2026-11.dev.flashyard:a"))
        );
    }

    #[test]
    fn numbers_are_printable_and_fit() {
        assert_eq!(printable::<4>("A 1"), Some(*b"A 1 "));
        assert_eq!(printable::<4>("ABCD"), Some(*b"ABCD"));
        for wrong in ["", "ABCDE", "\u{e9}", "a\n", " a", "a ", "a\0"] {
            assert_eq!(printable::<4>(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn host_lists() {
        let db = nqn("nqn.2014-08.org.nvmexpress:uuid:db");
        assert!(HostList::of(["*"]).allows(&db));
        assert!(HostList::of(["nonsense", db.as_str()]).allows(&db));
        assert!(!HostList::of(["nqn.2014-08.org.nvmexpress:uuid:d", "nonsense"]).allows(&db));
        assert!(!HostList::of([]).allows(&db));
    }
}
