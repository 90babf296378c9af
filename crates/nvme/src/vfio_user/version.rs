//! VERSION: the first message of a connection, and what both ends agree on by it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Malformed;

/// Version and capabilities, as a client proposes them or a server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version<'a> {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// A JSON object; empty when there is none.
    pub text: &'a str,
}

impl<'a> Version<'a> {
    /// Reads the payload.
    ///
    /// # Errors
    /// Too short, or the text is no JSON object that ends with NUL.
    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let Some((&[a, b, c, d], text)) = payload.split_first_chunk() else {
            return Err(Malformed::Length);
        };
        Ok(Self {
            major: u16::from_ne_bytes([a, b]),
            minor: u16::from_ne_bytes([c, d]),
            text: object(text)?,
        })
    }

    /// Appends the payload to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.major.to_ne_bytes());
        out.extend_from_slice(&self.minor.to_ne_bytes());
        if !self.text.is_empty() {
            out.extend_from_slice(self.text.as_bytes());
            out.push(0);
        }
    }
}

/// The text of an object in braces that ends with NUL; empty if there is nothing at all.
fn object(bytes: &[u8]) -> Result<&str, Malformed> {
    if bytes.is_empty() {
        return Ok("");
    }
    let text = bytes.strip_suffix(&[0]).ok_or(Malformed::Text)?;
    let text = core::str::from_utf8(text).map_err(|_| Malformed::Text)?;
    let inner = text.trim();
    if inner.starts_with('{') && inner.ends_with('}') && !text.contains('\0') {
        Ok(text)
    } else {
        Err(Malformed::Text)
    }
}

/// The capabilities that this project knows. Those that are `None` are not said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// `max_msg_fds`: file descriptors that one message may bring.
    pub descriptors: Option<u64>,
    /// `max_data_xfer_size`: bytes of data that one message may bring.
    pub data: Option<u64>,
    /// `max_dma_maps`: regions of memory at a time.
    pub maps: Option<u64>,
    /// `pgsizes`: page sizes, a bit for each.
    pub page_sizes: Option<u64>,
}

impl Capabilities {
    /// Names and values, in the order in which they are written.
    fn named(&self) -> [(&'static str, Option<u64>); 4] {
        [
            ("max_msg_fds", self.descriptors),
            ("max_data_xfer_size", self.data),
            ("max_dma_maps", self.maps),
            ("pgsizes", self.page_sizes),
        ]
    }

    /// What the text of a [`Version`] says. Names that are unknown are ignored, as the protocol
    /// wants.
    pub fn read(text: &str) -> Self {
        Self {
            descriptors: number_of(text, "max_msg_fds"),
            data: number_of(text, "max_data_xfer_size"),
            maps: number_of(text, "max_dma_maps"),
            page_sizes: number_of(text, "pgsizes"),
        }
    }

    /// What a server with these capabilities answers to a client with those of `proposed`: nothing
    /// that was not proposed, and no more than that.
    pub fn agreed(&self, proposed: &Self) -> Self {
        let least = |own: Option<u64>, other: Option<u64>| Some(own?.min(other?));
        Self {
            descriptors: least(self.descriptors, proposed.descriptors),
            data: least(self.data, proposed.data),
            maps: least(self.maps, proposed.maps),
            page_sizes: proposed.page_sizes.and(self.page_sizes),
        }
    }

    /// The text of a [`Version`].
    pub fn text(&self) -> String {
        let said = self.named().into_iter();
        let said = said.filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)));
        let fields = said.collect::<Vec<_>>().join(",");
        format!("{{\"capabilities\":{{{fields}}}}}")
    }
}

/// The number behind `"name":` in a JSON text, if there is one.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let mut rest = text;
    loop {
        let at = rest.find(name)?;
        let (before, behind) = (&rest[..at], &rest[at + name.len()..]);
        if before.ends_with('"')
            && let Some(value) = behind.strip_prefix('"')
            && let Some(value) = value.trim_start().strip_prefix(':')
        {
            let value = value.trim_start();
            let end = value.find(|c: char| !c.is_ascii_digit());
            return value[..end.unwrap_or(value.len())].parse().ok();
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_bounds_what_is_agreed() {
        let own = Capabilities {
            descriptors: Some(8),
            data: Some(1 << 20),
            maps: Some(1024),
            page_sizes: Some(4096),
        };
        let qemu = "{\"capabilities\": {\"max_msg_fds\": 16, \"max_data_xfer_size\": 1048576, \
            \"max_dma_maps\": 65535, \"pgsizes\": 4096, \"migration\": {\"pgsize\": 4096}, \
            \"write_multiple\": true}}";
        let agreed = own.agreed(&Capabilities::read(qemu));
        assert_eq!(agreed, own);
        assert_eq!(Capabilities::read(&agreed.text()), agreed);
        let small = Capabilities::read("{\"capabilities\":{\"max_msg_fds\":1}}");
        let agreed = own.agreed(&small);
        assert_eq!(agreed.text(), "{\"capabilities\":{\"max_msg_fds\":1}}");
        let none = own.agreed(&Capabilities::read(""));
        assert_eq!(none.text(), "{\"capabilities\":{}}");
    }

    #[test]
    fn numbers_are_found_by_their_whole_names() {
        for (text, value) in [
            ("{\"pgsizes\":7}", Some(7)),
            ("{ \"pgsizes\" : 7 , }", Some(7)),
            ("{\"xpgsizes\":7,\"pgsizes\":8}", Some(8)),
            ("{\"pgsizesx\":7}", None),
            ("{\"pgsizes\":-7}", None),
            ("{\"pgsizes\":99999999999999999999999}", None),
            ("{\"pgsizes\"}", None),
            ("{\"pgsizes\":", None),
            ("", None),
        ] {
            assert_eq!(number_of(text, "pgsizes"), value, "{text}");
        }
    }
}
