//! Keys and looks by tables, and the screen at several sizes.

mod keys;
mod screen;

use crate::control::{
    ActivityView, CauseView, ConnectionActivity, CoreActivity, DeviceActivity, HealthState,
    PromiseState, PromiseView, TenantActivity, TenantOnDevice, TimesView, TrafficRow, TrafficView,
};
use crate::spec::{ClassName, PolicyName};

use super::figures::Look;
use super::model::{Input, Key, Model, Wanted};
use super::tables::Tab;

/// Reads of 4 KiB: so many until now, each 300 us of which 100 waiting for its turn.
fn times(ios: u64) -> TimesView {
    TimesView {
        ios,
        bytes: ios * 4096,
        waited_us: ios as f64 * 100.0,
        served_us: ios as f64 * 200.0,
        waited: vec![0, ios],
        served: vec![0, 0, ios],
        took: vec![0, 0, ios],
    }
}

fn volume(tenant: &str, device: &str, ios: u64) -> TrafficRow {
    TrafficRow {
        tenant: tenant.into(),
        device: device.into(),
        volume: Some(format!("{tenant}-v")),
        in_flight: 4,
        read: times(ios),
        write: TimesView::default(),
    }
}

fn tenant(name: &str, device: &str, promise: Option<PromiseState>) -> TenantActivity {
    let promises = promise.map(|state| PromiseView {
        tenant: name.into(),
        device: device.into(),
        promise: "read_iops".into(),
        unit: "per_second".into(),
        promised: 20_000,
        got: Some(12_000),
        state: Some(state),
        limited_by: None,
        neighbour: None,
        reason: None,
    });
    let cause = CauseView {
        kind: "turn".into(),
        cause: "waited".into(),
        tenant: Some("batch".into()),
        share: 0.6,
        us: 60.0,
    };
    TenantActivity {
        tenant: name.into(),
        class: ClassName::Latency,
        weight: 2,
        guarantee: None,
        limit: None,
        latency_target: None,
        errors: 0,
        promise_state: promise,
        promises: promises.into_iter().collect(),
        devices: vec![TenantOnDevice {
            device: device.into(),
            queued: 3,
            seconds: 5.0,
            busy_part: 0.98,
            ios: 100,
            excess_us: 100.0,
            causes: vec![cause],
        }],
    }
}

fn connection(controller: u16, tenant: Option<&str>, reads: u64) -> ConnectionActivity {
    ConnectionActivity {
        controller,
        tenant: tenant.map(str::to_owned),
        hostnqn: format!("nqn.2014-08.org.nvmexpress:uuid:host-{controller}"),
        peer: Some(([127, 0, 0, 1], 40_000 + controller).into()),
        io_queues: 2,
        cores: vec![0, 1],
        reads,
        writes: 0,
        bytes_read: reads * 4096,
        bytes_written: 0,
        errors: 0,
    }
}

/// After so many seconds of a run in which each of the named tenants has done so much.
fn look(starts: u64, run_seconds: f64, tenants: &[(&str, u64)]) -> Box<Look> {
    let volumes = tenants.iter().map(|(name, ios)| volume(name, "ssd0", *ios));
    let core = |core| CoreActivity {
        core,
        connections: 2 - core,
        processor_seconds: (core == 0).then_some(run_seconds / 4.0),
    };
    let mut all: Vec<_> = tenants.iter().map(|(name, _)| *name).collect();
    all.sort_unstable();
    let promise = |name: &str| match name {
        "db" => Some(PromiseState::Missed),
        "web" => Some(PromiseState::Kept),
        _ => None,
    };
    Box::new(Look {
        traffic: TrafficView {
            starts,
            run_seconds,
            bounds_us: vec![Some(10.0), Some(100.0), Some(1_000.0), None],
            volumes: volumes.collect(),
            silent_cores: Vec::new(),
            next: None,
        },
        activity: ActivityView {
            starts,
            run_seconds,
            health: HealthState::Degraded,
            problems: 1,
            tenants: all
                .iter()
                .map(|name| tenant(name, "ssd0", promise(name)))
                .collect(),
            devices: vec![DeviceActivity {
                device: "ssd0".into(),
                policy: PolicyName::default(),
                core: Some(0),
                tenants: tenants.len(),
            }],
            cores: vec![core(0), core(1)],
            connections: vec![
                connection(2, Some("db"), tenants.first().map_or(0, |it| it.1)),
                connection(9, None, 0),
            ],
            silent_cores: vec![1],
            next: None,
        },
    })
}

const TENANTS: [(&str, u64); 3] = [("db", 1_000), ("batch", 9_000), ("web", 0)];

/// A target that runs for 100 s, looked at twice with a second between.
fn model(tab: Tab) -> Model {
    let mut model = Model::new(look(1, 100.0, &TENANTS), tab, 1.0);
    let later = TENANTS.map(|(name, ios)| (name, ios + ios / 10));
    assert_eq!(
        model.take(Input::Look(look(1, 101.0, &later))),
        Wanted::Nothing
    );
    model
}

fn press(model: &mut Model, keys: &str) -> Vec<Wanted> {
    let key = |word: &str| match word {
        "tab" => Key::Tab,
        "backtab" => Key::BackTab,
        "up" => Key::Up,
        "down" => Key::Down,
        "pageup" => Key::PageUp,
        "pagedown" => Key::PageDown,
        "home" => Key::Home,
        "end" => Key::End,
        "enter" => Key::Enter,
        "esc" => Key::Escape,
        "backspace" => Key::Backspace,
        "interrupt" => Key::Interrupt,
        one => Key::Char(one.chars().next().expect("a character")),
    };
    let keys = keys.split_whitespace().map(key);
    keys.map(|key| model.take(Input::Key(key))).collect()
}

fn names(model: &Model) -> Vec<&str> {
    model.rows().iter().map(|row| &*row.name).collect()
}
