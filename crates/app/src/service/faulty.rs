//! Devices that inject faults on purpose: a layer before another device, on its core. What stands
//! on one is marked wherever its health is shown, so that it is not forgotten.
//!
//! A start meets no faults: no command can take away what hangs before the API is there.

use std::rc::Rc;

use flashyard_block::fault::{FaultDevice, FaultRule};

use super::fault::{InUse, Invalid, Unavailable};
use super::work::Work;
use super::{Fault, Service, Stack};
use crate::control::{InjectedRow, KindName, View};
use crate::graph::NodeId;
use crate::nodes::Node;
use crate::published::Report;
use crate::spec::{DeviceSpec, FaultLayerSpec, FaultSpec};
use crate::state::Kind;

impl Work<'_> {
    /// Refuses a layer before a device that is not there, that has another user, or that it does
    /// not fit; gives that device.
    pub(super) fn check_new_layer(
        &self,
        spec: &DeviceSpec,
        layer: &FaultLayerSpec,
    ) -> Result<NodeId, Fault> {
        let below = self.check_below(spec, &layer.device)?;
        let device = self.graph.device(below);
        if device.is_some_and(|device| device.spec.fault_layer().is_some()) {
            return Err(Invalid::FaultOnFault(layer.device.clone()).into());
        }
        self.check_reach(layer)?;
        Ok(below)
    }

    /// Refuses a layer before a device that is not there, that has another user, or has other
    /// blocks; gives that device.
    pub(super) fn check_below(&self, spec: &DeviceSpec, name: &str) -> Result<NodeId, Fault> {
        let (below, device) = self.device(name)?;
        if let Some(user) = self.user_text(below) {
            return Err(InUse::Taken(name.to_owned(), user).into());
        }
        self.home_of(below)?;
        self.check_blocks(below)?;
        self.check_no_parity(below)?;
        let real = device.spec.block_size;
        if real != spec.block_size {
            return Err(Invalid::BlocksBelow(name.to_owned(), real).into());
        }
        Ok(below)
    }

    /// Refuses faults behind the end of the device below, which would never hit; not while it is
    /// not open.
    pub(super) fn check_reach(&self, layer: &FaultLayerSpec) -> Result<(), Fault> {
        let (below, faults) = (self.device(&layer.device)?.0, &layer.faults);
        if self.home_of(below).is_err() {
            return Ok(());
        }
        let size = self.size_of(below)?;
        let beyond = |fault: &&FaultSpec| fault.from.is_some_and(|from| from >= size);
        match faults.iter().find(beyond) {
            Some(fault) => Err(Invalid::FaultBeyond(fault.to_string(), size.0).into()),
            None => Ok(()),
        }
    }

    /// Puts a layer before its device, on the core of that.
    pub(super) fn open_layer(
        &self,
        id: NodeId,
        spec: &DeviceSpec,
        layer: &FaultLayerSpec,
    ) -> Result<usize, Fault> {
        let (below, _) = self.device(&layer.device)?;
        let core = self.home_of(below)?;
        let (name, seed) = (layer.device.clone(), layer.seed.unwrap_or(1));
        let (rules, blocks) = (self.rules_of(spec), spec.block_size);
        self.cores.call(core, move |state| async move {
            let device = state.nodes.device(below);
            let device = device.ok_or_else(|| Unavailable::NotWhole(name.clone()))?;
            let real = device.info().block_size;
            if real != blocks {
                return Err(Invalid::BlocksBelow(name, real).into());
            }
            let layer = FaultDevice::new(&state.rt, device, seed, rules);
            state.nodes.add(id, Node::Faulty(Rc::new(layer)));
            Ok::<(), Fault>(())
        })?;
        Ok(core)
    }

    /// Has a device inject other faults from now on; none if there are none.
    pub(super) fn set_faults(&mut self, name: &str, faults: Vec<FaultSpec>) -> Result<View, Fault> {
        let (id, device) = self.device(name)?;
        let mut wanted = device.spec.clone();
        wanted.set_faults(faults.clone());
        wanted.check()?;
        match wanted.fault_layer() {
            Some(layer) => self.check_reach(layer)?,
            None => return Err(Invalid::NoFaults(name.to_owned()).into()),
        }
        self.change_spec(id, |spec| spec.set_faults(faults))?;
        self.renew_faults(id);
        self.view_one(KindName::Device, name)
    }

    /// Has the layer inject what is noted; does nothing for another device.
    pub(super) fn renew_faults(&self, device: NodeId) {
        self.send_in_order(|stack| {
            let spec = &stack.graph.device(device)?.spec;
            spec.fault_layer()?;
            let rules = stack.rules_of(spec);
            let core = stack.home_of(device).ok()?;
            Some(self.cores.send(core, move |state| async move {
                if let Some(layer) = state.nodes.faulty(device) {
                    layer.set(rules);
                }
            }))
        });
    }

    /// What the faults of a device have done; nothing of another device.
    pub(super) fn view_injected(&self, id: NodeId) -> Vec<InjectedRow> {
        let Some(device) = self.graph.device(id) else {
            return Vec::new();
        };
        let report = device.home.and_then(|core| self.report(core, id));
        let counts = match report.as_deref() {
            Some(Report::Faulty(_, report)) => report.counts.as_slice(),
            _ => &[],
        };
        let spec = &device.spec;
        let rules = spec.fault_layer().map(|layer| layer.rules(spec.block_size));
        let rules = rules.into_iter().flatten().enumerate();
        let rows = rules.zip(spec.faults()).map(|((at, rule), fault)| {
            // The core may still be at an older list.
            let counts = counts.get(at).filter(|(of, _)| *of == rule);
            let counts = counts.map(|(_, counts)| *counts);
            InjectedRow {
                device: spec.name.clone(),
                fault: fault.to_string(),
                seen: counts.map(|counts| counts.seen),
                injected: counts.map(|counts| counts.injected),
                missed: counts.map(|counts| counts.missed),
            }
        });
        rows.collect()
    }

    /// What the faults of all devices have done.
    pub(super) fn view_all_injected(&self) -> Vec<InjectedRow> {
        let devices = self.graph.all(Kind::Device);
        devices.flat_map(|id| self.view_injected(id)).collect()
    }
}

