//! The inventory cut off: each change of the store fails once, and at each of them, before and
//! after, a copy is taken of everything on disk, as a kill leaves it. What starts from there has
//! all of a request or nothing of it, and no tenant reads what another has written. Each volume is
//! filled with a byte of its own, so that a byte tells who wrote it.

mod changes;
mod faulty;
mod importing;
mod migration;
mod pool_defaults;
mod silent;
mod strangers;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use flashyard_block::{DeviceExt, SharedDevice, Tag};
use flashyard_engine::{Limits, Target, TargetConfig};
use flashyard_runtime::{Buf, Data, uring};
use flashyard_testbed::Scratch;

use super::*;
use crate::control::{How, Page, VolumeChange};
use crate::cores::Cores;
use crate::spec::{Config, Size};
use crate::state::{IfDamaged, watch};

const PIECE: usize = 1 << 20;
/// Longer than a tick of the clock that files have their times from.
const TICK: Duration = Duration::from_millis(20);

/// A directory with a target's state and disks, which goes away with the test. What runs is always
/// in `live`.
struct Scene {
    root: Scratch,
}

impl Scene {
    fn new(name: &str) -> Self {
        let root = Scratch::new(name);
        fs::create_dir(root.join("live")).expect("the temporary directory is writable");
        Self { root }
    }

    fn live(&self) -> PathBuf {
        self.root.join("live")
    }

    fn start(&self) -> Service {
        let service = self.open();
        service.inject_faults().expect("it runs");
        service
    }

    /// A service that has not started to the end: a file is applied to it yet.
    fn open(&self) -> Service {
        let state = State::open(&self.live(), IfDamaged::Refuse).expect("the store is whole");
        let target = Target::new(TargetConfig {
            nqn_prefix: "nqn.2026-11.dev.flashyard".into(),
            target_uuid: state.target_uuid().into_bytes(),
            limits: Limits::default(),
            cores: 1,
        });
        let config = uring::Config {
            buffer_bytes: 64 << 20,
            ..uring::Config::default()
        };
        let cores = Cores::start(&target, vec![config]).expect("this machine has io_uring");
        let slow_io = flashyard_time::Duration::ZERO;
        Service::start(state, cores, target, Arc::default(), slow_io).expect("the store is whole")
    }

    /// A service that has what `config` says.
    fn with(&self, config: &str) -> Service {
        let config = config.replace("LIVE", self.live().to_str().expect("plain names"));
        let service = self.start();
        let applied = service.handle(applying(&config));
        assert!(applied.is_ok(), "{applied:?}");
        service
    }

    /// Puts the image called `image` in the place of what ran.
    fn become_image(&self, image: &Path) {
        fs::remove_dir_all(self.live()).expect("nothing runs in it");
        fs::rename(image, self.live()).expect("it is of the same file system");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        watch::set(None);
    }
}

/// A file to be applied, whatever it does.
fn applying(config: &str) -> Request {
    Request::Apply {
        file: Document::parse(config, Path::new("/")).expect("it is right"),
        how: How {
            plan: false,
            prune: true,
            yes: true,
            import: false,
            force: false,
        },
    }
}

/// Copies a directory's files; what is zero becomes a hole.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("it is new");
    let zeroes = vec![0; PIECE];
    let mut bytes = vec![0; PIECE];
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it is there");
        if !entry.file_type().expect("it is there").is_file() {
            continue;
        }
        let source = File::open(entry.path()).expect("it is ours");
        let size = source.metadata().expect("it is there").len();
        let copy = File::create(to.join(entry.file_name())).expect("it is new");
        copy.set_len(size).expect("there is space");
        for at in (0..size).step_by(PIECE) {
            let piece = &mut bytes[..PIECE.min((size - at) as usize)];
            source.read_exact_at(piece, at).expect("nobody cuts it");
            if piece != &zeroes[..piece.len()] {
                copy.write_all_at(piece, at).expect("there is space");
            }
        }
    }
}

