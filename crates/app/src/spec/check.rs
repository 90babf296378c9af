//! What is wrong with a specification taken by itself, in one line that says what to do. Whether
//! the things it names exist is the inventory's question.

use std::collections::BTreeSet;

use super::{
    Config, DeviceKind, DeviceSpec, NAME_LEN_MAX, PoolSpec, StoreName, TargetSpec, TenantSpec,
    VolumeSpec,
};

/// Most bytes of an NQN (NVM Express Base Specification, NVMe Qualified Names).
const NQN_LEN_MAX: usize = 223;

impl Config {
    /// Reads a configuration file's text; the error names the place.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        config.check()?;
        Ok(config)
    }

    /// Checks every entry by itself, and that no name is there twice.
    pub fn check(&self) -> Result<(), String> {
        self.target.check()?;
        unique("device", self.devices.iter().map(|spec| &spec.name))?;
        unique("pool", self.pools.iter().map(|spec| &spec.name))?;
        unique("tenant", self.tenants.iter().map(|spec| &spec.name))?;
        unique("volume", self.volumes.iter().map(|spec| &spec.name))?;
        self.check_identities().map_err(|error| error.to_string())?;
        self.devices.iter().try_for_each(DeviceSpec::check)?;
        self.pools.iter().try_for_each(PoolSpec::check)?;
        self.tenants.iter().try_for_each(TenantSpec::check)?;
        self.volumes.iter().try_for_each(VolumeSpec::check)
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!(
                "{what} `{name}` is there twice: rename one of them"
            ));
        }
    }
    Ok(())
}

/// Where and what, in one line.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end().replace('\n', " ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

impl TargetSpec {
    /// Checks addresses, prefix and cores.
    pub fn check(&self) -> Result<(), String> {
        self.settings().check().map_err(|error| error.to_string())?;
        if !(1..=256).contains(&self.cores) {
            return Err(format!(
                "[target] cores = {} is out of range: 1 to 256",
                self.cores
            ));
        }
        let prefix = &self.nqn_prefix;
        if !prefix.starts_with("nqn.") || prefix.len() + 1 + NAME_LEN_MAX > NQN_LEN_MAX {
            return Err(format!(
                "[target] nqn_prefix `{prefix}` must begin with `nqn.` and have at most {} bytes",
                NQN_LEN_MAX - 1 - NAME_LEN_MAX
            ));
        }
        Ok(())
    }
}

impl DeviceSpec {
    /// Checks that the device's kind has what it needs and nothing else.
    pub fn check(&self) -> Result<(), String> {
        check_name("device", &self.name)?;
        let name = &self.name;
        if !matches!(self.block_size, 512 | 4096) {
            return Err(format!(
                "device `{name}`: block_size is {}; it must be 512 or 4096",
                self.block_size
            ));
        }
        if let Some(size) = self.size
            && (size.0 == 0 || !size.0.is_multiple_of(u64::from(self.block_size)))
        {
            return Err(format!(
                "device `{name}`: size must be a multiple of the block size, and not 0"
            ));
        }
        let wants =
            |field: &str, given: bool, needed: bool, useful: bool| match (given, needed, useful) {
                (false, true, _) => Err(format!(
                    "device `{name}`: a {} device needs `{field}`",
                    self.kind.name()
                )),
                (true, _, false) => Err(format!(
                    "device `{name}`: a {} device has no `{field}`",
                    self.kind.name()
                )),
                _ => Ok(()),
            };
        let remote = self.kind == DeviceKind::NvmeTcp;
        let virtual_memory = matches!(self.kind, DeviceKind::Null | DeviceKind::Memory);
        let zoned = self.kind == DeviceKind::Zoned;
        let on_disk = zoned || matches!(self.kind, DeviceKind::File | DeviceKind::Block);
        let flash = self.kind == DeviceKind::Flash;
        let open_channel = self.kind == DeviceKind::OpenChannel;
        let emulated = flash || open_channel;
        let with_file = on_disk || (emulated && self.store == Some(StoreName::File));
        let partition = self.kind == DeviceKind::Partition;
        wants(
            "profile",
            self.profile.is_some(),
            flash,
            flash || open_channel,
        )?;
        wants("condition", self.condition.is_some(), false, flash)?;
        wants("store", self.store.is_some(), false, emulated)?;
        if open_channel && self.store == Some(StoreName::Pattern) {
            return Err(format!(
                "device `{name}`: translation layers read back what they have written, so store must be memory or file"
            ));
        }
        wants("seed", self.seed.is_some(), false, flash || open_channel)?;
        wants(
            "dilation",
            self.dilation.is_some(),
            false,
            flash || open_channel,
        )?;
        wants("units", self.units.is_some(), false, zoned)?;
        wants("partition", self.partition.is_some(), partition, partition)?;
        if (open_channel || zoned || partition) && self.block_size != 4096 {
            return Err(format!(
                "device `{name}`: sectors of a device for partitions have 4096 bytes; leave block_size out"
            ));
        }
        if let Some(cut) = &self.partition {
            cut.check()
                .map_err(|why| format!("partition `{name}`: {why}"))?;
        }
        self.check_drive()?;
        wants(
            "size",
            self.size.is_some(),
            virtual_memory || flash || open_channel,
            virtual_memory || flash || open_channel || self.kind == DeviceKind::File,
        )?;
        wants("path", self.path.is_some(), with_file, with_file)?;
        wants("address", self.address.is_some(), remote, remote)?;
        wants("subnqn", self.subnqn.is_some(), remote, remote)?;
        wants("nsid", self.nsid.is_some(), false, remote)
    }
}

