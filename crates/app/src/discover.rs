//! `flashyard discover`: what a target offers to a host.

use flashyard_host::discover;
use flashyard_nvme::Nqn;
use flashyard_nvme::log::DiscoveryEntry;
use flashyard_runtime::uring;
use serde::Serialize;
use uuid::Uuid;

use crate::cli::DiscoverArgs;
use crate::failure::{Failure, Invalid, System, Unavailable};
use crate::json;
use crate::out::{say, say_line};
use crate::table::Table;

/// Asks the discovery controller and prints its log.
pub fn run(args: &DiscoverArgs) -> Result<(), Failure> {
    let hostnqn =
        Nqn::new(&args.hostnqn).map_err(|error| Invalid::HostNqn(args.hostnqn.clone(), error))?;
    // The same name is the same host, whenever it asks.
    let hostid = Uuid::new_v5(&Uuid::NAMESPACE_OID, args.hostnqn.as_bytes()).into_bytes();
    let address = &args.connect;
    let real = address
        .reachable()
        .map_err(|error| Unavailable::Unknown(address.clone(), error))?;
    let config = uring::Config::default();
    let asked = uring::run(config, |rt| async move {
        discover(&rt, real, hostnqn, hostid).await
    });
    let entries = asked
        .map_err(System::Runtime)?
        .map_err(|error| Unavailable::Discover(address.clone(), error))?;
    let offers: Vec<Offer> = entries.iter().map(Offer::from).collect();
    if args.json {
        json::print("subsystems", &offers);
        return Ok(());
    }
    if offers.is_empty() {
        say_line!(
            "{address} offers nothing to {}: allow this host in a tenant's `hosts`",
            args.hostnqn
        );
        return Ok(());
    }
    let mut table = Table::new(&["address", "subnqn"]);
    for Offer { address, subnqn } in offers {
        table.row(vec![address, subnqn.unwrap_or_default()]);
    }
    say!("{}", table.render());
    Ok(())
}

/// A subsystem that is offered, and where.
#[derive(Serialize)]
struct Offer {
    address: String,
    subnqn: Option<String>,
}

impl From<&DiscoveryEntry> for Offer {
    fn from(entry: &DiscoveryEntry) -> Self {
        Self {
            address: format!("{}:{}", ascii(&entry.traddr), ascii(&entry.trsvcid)),
            subnqn: entry.subnqn.as_ref().map(|nqn| nqn.as_str().to_owned()),
        }
    }
}

/// A space-padded ASCII field of a peer, made printable.
fn ascii(field: &[u8]) -> String {
    let text = field
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|&byte| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '?',
        });
    text.collect::<String>().trim_end().to_owned()
}
