//! The five tables: their columns, the most important ranks first, and what stands in them. Pure.

use clap::ValueEnum;

use super::column::{Cell, Column, Group, Row, Unit};
use super::figures::{Io, Looks, OfConnection, OfCore, OfDevice, OfTenant, OfVolume};
use crate::control::PromiseState;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tab {
    /// What tenants are promised, want and get, and who makes them wait
    Tenants,
    /// What volumes get
    Volumes,
    /// What devices do
    Devices,
    /// What cores do
    Cores,
    /// What hosts and guests do over their controllers
    Connections,
}

/// All tables, in the order of their keys.
pub(super) const TABS: [Tab; 5] = [
    Tab::Tenants,
    Tab::Volumes,
    Tab::Devices,
    Tab::Cores,
    Tab::Connections,
];

impl Tab {
    /// In a word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tenants => "tenants",
            Self::Volumes => "volumes",
            Self::Devices => "devices",
            Self::Cores => "cores",
            Self::Connections => "connections",
        }
    }

    /// Its place among all.
    pub(super) fn number(self) -> usize {
        self as usize
    }

    /// Its columns.
    pub(super) fn columns(self) -> Vec<Column> {
        match self {
            Self::Tenants => heads(TENANTS),
            Self::Volumes => heads(VOLUMES),
            Self::Devices => heads(DEVICES),
            Self::Cores => heads(CORES),
            Self::Connections => heads(CONNECTIONS),
        }
    }

    /// The column that it is sorted by while nobody says another.
    pub(super) fn first_sort(self) -> usize {
        let key = if self == Self::Cores { "core" } else { "iops" };
        let at = self.columns().iter().position(|column| column.key == key);
        at.unwrap_or_default()
    }

    /// Its rows, as the target has them.
    pub(super) fn rows(self, looks: Looks<'_>) -> Vec<Row> {
        match self {
            Self::Tenants => rows(TENANTS, looks.tenants(), |it| About {
                name: it.name.clone(),
                tenant: Some(it.name.clone()),
                alarming: it.promise == Some(PromiseState::Missed),
            }),
            Self::Volumes => rows(VOLUMES, looks.volumes(), |it| About {
                name: it.name.clone(),
                tenant: Some(it.tenant.clone()),
                alarming: false,
            }),
            Self::Devices => rows(DEVICES, looks.devices(), |it| About {
                name: it.name.clone(),
                tenant: None,
                alarming: false,
            }),
            Self::Cores => rows(CORES, looks.cores(), |it| About {
                name: it.core.to_string(),
                tenant: None,
                alarming: !it.answers,
            }),
            Self::Connections => rows(CONNECTIONS, looks.connections(), |it| About {
                name: format!("{} {}", it.controller, it.host),
                tenant: it.tenant.clone(),
                alarming: false,
            }),
        }
    }
}

/// A column, and what stands in it.
struct Of<T> {
    column: Column,
    cell: fn(&T) -> Cell,
}

/// What a row is about.
struct About {
    name: String,
    tenant: Option<String>,
    alarming: bool,
}

fn heads<T>(columns: &[Of<T>]) -> Vec<Column> {
    columns.iter().map(|of| of.column).collect()
}

fn rows<T>(columns: &[Of<T>], items: Vec<T>, about: fn(&T) -> About) -> Vec<Row> {
    let row = |item: T| {
        let cells = columns.iter().map(|of| (of.cell)(&item));
        let cells = cells.collect();
        let About {
            name,
            tenant,
            alarming,
        } = about(&item);
        Row {
            name,
            tenant,
            cells,
            alarming,
        }
    };
    items.into_iter().map(row).collect()
}

/// Columns: rank, key, title, group and unit, and what stands in them.
macro_rules! columns {
    ($($rank:literal $key:literal $title:literal $group:ident $unit:ident $cell:expr;)*) => {
        &[$(Of {
            column: Column {
                key: $key,
                title: $title,
                group: Group::$group,
                unit: Unit::$unit,
                rank: $rank,
            },
            cell: $cell,
        },)*]
    };
}

const TENANTS: &[Of<OfTenant>] = columns! {
    0 "name" "tenant" Of Text |it| Cell::text(&it.name);
    13 "class" "class" Of Text |it| Cell::text(&it.class);
    14 "weight" "weight" Promise Count |it| Cell::count(it.weight as usize);
    2 "promise" "promise" Promise Text |it| Cell::text_if(it.promise.map(word));
    10 "promised" "got of it" Promise Text |it| Cell::text_if(it.promised.as_deref());
    6 "in_flight" "in flight" Wants Count |it| Cell::count(it.io.in_flight);
    8 "queued" "queued" Wants Count |it| Cell::count(it.queued);
    11 "busy_part" "busy" Wants Part |it| Cell::Number(it.busy_part);
    1 "iops" "iops" Gets Iops |it| Cell::Number(it.io.iops);
    15 "read_iops" "reads/s" Gets Iops |it| Cell::Number(it.io.read_iops);
    16 "write_iops" "writes/s" Gets Iops |it| Cell::Number(it.io.write_iops);
    7 "bytes_per_second" "MiB/s" Gets Bandwidth |it| Cell::Number(it.io.bytes_per_second);
    18 "errors" "errors" Gets Count |it| Cell::Number(it.errors as f64);
    9 "p50_us" "p50" Waits Time |it| it.io.p50_us.into();
    4 "p99_us" "p99" Waits Time |it| it.io.p99_us.into();
    5 "waited_mean_us" "turn" Waits Time |it| it.io.waited_mean_us.into();
    12 "waited_p99_us" "turn p99" Waits Time |it| it.io.waited_p99_us.into();
    17 "excess_us" "excess" Waits Time |it| it.excess_us.into();
    3 "blame" "blame" Blame Text |it| Cell::text_if(it.blame.as_deref());
};