/// Copies files as they are at one instant, as a kill leaves them: again, if something was written
/// meanwhile. An FTL that was just taken up writes a checkpoint by itself.
fn copy_at_rest(from: &Path, to: &Path) {
    let written = || {
        let entries = fs::read_dir(from).expect("it is there");
        let times = entries.map(|entry| entry.and_then(|it| it.metadata()?.modified()));
        times.collect::<Result<Vec<_>, _>>().expect("it is there")
    };
    loop {
        let before = written();
        // What is written in the same tick of the file system's clock has the same time.
        thread::sleep(TICK);
        copy(from, to);
        if written() == before {
            return;
        }
        fs::remove_dir_all(to).expect("it is ours");
    }
}

/// One thing that an administrator or a tenant does.
#[derive(Clone, Debug)]
enum Act {
    /// A request.
    Ask(Box<Request>),
    /// A start with a file.
    Start(Box<Document>),
    /// A tenant fills its volume with a byte and flushes it.
    Fill(&'static str, u8),
    /// A tenant finds nothing but zeroes in its new volume.
    Fresh(&'static str),
    /// A device that nobody uses holds what others have left, as one does that cannot free space,
    /// or where the target was killed before it had.
    Soil(&'static str),
}

/// What others have left; nobody may read it.
const REMAINS: u8 = 0xee;

/// The volumes there are, with their sizes and the bytes in them; the partitions, and what else
/// files set, as names.
type Volumes = BTreeMap<String, (u64, BTreeSet<u8>)>;

impl Stack {
    /// The partitions.
    fn cut(&self) -> impl Iterator<Item = String> {
        let devices = self.graph.devices().map(|(_, device)| &device.spec);
        let cut = devices.filter(|spec| spec.partition().is_some());
        cut.map(|spec| spec.name.clone())
    }
}

impl Service {
    /// Ends in good order; another one may start from what it leaves.
    fn end(self) {
        self.stop();
    }

    /// Does something with the device of a volume on its core.
    fn on_volume<T, F>(
        &self,
        name: &str,
        work: impl FnOnce(SharedDevice) -> F + Send + 'static,
    ) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let stack = self.stack();
        let (id, volume) = stack.volume(name).expect("it is there");
        let uuid = volume.record.uuid.into_bytes();
        let (pool, device) = (
            volume.record.spec.pool.as_ref(),
            stack.graph.device_under(id),
        );
        let pool = pool.map(|pool| stack.pool(pool).expect("it is there").0);
        let core = stack.namespace(id).expect("it is served").core();
        self.cores.call(core, move |state| async move {
            let device = match pool {
                Some(pool) => {
                    let found = state.nodes.pool(pool).and_then(|pool| pool.find(uuid));
                    found.map(|(_, device)| device)
                }
                None => device.and_then(|device| state.nodes.device(device)),
            };
            work(device.expect("it is served")).await
        })
    }

    fn fill(&self, name: &str, byte: u8) {
        self.on_volume(name, move |device| fill(device, byte));
    }

    fn soil(&self, device: &'static str) {
        let stack = self.stack();
        let (id, device) = stack.device(device).expect("it is there");
        let core = device.home.expect("it is open");
        self.cores.call(core, move |state| async move {
            let device = state.nodes.device(id).expect("it is open");
            fill(device, REMAINS).await;
        });
    }

    fn content(&self, name: &str) -> (u64, BTreeSet<u8>) {
        self.on_volume(name, |device| async move {
            let info = device.info();
            let piece = PIECE as u64 / u64::from(info.block_size);
            let mut bytes = BTreeSet::new();
            for lba in (0..info.blocks).step_by(piece as usize) {
                let len = piece.min(info.blocks - lba) * u64::from(info.block_size);
                let buf = Buf::take(len as usize).expect("memory for one");
                match device
                    .read(Tag::default(), lba, buf)
                    .await
                    .expect("it is sound")
                {
                    Data::Zeroes(_) => drop(bytes.insert(0)),
                    Data::Buf(buf) => {
                        for block in buf.chunks_exact(512) {
                            match *block == [block[0]; 512] {
                                true => drop(bytes.insert(block[0])),
                                false => bytes.extend(block),
                            }
                        }
                    }
                }
            }
            (info.blocks * u64::from(info.block_size), bytes)
        })
    }

    fn volumes(&self) -> Volumes {
        let stack = self.stack();
        let names = stack.graph.all(Kind::Volume);
        let names = names.map(|id| stack.graph.name(id));
        let volumes = names.map(|name| (name.to_owned(), self.content(name)));
        let cut = stack.cut();
        let partitions = cut.map(|name| (format!("partition {name}"), (0, BTreeSet::new())));
        let nothing = || (0, BTreeSet::new());
        let graph = &stack.graph;
        let tenants = graph.tenants().map(|(_, it)| &it.spec);
        let tenants = tenants.map(|it| (format!("tenant {} {}", it.name, it.weight), nothing()));
        let protected = graph.all(Kind::Volume).filter_map(|id| graph.volume(id));
        let protected = protected.filter(|it| it.record.spec.read_only == Some(true));
        let protected =
            protected.map(|it| (format!("{} protected", it.record.spec.name), nothing()));
        let depth = stack
            .settings
            .queue_depth
            .map(|it| (format!("queues of {it}"), nothing()));
        let all = volumes.chain(partitions).chain(tenants);
        all.chain(protected).chain(depth).collect()
    }

    /// The partitions that the devices themselves have.
    fn on_devices(&self) -> BTreeSet<String> {
        let devices: Vec<_> = self.stack().graph.all(Kind::Device).collect();
        let listed = self.cores.call(0, |state| async move {
            let devices = devices
                .into_iter()
                .filter_map(|id| state.nodes.channels(id));
            let all = devices.flat_map(|device| device.list());
            all.map(|partition| partition.name).collect::<Vec<_>>()
        });
        listed.into_iter().collect()
    }

    /// The volumes that the pools themselves have.
    fn in_pools(&self) -> BTreeSet<String> {
        let stack = self.stack();
        let pools = stack.graph.all(Kind::Pool);
        let listed = pools.flat_map(|pool| {
            self.cores.call(0, move |state| async move {
                let list = state.nodes.pool(pool).expect("it is open").list();
                list.into_iter()
                    .map(|volume| volume.name)
                    .collect::<Vec<_>>()
            })
        });
        listed.collect()
    }

    fn act(&self, act: &Act) -> Result<(), Fault> {
        match act {
            Act::Ask(request) => self.handle((**request).clone()).map(drop),
            Act::Start(file) => self.apply_at_start(file).map(drop),
            Act::Fill(name, byte) => {
                self.fill(name, *byte);
                Ok(())
            }
            Act::Soil(device) => {
                self.soil(device);
                Ok(())
            }
            Act::Fresh(name) => {
                assert_eq!(
                    self.content(name).1,
                    BTreeSet::from([0]),
                    "{name} is not new"
                );
                Ok(())
            }
        }
    }

    /// What has to hold of a service that has just been started, whatever happened before: nothing
    /// is missing, nothing is half done, and the store and the pools tell the same.
    fn check_whole(&self, place: &str) {
        self.finish_migrations(place);
        let stack = self.stack();
        assert!(stack.faults.is_empty(), "{place}: {:?}", stack.faults);
        let volumes = stack.graph.all(Kind::Volume);
        let volumes: Vec<_> = volumes.filter_map(|id| stack.record(id).ok()).collect();
        for record in &volumes {
            assert_eq!(record.phase, crate::state::Phase::Ready, "{place}");
            let real = self.content(&record.spec.name).0;
            assert_eq!(record.spec.size, Some(Size(real)), "{place}");
        }
        let pooled = volumes.iter().filter(|record| record.spec.pool.is_some());
        let pooled: BTreeSet<String> = pooled.map(|record| record.spec.name.clone()).collect();
        assert_eq!(self.in_pools(), pooled, "{place}");
        let cut: BTreeSet<String> = stack.cut().collect();
        assert_eq!(self.on_devices(), cut, "{place}");
    }
}

/// Writes a byte all over a device.
async fn fill(device: SharedDevice, byte: u8) {
    let info = device.info();
    let piece = PIECE as u64 / u64::from(info.block_size);
    for lba in (0..info.blocks).step_by(piece as usize) {
        let len = piece.min(info.blocks - lba) * u64::from(info.block_size);
        let mut buf = Buf::take(len as usize).expect("memory for one");
        buf.fill(byte);
        let written = device.write(Tag::default(), lba, buf, false).await;
        written.expect("it is sound");
    }
    device.flush(Tag::default()).await.expect("it is sound");
}

fn ask(request: Request) -> Act {
    Act::Ask(Box::new(request))
}

fn create(text: &str) -> Act {
    let config = Config::parse(&format!("[[volume]]\n{text}")).expect("it is right");
    ask(Request::CreateVolume {
        spec: config.volumes[0].clone(),
        force: false,
    })
}

fn delete(kind: KindName, name: &str) -> Act {
    ask(Request::Delete(kind, name.into()))
}

/// Names a volume that a script has written to, and its byte.
fn bytes_of(script: &[Act]) -> BTreeMap<&'static str, u8> {
    let fills = script.iter().filter_map(|act| match act {
        Act::Fill(name, byte) => Some((*name, *byte)),
        _ => None,
    });
    fills.collect()
}

/// Runs `script` and takes an image at each change of the store; gives the images with the volumes
/// that there may be, which are those before and after the act that was cut off.
fn images(scene: &Scene, service: Service, script: &[Act]) -> Vec<(PathBuf, usize)> {
    let taken = Rc::new(RefCell::new(Vec::new()));
    let act_now = Rc::new(Cell::new(0));
    let (log, at, live, root) = (
        taken.clone(),
        act_now.clone(),
        scene.live(),
        scene.root.to_path_buf(),
    );
    watch::set(Some(Box::new(move |_| {
        let mut log = log.borrow_mut();
        let image = root.join(format!("image-{}", log.len()));
        copy_at_rest(&live, &image);
        log.push((image, at.get()));
        false
    })));
    for (number, act) in script.iter().enumerate() {
        act_now.set(number);
        service
            .act(act)
            .unwrap_or_else(|fault| panic!("{act:?}: {fault}"));
    }
    watch::set(None);
    service.end();
    taken.take()
}

/// The volumes after each act, beginning with those before the first.
fn history(scene: &Scene, config: &str, script: &[Act]) -> Vec<Volumes> {
    let service = scene.with(config);
    let mut history = vec![service.volumes()];
    for act in script {
        service
            .act(act)
            .unwrap_or_else(|fault| panic!("{act:?}: {fault}"));
        history.push(service.volumes());
    }
    service.end();
    fs::remove_dir_all(scene.live()).expect("nothing runs in it");
    fs::create_dir_all(scene.live()).expect("it was there");
    history
}

/// Takes away all that is in the way, gives `device` to somebody new, and looks at what he reads.
fn give_to_a_stranger(service: &Service, device: &'static str, place: &str) {
    let stack = service.stack();
    let names = |kind| stack.graph.all(kind).map(|id| stack.graph.name(id));
    let gone = names(Kind::Volume).map(|name| delete(KindName::Volume, name));
    let gone = gone.chain(names(Kind::Pool).map(|name| delete(KindName::Pool, name)));
    let given = create(&format!(
        "name = \"stranger\"\ndevice = \"{device}\"\ntenant = \"b\""
    ));
    for act in gone.chain([Act::Soil(device), given, Act::Fresh("stranger")]) {
        let done = service.act(&act);
        done.unwrap_or_else(|fault| panic!("{place}: {act:?}: {fault}"));
    }
}

/// Kills the target before and after each change of the store.
fn cut_everywhere(scene: &Scene, config: &str, script: &[Act], stranger: Option<&'static str>) {
    let history = history(scene, config, script);
    let bytes = bytes_of(script);
    let images = images(scene, scene.with(config), script);
    assert!(
        images.len() > script.len(),
        "every request changes the store"
    );
    for (number, (image, act)) in images.into_iter().enumerate() {
        let place = format!("image {number}, in act {act}, {:?}", script[act]);
        scene.become_image(&image);
        let service = scene.start();
        service.check_whole(&place);
        let found = service.volumes();
        for (name, (_, content)) in &found {
            let own = bytes.get(name.as_str()).copied().unwrap_or_default();
            assert!(
                content.iter().all(|byte| [0, own].contains(byte)),
                "{place}: {name} holds {content:?}"
            );
        }
        assert!(
            history[act..act + 2].contains(&found),
            "{place}: neither all nor nothing: {found:?}"
        );
        if let Some(device) = stranger {
            give_to_a_stranger(&service, device, &place);
        }
        service.end();
    }
}

/// Has each change of the store fail once. A request that is answered as failed is repeated, and
/// does then what it should.
fn fail_everywhere(scene: &Scene, config: &str, script: &[Act]) {
    let history = history(scene, config, script);
    let mut changes = usize::MAX;
    let mut failing = 0;
    while failing < changes {
        let service = scene.with(config);
        let seen = Rc::new(Cell::new(0));
        let count = seen.clone();
        watch::set(Some(Box::new(move |done| {
            let number = count.get();
            count.set(number + usize::from(!done));
            !done && number == failing
        })));
        for (number, act) in script.iter().enumerate() {
            if let Err(fault) = service.act(act) {
                let place = format!("change {failing}, {act:?}");
                assert!(
                    fault.to_string().contains("state store"),
                    "{place}: {fault}"
                );
                let deletes =
                    matches!(act, Act::Ask(request) if matches!(**request, Request::Delete(..)));
                if !deletes {
                    assert_eq!(service.volumes(), history[number], "{place} was refused");
                }
                service
                    .act(act)
                    .unwrap_or_else(|fault| panic!("{place}, again: {fault}"));
            }
            assert_eq!(
                service.volumes(),
                history[number + 1],
                "change {failing}, after {act:?}"
            );
        }
        watch::set(None);
        service.end();
        let service = scene.start();
        service.check_whole(&format!("change {failing} failed"));
        assert_eq!(Some(&service.volumes()), history.last());
        service.end();
        changes = seen.get();
        failing += 1;
        fs::remove_dir_all(scene.live()).expect("nothing runs in it");
        fs::create_dir_all(scene.live()).expect("it was there");
    }
    assert!(changes > script.len() / 2, "the script changes the store");
}

const POOL: &str = r#"
    [[device]]
    name = "disk"
    kind = "file"
    path = "LIVE/disk"
    size = "8MiB"

