//! What is wrong with a specification taken by itself, in one line that says what to do. Whether
//! the things it names exist is the inventory's question.

use std::collections::BTreeSet;

use flashyard_block::pool::VolumeForm;
use flashyard_nvme::Nqn;
use serde::Deserialize;

use super::error::{
    NAME_LEN_MAX, NQN_LEN_MAX, SIZE_LEAST, SpecError, TenantError, VolumeError, check_name,
};
use super::flat::FlatDevice;
use super::target::CORES_MOST;
use super::{
    Config, ContentName, DeviceSpec, FunctionSpec, PoolSpec, Size, TargetSettings, TenantSpec,
    VolumeKind, VolumeSpec, place,
};

/// The least that a block of a pool may have, where the pool is not known.
const SECTOR: u32 = 512;

/// A configuration file whose devices are not yet what their kinds have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatConfig {
    #[serde(default)]
    target: TargetSettings,
    #[serde(default)]
    device: Vec<FlatDevice>,
    #[serde(default)]
    pool: Vec<PoolSpec>,
    #[serde(default)]
    tenant: Vec<TenantSpec>,
    #[serde(default)]
    volume: Vec<VolumeSpec>,
    #[serde(default)]
    function: Vec<FunctionSpec>,
}

impl Config {
    /// Reads a configuration file's text. The error names the line, the key, and what may stand
    /// there.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let flat: FlatConfig =
            toml::from_str(text).map_err(|error| place::of_reader(text, &error))?;
        Self::of_flat(flat).map_err(|error| place::of_entry(text, error))
    }

    fn of_flat(flat: FlatConfig) -> Result<Self, SpecError> {
        let devices = flat.device.into_iter().map(DeviceSpec::try_from);
        let config = Self {
            target: flat.target,
            devices: devices.collect::<Result<_, _>>()?,
            pools: flat.pool,
            tenants: flat.tenant,
            volumes: flat.volume,
            functions: flat.function,
        };
        config.check()?;
        config.check_sizes()?;
        Ok(config)
    }

    /// Checks the sizes that people have written. What is in a state store already may be smaller.
    fn check_sizes(&self) -> Result<(), SpecError> {
        for device in &self.devices {
            device.check_new()?;
            device.check_of_file()?;
        }
        for volume in &self.volumes {
            if volume.is_imported() {
                return Err(SpecError::Volume(volume.name.clone(), VolumeError::Content));
            }
            let pool = self
                .pools
                .iter()
                .find(|it| Some(&it.name) == volume.pool.as_ref());
            let device = pool.and_then(|pool| {
                let of_pool = |it: &&DeviceSpec| it.name == pool.device();
                self.devices.iter().find(of_pool)
            });
            volume.check_new(device.map_or(SECTOR, |device| device.block_size))?;
        }
        Ok(())
    }

    /// Checks every entry by itself, and that no name is there twice.
    pub fn check(&self) -> Result<(), SpecError> {
        self.target.check_table()?;
        unique("device", self.devices.iter().map(|spec| &spec.name))?;
        unique("pool", self.pools.iter().map(|spec| &spec.name))?;
        unique("tenant", self.tenants.iter().map(|spec| &spec.name))?;
        unique("volume", self.volumes.iter().map(|spec| &spec.name))?;
        unique("function", self.functions.iter().map(|spec| &spec.name))?;
        self.check_identities()?;
        self.devices.iter().try_for_each(DeviceSpec::check)?;
        self.pools.iter().try_for_each(PoolSpec::check)?;
        self.tenants.iter().try_for_each(TenantSpec::check)?;
        self.volumes.iter().try_for_each(VolumeSpec::check)?;
        self.functions.iter().try_for_each(FunctionSpec::check)
    }
}

fn unique<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), SpecError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(SpecError::Twice(what, name.clone()));
        }
    }
    Ok(())
}