impl Stack {
    /// What a device injects now.
    fn rules_of(&self, spec: &DeviceSpec) -> Vec<FaultRule> {
        let layer = spec.fault_layer().filter(|_| self.injects_faults);
        layer.map_or_else(Vec::new, |layer| layer.rules(spec.block_size))
    }

    /// That something stands on a device that injects faults, or is one, and how to end that.
    pub(super) fn injects(&self, id: NodeId) -> Option<String> {
        let below = self.graph.all_under(id).into_iter();
        let marks = below.filter_map(|id| mark(&self.graph.device(id)?.spec));
        marks.reduce(|all, one| format!("{all}; {one}"))
    }

    /// All devices that inject faults, each with what is to be said of that.
    pub(super) fn injecting(&self) -> Vec<(String, String)> {
        let devices = self.graph.devices();
        let marked = devices.filter_map(|(_, device)| {
            let why = mark(&device.spec)?;
            Some((format!("device {}", device.spec.name), why))
        });
        marked.collect()
    }
}

/// What is to be said of a device that injects faults; nothing of any other.
fn mark(spec: &DeviceSpec) -> Option<String> {
    let faults: Vec<String> = spec.faults().iter().map(ToString::to_string).collect();
    let (name, faults) = (&spec.name, faults.join("; "));
    (!faults.is_empty()).then(|| {
        format!(
            "device {name} injects faults on purpose ({faults}): data on it can be wrong or lost; `flashyard device set {name} \
             --no-faults` ends that"
        )
    })
}

impl Service {
    /// The target has started: its devices inject the faults that are noted of them from now on.
    pub fn inject_faults(&self) -> Result<(), Fault> {
        let mut work = self.work()?;
        work.edit(|stack| stack.injects_faults = true);
        for device in work.graph.all(Kind::Device) {
            work.renew_faults(device);
        }
        Ok(())
    }

    /// Devices that inject faults, and what is to be said of each.
    pub fn injecting(&self) -> Vec<(String, String)> {
        self.stack().injecting()
    }

    /// Ends what hangs on purpose, for the target is about to end and waits for it.
    pub(super) fn release_hangs(&self) {
        for core in 0..self.cores.count() {
            // A core that does not turn has worse to wait for.
            self.cores.call_soon(core, |state| async move {
                for layer in state.nodes.all_faulty() {
                    layer.release();
                }
            });
        }
    }
}