    [[pool]]
    name = "p"
    devices = ["disk"]

    [[tenant]]
    name = "a"

    [[tenant]]
    name = "b"
"#;

/// Volumes of a pool come, grow and go, then the pool goes and its device is given away whole,
/// twice.
fn pool_script() -> Vec<Act> {
    vec![
        create("name = \"v\"\npool = \"p\"\nsize = \"3MiB\"\ntenant = \"a\""),
        Act::Fill("v", 0xa1),
        ask(Request::SetVolume {
            name: "v".into(),
            change: VolumeChange::Size(Size(5 << 20)),
        }),
        Act::Fill("v", 0xa1),
        delete(KindName::Volume, "v"),
        create("name = \"w\"\npool = \"p\"\nsize = \"6MiB\"\ntenant = \"b\""),
        Act::Fresh("w"),
        Act::Fill("w", 0xb2),
        delete(KindName::Volume, "w"),
        delete(KindName::Pool, "p"),
        Act::Soil("disk"),
        create("name = \"x\"\ndevice = \"disk\"\ntenant = \"a\""),
        Act::Fresh("x"),
        Act::Fill("x", 0xa3),
        delete(KindName::Volume, "x"),
        Act::Soil("disk"),
        create("name = \"y\"\ndevice = \"disk\"\ntenant = \"b\""),
        Act::Fresh("y"),
    ]
}

#[test]
fn a_kill_at_any_change_leaves_all_or_nothing_and_shows_nobody_elses_data() {
    let scene = Scene::new("kill");
    cut_everywhere(&scene, POOL, &pool_script(), Some("disk"));
}

#[test]
fn a_change_that_the_store_refuses_leaves_all_or_nothing() {
    let scene = Scene::new("fail");
    fail_everywhere(&scene, POOL, &pool_script());
}

/// Files, each of which changes much at once; `POOL` has been applied before the first.
fn file_script(scene: &Scene) -> Vec<Act> {
    let disk = POOL.split("[[tenant]]").next().expect("it has tenants");
    let disk = disk.replace("LIVE", scene.live().to_str().expect("plain names"));
    let file = |text: &str| ask(applying(&format!("{disk}\n{text}")));
    let tenants = r#"
        [[tenant]]
        name = "a"
        weight = 4
        [[tenant]]
        name = "b"
        [[tenant]]
        name = "c"
        "#;
    let volume = |name: &str, mib: u64, tenant: &str| {
        format!(
            "[[volume]]\nname = \"{name}\"\npool = \"p\"\nsize = \"{mib}MiB\"\ntenant = \"{tenant}\"\n"
        )
    };
    let small = [volume("v", 1, "a"), volume("w", 1, "b")].concat();
    let large = [volume("v", 2, "a"), volume("w", 2, "b")].concat();
    let protected = large.replacen("tenant", "read_only = true\ntenant", 1);
    let settings = "[target]\nqueue_depth = 64\n";
    vec![
        file(&[tenants, &small].concat()),
        Act::Fresh("v"),
        Act::Fill("v", 0xa1),
        Act::Fill("w", 0xb1),
        file(&[tenants, &large].concat()),
        Act::Fill("w", 0xb1),
        file(&[tenants, &protected, &volume("x", 1, "c")].concat()),
        Act::Fill("x", 0xc1),
        // Two volumes go.
        file(&[settings, tenants, &volume("w", 2, "b")].concat()),
    ]
}

#[test]
fn a_kill_while_a_file_is_applied_leaves_all_or_nothing() {
    let scene = Scene::new("kill-file");
    cut_everywhere(&scene, POOL, &file_script(&scene), Some("disk"));
}

#[test]
fn a_file_that_cannot_be_applied_changes_nothing() {
    let scene = Scene::new("fail-file");
    fail_everywhere(&scene, POOL, &file_script(&scene)[..8]);
}

const PARTITION: &str = r#"
    [[device]]
    name = "oc"
    kind = "open-channel"
    store = "file"
    path = "LIVE/oc"
    size = "512MiB"