impl TargetSettings {
    /// Checks addresses, prefix and cores, as they stand in a file.
    pub fn check_table(&self) -> Result<(), SpecError> {
        self.check()?;
        if let Some(cores) = self.cores.filter(|it| !(1..=CORES_MOST).contains(it)) {
            return Err(SpecError::Cores(cores));
        }
        let prefix = self.prefix();
        if Nqn::new(prefix).is_err() || prefix.len() + 1 + NAME_LEN_MAX > NQN_LEN_MAX {
            return Err(SpecError::Prefix(prefix.to_owned()));
        }
        Ok(())
    }
}

impl PoolSpec {
    /// Checks the number of devices, that a pool with a key can be encrypted, and what it has for
    /// its volumes.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name("pool", &self.name)?;
        if self.key.is_some() && self.kind != Some(VolumeKind::Mapped) {
            return Err(SpecError::PoolKey(self.name.clone()));
        }
        let defaults = self.clone().normal();
        if self.kind != Some(VolumeKind::Mapped)
            && (defaults.compression.is_some() || defaults.chunk.is_some())
        {
            return Err(SpecError::PoolDefaults(self.name.clone()));
        }
        if let Some(Size(chunk)) = defaults.chunk
            && !VolumeForm::CHUNKS.map(u64::from).contains(&chunk)
        {
            return Err(SpecError::PoolChunk(self.name.clone(), chunk));
        }
        match self.devices.len() {
            1 => Ok(()),
            other => Err(SpecError::PoolDevices(self.name.clone(), other)),
        }
    }
}

impl TenantSpec {
    /// Checks name, hosts and share.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name("tenant", &self.name)?;
        self.check_identity()?;
        let wrong = |error| SpecError::Tenant(self.name.clone(), error);
        self.check_share().map_err(wrong)?;
        let bad = |host: &&String| host.as_str() != "*" && Nqn::new(host).is_err();
        match self.hosts.iter().find(bad) {
            Some(host) => Err(wrong(TenantError::Host(host.clone()))),
            None => Ok(()),
        }
    }
}

impl VolumeSpec {
    /// Checks that exactly one of pool and device is named.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name("volume", &self.name)?;
        self.check_identity()?;
        let wrong = |error| Err(SpecError::Volume(self.name.clone(), error));
        if self.kind.is_some() && self.pool.is_none() {
            return wrong(VolumeError::HasNoKind);
        }
        match (&self.pool, &self.device, self.size) {
            (Some(_), ..) if self.content == Some(ContentName::Erase) => {
                wrong(VolumeError::Content)
            }
            (Some(_), None, Some(size)) if size.0 > 0 => Ok(()),
            (Some(_), None, _) => wrong(VolumeError::NeedsSize),
            (None, Some(_), None) => Ok(()),
            (None, Some(_), Some(_)) => wrong(VolumeError::HasNoSize),
            _ => wrong(VolumeError::Place),
        }
    }
}

impl VolumeSpec {
    /// Whether it was in its pool before this target knew it, and keeps what it holds. Files do not
    /// say that: `apply --import` does.
    pub fn is_imported(&self) -> bool {
        let there = matches!(
            self.content,
            Some(ContentName::Keep | ContentName::Snapshot)
        );
        self.pool.is_some() && there
    }

    /// Whether it is a snapshot, which stays in its pool when the volume goes.
    pub fn is_snapshot(&self) -> bool {
        self.content == Some(ContentName::Snapshot)
    }

