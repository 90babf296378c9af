//! What comes after the measurement where somebody looks: all tenants go on, first in, first out,
//! and the dashboard shows who hurts whom, and offers the fair switch.

use std::env;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use flashyard_time::Duration;
use uuid::Uuid;

use super::DEVICE;
use super::outcome::Phase;
use super::players::{PLAYERS, READER};
use crate::api::{AccessFiles, Api, Tcp};
use crate::control::{Request, TenantChange};
use crate::failure::{Failure, Invalid, System};
use crate::listening::Listening;
use crate::perf::{self, PerfArgs};
use crate::service::Service;
use crate::spec::{PolicyName, Span, TargetSettings};

/// How long the tenants go on, unless somebody ends it: a day.
const SECONDS: f64 = 86_400.0;
/// The reader's latency target, in the drive's own time. First in, first out it
/// takes three times as much beside the writer, behind the fair switch less.
const TARGET: Duration = Duration::from_us(800);

/// A target under load, with its API.
pub(super) struct Live {
    _api: Api,
    folder: Folder,
    /// Where hosts connect.
    address: SocketAddr,
    page: SocketAddr,
    token: String,
}

impl Live {
    /// Has the tenants begin again and the API listen.
    pub(super) fn start(
        service: &Arc<Service>,
        address: SocketAddr,
        dilation: u32,
    ) -> Result<Self, Failure> {
        let folder = Folder::new().map_err(|error| System::Api(env::temp_dir(), error))?;
        let token = Uuid::new_v4().simple().to_string();
        let failed = |error| System::Api(folder.0.clone(), error);
        let tokens = folder.keep("tokens", &token).map_err(failed)?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let files = AccessFiles { tokens, tls: None };
        let tcp = Tcp::open(any, files, &Listening::default()).map_err(Invalid::Api)?;
        let page = tcp.local().map_err(failed)?;
        let shared = Arc::clone(service);
        let audit = Arc::clone(service.audit());
        let api = Api::start(&folder.0, Some(tcp), audit, move |request, asker| {
            shared.handle_for(request, asker)
        });
        let api = api.map_err(failed)?;
        set_the_scene(service, dilation)?;
        go_on(address)?;
        Ok(Self {
            _api: api,
            folder,
            address,
            page,
            token,
        })
    }
}

/// The reader is promised what it does not get beside the writer.
fn set_the_scene(service: &Service, dilation: u32) -> Result<(), Failure> {
    service.handle(Request::SetDevice {
        name: DEVICE.to_owned(),
        policy: PolicyName::fifo(),
    })?;
    let target = Span(TARGET.scale(dilation.into(), 1));
    service.handle(Request::SetTenant {
        name: PLAYERS[READER].tenant.to_owned(),
        change: TenantChange {
            latency_target: Some(target),
            ..TenantChange::default()
        },
        force: false,
    })?;
    Ok(())
}

/// All tenants at work, until the program ends.
fn go_on(address: SocketAddr) -> Result<(), Failure> {
    // Another seed than those of the phases.
    let seed = 2 * Phase::all().len();
    let runs = PLAYERS.iter();
    let runs = runs.map(|player| player.measurement(address, SECONDS, 0.2, seed));
    let runs: Vec<PerfArgs> = runs.collect::<Result<_, _>>()?;
    // What it measures is nothing to anybody: the dashboard shows what the target sees.
    thread::spawn(move || perf::measure_together(&runs).map(drop));
    Ok(())
}

impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ip, port) = (self.address.ip(), self.address.port());
        let prefix = TargetSettings::default();
        write!(
            f,
            "\nall three go on, first in, first out, until Ctrl-C. The dashboard says who hurts whom, and has a button for the \
             fair switch:\n  http://{}/#token={}\ntry as well\n  \
             flashyard why {} --state {}\n  flashyard discover --connect {}\n  nvme connect -t tcp -a {ip} -s {port} -n {}:db",
            self.page,
            self.token,
            PLAYERS[READER].tenant,
            self.folder.0.display(),
            self.address,
            prefix.prefix(),
        )
    }
}

/// A folder of our own that nobody else can look into; it goes when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let name = format!("flashyard-demo-{}", Uuid::new_v4().simple());
        let path = env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// A file of tokens with one that may do everything.
    fn keep(&self, name: &str, token: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        let mut file = OpenOptions::new();
        let mut file = file.write(true).create_new(true).mode(0o600).open(&path)?;
        writeln!(file, "admin {token}")?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whatever is left is in the folder for temporary files.
        let _ = fs::remove_dir_all(AsRef::<Path>::as_ref(&self.0));
    }
}