    [[tenant]]
    name = "a"
"#;

/// Partitions come and go, on the same units.
fn partition_script() -> Vec<Act> {
    let partition = |name: &str| {
        let text = format!(
            "[[device]]\nname = \"{name}\"\nkind = \"partition\"\n[device.partition]\ndevice = \"oc\"\nchannels = \"0-3\""
        );
        let config = Config::parse(&text).expect("it is right");
        ask(Request::CreateDevice(config.devices[0].clone()))
    };
    vec![
        partition("one"),
        create("name = \"v\"\ndevice = \"one\"\ntenant = \"a\""),
        Act::Fresh("v"),
        Act::Fill("v", 0xa1),
        delete(KindName::Volume, "v"),
        delete(KindName::Partition, "one"),
        partition("two"),
        create("name = \"w\"\ndevice = \"two\"\ntenant = \"a\""),
        Act::Fresh("w"),
    ]
}

#[test]
fn a_kill_at_any_change_of_partitions_leaves_all_or_nothing() {
    let scene = Scene::new("kill-partition");
    cut_everywhere(&scene, PARTITION, &partition_script(), None);
}

#[test]
fn a_change_of_partitions_that_the_store_refuses_leaves_all_or_nothing() {
    let scene = Scene::new("fail-partition");
    fail_everywhere(&scene, PARTITION, &partition_script());
}