    /// Checks the size of a new volume, or of one that grows, in blocks of so many bytes.
    pub fn check_new(&self, block_size: u32) -> Result<(), SpecError> {
        match self.size {
            Some(Size(bytes))
                if bytes < SIZE_LEAST || !bytes.is_multiple_of(u64::from(block_size)) =>
            {
                let error = VolumeError::Size(bytes, block_size);
                Err(SpecError::Volume(self.name.clone(), error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Medium;

    const GOOD: &str = r#"
        [target]
        listen = ["127.0.0.1:4420"]
        nqn_prefix = "nqn.2026-11.dev.flashyard"

        [[device]]
        name = "ram0"
        kind = "memory"
        size = "1GiB"
        block_size = 512

        [[pool]]
        name = "fast"
        devices = ["ram0"]

        [[tenant]]
        name = "db"
        hosts = ["nqn.2014-08.org.nvmexpress:uuid:6b9c3a3e-0d3f-4a53-8f70-52e1ad0f5b2f"]
        class = "latency"
        weight = 2

        [[volume]]
        name = "orders"
        pool = "fast"
        size = "256MiB"
        tenant = "db"
    "#;

    #[test]
    fn the_documented_file_is_read() {
        let config = Config::parse(GOOD).expect("it is right");
        assert_eq!(config.devices[0].size(), Some(Size(1 << 30)));
        assert_eq!(config.tenants[0].weight, 2);
        assert_eq!(config.volumes[0].pool.as_deref(), Some("fast"));
    }

    #[test]
    fn an_empty_file_is_a_target_without_volumes() {
        assert_eq!(Config::parse(""), Ok(Config::default()));
    }

    #[test]
    fn a_name_is_there_once() {
        let twice = format!("{GOOD}\n[[tenant]]\nname = \"db\"");
        let error = Config::parse(&twice)
            .expect_err("two tenants of one name")
            .to_string();
        assert!(error.contains("tenant `db` is there twice"), "{error}");
    }

    #[test]
    fn what_hosts_know_a_volume_by_is_there_once() {
        let volume = |name: &str, line: &str| {
            format!("[[volume]]\nname = \"{name}\"\ndevice = \"{name}\"\ntenant = \"db\"\n{line}\n")
        };
        for (line, why) in [
            ("nsid = 3", "nsid 3 of tenant `db` is there twice"),
            (
                "uuid = \"2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11\"",
                "uuid 2f0d1c46-",
            ),
            (
                "nguid = \"2f0d1c4652c54b0f9a1c0d3a5f2b7e11\"",
                "nguid 2f0d1c46",
            ),
            (
                "eui64 = \"0025385b71b0c2a1\"",
                "eui64 0025385b71b0c2a1 is there twice",
            ),
        ] {
            let one = volume("a", line);
            Config::parse(&one).expect("it is there once");
            let error = Config::parse(&(one + &volume("b", line)))
                .expect_err("twice")
                .to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_zoned_device_has_a_path_and_units_and_nothing_else() {
        let zoned =
            "[[device]]\nname = \"z\"\nkind = \"zoned\"\npath = \"/dev/nvme1n1\"\nunits = 8";
        let config = Config::parse(zoned).expect("it is right");
        let zones = Medium::Zoned {
            path: "/dev/nvme1n1".into(),
            units: Some(8),
        };
        assert_eq!(config.devices[0].medium, zones);
        for (right, wrong, message) in [
            ("path = \"/dev/nvme1n1\"", "", "a zoned device needs `path`"),
            (
                "units = 8",
                "size = \"1GiB\"",
                "a zoned device has no `size`",
            ),
            ("units = 8", "block_size = 512", "have 4096 bytes"),
            ("units = 8", "profile = \"cnex\"", "has no `profile`"),
            ("zoned", "block", "a block device has no `units`"),
        ] {
            let error = Config::parse(&zoned.replacen(right, wrong, 1))
                .expect_err(wrong)
                .to_string();
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }

    /// The line of the key where there is one, of the device where one is missing, and what may
    /// stand there.
    #[test]
    fn a_mistake_in_a_device_is_named_with_its_line() {
        let two = "[[device]]\nname = \"a\"\nkind = \"memory\"\nsize = \"1GiB\"\n\n\
                   [[device]]\nname = \"b\"\nkind = \"memory\"\nsize = \"1GiB\"\n";
        for (right, wrong, message) in [
            (
                "kind = \"memory\"\nsize = \"1GiB\"\n\n",
                "kind = \"memory\"\n\n",
                "line 2: device `a`: a memory device needs `size`",
            ),
            (
                "name = \"b\"",
                "name = \"b\"\nnsid = 1",
                "line 8: device `b`: a memory device has no `nsid`",
            ),
            (
                "name = \"b\"",
                "name = \"b\"\nunit = 1",
                "line 8: device `b`: unknown field `unit`, expected one of `name`, `kind`, `size`, `block_size`",
            ),
            (
                "name = \"b\"",
                "name = \"b\"\npolicy = \"fiar\"",
                "line 8: device `b`: policy: unknown variant `fiar`, expected one of `fifo`, `fair`, `gimbal`",
            ),
            (
                "name = \"b\"",
                "name = \"b\"\ndisposable = true",
                "line 8: device `b`: `disposable` is noted by the target itself and not for files: leave",
            ),
            (
                "kind = \"memory\"\nsize = \"1GiB\"\n\n",
                "kind = \"partition\"\npartition = { device = \"o\", count = 1, unfinished = true }\n",
                "line 4: device `a`: `partition.unfinished` is noted by the target itself",
            ),
            (
                "name = \"b\"",
                "name = \"b\"\nseed = \"x\"",
                "line 8: device `b`: seed is \"x\": give a whole number",
            ),
            (
                "name = \"b\"\nkind = \"memory\"",
                "name = \"b\"\nkind = \"tape\"",
                "line 8: device `b`: kind: unknown variant `tape`, expected one of `null`, `memory`, `file`, `block`",
            ),
        ] {
            assert!(two.contains(right), "{right}");
            let error = Config::parse(&two.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.to_string().starts_with(message), "{wrong}: {error}");
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let table = [
            (
                "kind = \"memory\"",
                "kind = \"tape\"",
                "unknown variant `tape`",
            ),
            ("size = \"1GiB\"", "size = \"1 elephant\"", "not a size"),
            ("size = \"1GiB\"", "", "needs `size`"),
            (
                "size = \"1GiB\"",
                "size = 1000",
                "a multiple of 512 bytes (the block size)",
            ),
            (
                "block_size = 512",
                "block_size = 520",
                "must be 512 or 4096",
            ),
            ("block_size = 512", "path = \"/x\"", "has no `path`"),
            ("devices = [\"ram0\"]", "devices = []", "name the device"),
            (
                "devices = [\"ram0\"]",
                "devices = [\"ram0\"]\ncompression = \"lz4\"",
                "only volumes of a mapped pool",
            ),
            (
                "devices = [\"ram0\"]",
                "devices = [\"ram0\"]\nkind = \"mapped\"\nchunk = \"8KiB\"",
                "use 4KiB, or 16KiB",
            ),
            ("weight = 2", "weight = 0", "out of range"),
            ("weight = 2", "wieght = 2", "unknown field `wieght`"),
            ("weight = 2", "nqn = \"db\"", "no name for a subsystem"),
            (
                "weight = 2",
                "nqn = \"nqn.2014-08.org.nvmexpress.discovery\"",
                "no name for a subsystem",
            ),
            (
                "weight = 2",
                "serial = \"123456789012345678901\"",
                "1 to 20 printable",
            ),
            ("weight = 2", "model = \"\"", "1 to 40 printable"),
            (
                "tenant = \"db\"",
                "tenant = \"db\"\nuuid = \"7\"",
                "not a UUID",
            ),
            (
                "tenant = \"db\"",
                "tenant = \"db\"\nnguid = \"7\"",
                "not 32 hexadecimal digits",
            ),
            (
                "tenant = \"db\"",
                "tenant = \"db\"\neui64 = \"x\"",
                "not 16 hexadecimal digits",
            ),
            (
                "tenant = \"db\"",
                "tenant = \"db\"\nnsid = 0",
                "numbers begin with 1",
            ),
            ("nqn.2014-08.org", "iqn.2014-08.org", "no host NQN"),
            ("size = \"256MiB\"", "", "needs a `size`"),
            ("name = \"orders\"", "name = \"../etc\"", "not a name"),
            (
                "listen = [\"127.0.0.1:4420\"]",
                "listen = []",
                "listen is empty",
            ),
            (
                "listen = [\"127.0.0.1:4420\"]",
                "listen = [\"localhost\"]",
                "not an address with a port",
            ),
            (
                "nqn_prefix = \"nqn.2026-11",
                "nqn_prefix = \"x.2026-11",
                "must begin with `nqn.`",
            ),
        ];
        for (right, wrong, message) in table {
            let error = Config::parse(&GOOD.replacen(right, wrong, 1))
                .expect_err(wrong)
                .to_string();
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