const VOLUMES: &[Of<OfVolume>] = columns! {
    0 "name" "volume" Of Text |it| Cell::text(&it.name);
    2 "tenant" "tenant" Of Text |it| Cell::text(&it.tenant);
    9 "device" "device" Of Text |it| Cell::text(&it.device);
    6 "in_flight" "in flight" Wants Count |it| in_flight(&it.io);
    1 "iops" "iops" Gets Iops |it| iops(&it.io);
    10 "read_iops" "reads/s" Gets Iops |it| Cell::Number(it.io.read_iops);
    11 "write_iops" "writes/s" Gets Iops |it| Cell::Number(it.io.write_iops);
    5 "bytes_per_second" "MiB/s" Gets Bandwidth |it| bandwidth(&it.io);
    8 "p50_us" "p50" Waits Time |it| it.io.p50_us.into();
    3 "p99_us" "p99" Waits Time |it| p99(&it.io);
    4 "waited_mean_us" "turn" Waits Time |it| it.io.waited_mean_us.into();
    12 "waited_p99_us" "turn p99" Waits Time |it| it.io.waited_p99_us.into();
    7 "blame" "blame" Blame Text |it| Cell::text_if(it.blame.as_deref());
};

const DEVICES: &[Of<OfDevice>] = columns! {
    0 "name" "device" Of Text |it| Cell::text(&it.name);
    10 "policy" "policy" Of Text |it| Cell::text(&it.policy);
    11 "core" "core" Of Number |it| it.core.map(|core| core as f64).into();
    9 "tenants" "tenants" Of Count |it| Cell::count(it.tenants);
    3 "in_flight" "in flight" Wants Count |it| in_flight(&it.io);
    8 "queued" "queued" Wants Count |it| Cell::count(it.queued);
    1 "iops" "iops" Gets Iops |it| iops(&it.io);
    12 "read_iops" "reads/s" Gets Iops |it| Cell::Number(it.io.read_iops);
    13 "write_iops" "writes/s" Gets Iops |it| Cell::Number(it.io.write_iops);
    2 "bytes_per_second" "MiB/s" Gets Bandwidth |it| bandwidth(&it.io);
    7 "p50_us" "p50" Waits Time |it| it.io.p50_us.into();
    4 "p99_us" "p99" Waits Time |it| p99(&it.io);
    6 "waited_mean_us" "turn" Waits Time |it| it.io.waited_mean_us.into();
    5 "blame" "blame" Blame Text |it| Cell::text_if(it.blame.as_deref());
};

const CORES: &[Of<OfCore>] = columns! {
    0 "core" "core" Of Number |it| Cell::count(it.core);
    3 "state" "state" Of Text |it| Cell::text(if it.answers { "answers" } else { "silent" });
    1 "processor_part" "processor" Of Part |it| it.processor_part.into();
    4 "connections" "connections" Of Count |it| Cell::count(it.connections);
    6 "devices" "devices" Of Count |it| Cell::count(it.devices);
    7 "in_flight" "in flight" Wants Count |it| in_flight(&it.io);
    2 "iops" "iops" Gets Iops |it| iops(&it.io);
    5 "bytes_per_second" "MiB/s" Gets Bandwidth |it| bandwidth(&it.io);
    8 "p99_us" "p99" Waits Time |it| p99(&it.io);
};

const CONNECTIONS: &[Of<OfConnection>] = columns! {
    0 "controller" "controller" Of Number |it| Cell::count(it.controller.into());
    1 "tenant" "tenant" Of Text |it| Cell::text(it.tenant.as_deref().unwrap_or("(discovery)"));
    4 "peer" "peer" Of Text |it| Cell::text(&it.peer);
    5 "io_queues" "queues" Wants Count |it| Cell::count(it.io_queues);
    6 "cores" "cores" Wants Text |it| Cell::text(&it.cores);
    2 "iops" "iops" Gets Iops |it| Cell::Number(it.read_iops + it.write_iops);
    7 "read_iops" "reads/s" Gets Iops |it| Cell::Number(it.read_iops);
    8 "write_iops" "writes/s" Gets Iops |it| Cell::Number(it.write_iops);
    3 "bytes_per_second" "MiB/s" Gets Bandwidth |it| Cell::Number(it.bytes_per_second);
    9 "errors" "errors" Gets Count |it| Cell::Number(it.errors as f64);
    10 "hostnqn" "host" Of Text |it| Cell::text(&it.host);
};

fn in_flight(io: &Io) -> Cell {
    Cell::count(io.in_flight)
}

fn iops(io: &Io) -> Cell {
    Cell::Number(io.iops)
}

fn bandwidth(io: &Io) -> Cell {
    Cell::Number(io.bytes_per_second)
}

fn p99(io: &Io) -> Cell {
    io.p99_us.into()
}

fn word(state: PromiseState) -> &'static str {
    match state {
        PromiseState::NotAskedFor => "not asked",
        PromiseState::Kept => "kept",
        PromiseState::Missed => "MISSED",
    }
}