impl DeviceKind {
    /// The kind as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Memory => "memory",
            Self::File => "file",
            Self::Block => "block",
            Self::Flash => "flash",
            Self::OpenChannel => "open-channel",
            Self::Zoned => "zoned",
            Self::Partition => "partition",
            Self::NvmeTcp => "nvme-tcp",
        }
    }
}

impl PoolSpec {
    /// Checks the number of devices.
    pub fn check(&self) -> Result<(), String> {
        check_name("pool", &self.name)?;
        match self.devices.as_slice() {
            [_] => Ok(()),
            [] => Err(format!(
                "pool `{}`: name the device it stands on",
                self.name
            )),
            _ => Err(format!(
                "pool `{}`: several devices need RAID, which this version does not have",
                self.name
            )),
        }
    }
}

impl TenantSpec {
    /// Checks name, hosts and share.
    pub fn check(&self) -> Result<(), String> {
        check_name("tenant", &self.name)?;
        self.check_identity().map_err(|error| error.to_string())?;
        self.check_share()?;
        let bad = |host: &&String| {
            host.as_str() != "*"
                && (!host.starts_with("nqn.")
                    || host.len() > NQN_LEN_MAX
                    || host.contains(char::is_control))
        };
        match self.hosts.iter().find(bad) {
            Some(host) => Err(format!(
                "tenant `{}`: `{host}` is no host NQN (`nqn.…`, at most {NQN_LEN_MAX} bytes) and not `*`",
                self.name
            )),
            None => Ok(()),
        }
    }
}

impl VolumeSpec {
    /// Checks that exactly one of pool and device is named.
    pub fn check(&self) -> Result<(), String> {
        check_name("volume", &self.name)?;
        self.check_identity().map_err(|error| error.to_string())?;
        let name = &self.name;
        match (&self.pool, &self.device, self.size) {
            (Some(_), ..) if self.content.is_some() => Err(format!(
                "volume `{name}`: a volume of a pool begins with zeroes, leave `content` out"
            )),
            (Some(_), None, Some(size)) if size.0 > 0 => Ok(()),
            (Some(_), None, _) => Err(format!(
                "volume `{name}`: a volume of a pool needs a `size`, not 0"
            )),
            (None, Some(_), None) => Ok(()),
            (None, Some(_), Some(_)) => Err(format!(
                "volume `{name}`: it is the whole device, leave `size` out"
            )),
            _ => Err(format!(
                "volume `{name}`: name either a `pool` or a `device`"
            )),
        }
    }
}

/// Names go into NQNs, file names and tables: letters, digits, `-`, `_` and `.`.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > NAME_LEN_MAX
        || !name.chars().all(good)
        || name.starts_with(['-', '.'])
    {
        return Err(format!(
            "`{name}` is not a name for a {what}: use 1 to {NAME_LEN_MAX} letters, digits, `-`, `_` or `.`, \
             beginning with a letter, a digit or `_`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Size;

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
        assert_eq!(config.devices[0].size, Some(Size(1 << 30)));
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
        let error = Config::parse(&twice).expect_err("two tenants of one name");
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
            let error = Config::parse(&(one + &volume("b", line))).expect_err("twice");
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_zoned_device_has_a_path_and_units_and_nothing_else() {
        let zoned =
            "[[device]]\nname = \"z\"\nkind = \"zoned\"\npath = \"/dev/nvme1n1\"\nunits = 8";
        let config = Config::parse(zoned).expect("it is right");
        assert_eq!(config.devices[0].units, Some(8));
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
            let error = Config::parse(&zoned.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(message), "{wrong}: {error}");
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
                "multiple of the block size",
            ),
            (
                "block_size = 512",
                "block_size = 520",
                "must be 512 or 4096",
            ),
            ("block_size = 512", "path = \"/x\"", "has no `path`"),
            ("devices = [\"ram0\"]", "devices = []", "name the device"),
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
                "socket address",
            ),
            (
                "nqn_prefix = \"nqn.2026-11",
                "nqn_prefix = \"x.2026-11",
                "must begin with `nqn.`",
            ),
        ];
        for (right, wrong, message) in table {
            let error = Config::parse(&GOOD.replacen(right, wrong, 1)).expect_err(wrong);
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }
}
