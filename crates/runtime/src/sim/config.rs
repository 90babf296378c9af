//! Parameters of a simulated world: latencies, faults, sizes.

use flashyard_time::Duration;

/// Latencies and faults of the world. Everything here keeps the promises of TCP and of
/// disks, except [`Config::resets_per_million`]; other faults are asked for one by one at
/// [`super::World`], [`super::Machine`] and [`super::Disk`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides everything.
    pub seed: u64,
    /// Network latency, smallest and largest, one way.
    pub latency: (Duration, Duration),
    /// The same from a machine to itself.
    pub loopback_latency: (Duration, Duration),
    /// Bytes per second of each connection and direction.
    pub bandwidth: u64,
    /// What the network costs the machines, where that is of interest; nothing in the calm and the
    /// stormy world.
    pub toll: Toll,
    /// Bytes of each connection and direction that are sent and not yet received by the peer's
    /// program; a send that finds no room waits.
    pub socket_buffer: usize,
    /// Cut what is received and sent at random bytes.
    pub fragment: bool,
    /// Chance that a piece of data on its way resets its connection instead of arriving.
    pub resets_per_million: u32,
    /// How long a connect tries to reach a machine that does not answer.
    pub connect_timeout: Duration,
    /// How long a core takes for one turn of its loop, smallest and largest.
    pub turn: (Duration, Duration),
    /// How long a sleeping core takes to notice what another core sent to it, smallest and largest.
    pub kick: (Duration, Duration),
    /// New disks and files.
    pub disk: DiskConfig,
    /// Bound of the buffer pool of each core, in bytes, and of the one that tests take from outside
    /// of all cores.
    pub buffer_bytes: usize,
    /// The world ends with a panic after so many turns and events: something runs in circles.
    pub max_steps: u64,
}

/// What sending and receiving cost. Cores are busy for as long, and what they send leaves that much
/// later; with [`super::Weather::spend`] programs of an experiment say what else a core has to do.
#[derive(Clone, Debug, Default)]
pub struct Toll {
    /// Time of a core for each send, however much it sends.
    pub send: Duration,
    /// Time of a core for each receive.
    pub receive: Duration,
    /// Time of the receiving core for each piece that has arrived. What is sent in one call arrives
    /// as one piece for every 64 KiB, as with offloads for segmentation at the one end and for
    /// joining at the other.
    pub piece: Duration,
    /// Most payload of a packet, in bytes. 0: data need no packets.
    pub payload: usize,
    /// Bytes on the line of each packet beside its payload.
    pub overhead: usize,
    /// All connections of a machine send over one line of [`Config::bandwidth`], instead of each
    /// over its own. Those that have something to send share it equally, as with the fair queues
    /// that Linux has by default.
    pub shared: bool,
}

/// How disks and files behave unless set otherwise.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Time of an operation beside the transfer, smallest and largest.
    pub latency: (Duration, Duration),
    /// Bytes per second.
    pub bandwidth: u64,
    /// What reaches the medium together or not at all, in bytes; also what direct transfers are
    /// aligned to.
    pub sector: u32,
    /// Bytes that may be written and not yet durable; beyond it the oldest become durable by
    /// themselves.
    pub cache_bytes: u64,
}

impl Default for Config {
    /// A calm world with seed 0: a data-centre network, a fast disk, nothing in pieces.
    fn default() -> Self {
        Self {
            seed: 0,
            latency: (Duration::from_us(10), Duration::from_us(20)),
            loopback_latency: (Duration::from_us(2), Duration::from_us(4)),
            bandwidth: 5_000_000_000,
            toll: Toll::default(),
            socket_buffer: 1 << 20,
            fragment: false,
            resets_per_million: 0,
            connect_timeout: Duration::from_secs(10),
            turn: (Duration::from_ns(200), Duration::from_us(1)),
            kick: (Duration::from_ns(500), Duration::from_us(2)),
            disk: DiskConfig {
                latency: (Duration::from_us(20), Duration::from_us(60)),
                bandwidth: 3_000_000_000,
                sector: 512,
                cache_bytes: 64 << 20,
            },
            buffer_bytes: 256 << 20,
            max_steps: 200_000_000,
        }
    }
}

impl Config {
    /// The calm world with another seed.
    pub fn calm(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// A nasty world, itself drawn from the seed: everything in pieces, latencies over three orders
    /// of magnitude, narrow lines, small socket buffers, slow disks and cores. It still keeps all
    /// promises.
    pub fn stormy(seed: u64) -> Self {
        let mut rng = flashyard_time::Rng::new(seed).split(0x5702);
        let mut up_to = |us: u64| (Duration::from_us(1), Duration::from_us(1 + rng.below(us)));
        let (latency, loopback_latency) = (up_to(20_000), up_to(500));
        let (turn, kick, disk_latency) = (up_to(50), up_to(200), up_to(20_000));
        Self {
            seed,
            latency,
            loopback_latency,
            bandwidth: 20_000_000 + rng.below(2_000_000_000),
            socket_buffer: 1 << (11 + rng.below(9)),
            fragment: true,
            turn,
            kick,
            disk: DiskConfig {
                latency: disk_latency,
                bandwidth: 100_000_000 + rng.below(2_000_000_000),
                sector: 512,
                cache_bytes: 1 << (16 + rng.below(10)),
            },
            ..Self::default()
        }
    }
}
