//! The configuration file that makes what is there: applied to an empty target it gives the same,
//! applied where it came from it changes nothing.

use super::plan::keys;
use super::work::Work;
use crate::graph::Node;
use crate::spec::{ContentName, Document, Keys, NamespaceUuid, Section, TenantSpec, VolumeSpec};
use crate::state::{Phase, VolumeRecord};

impl Work<'_> {
    /// All that there is, each table after those that it names.
    pub(super) fn export(&self) -> Document {
        let mut file = Document::default();
        let settings = keys(&self.settings);
        if !settings.is_empty() {
            file.push(Section::Target, settings);
        }
        for id in self.graph.in_order() {
            match self.graph.get(id) {
                Some(Node::Device(device)) => {
                    if let Some(table) = device_table(keys(&device.spec)) {
                        file.push(Section::Device, table);
                    }
                }
                Some(Node::Pool(record)) => file.push(Section::Pool, keys(&record.spec)),
                Some(Node::Tenant(tenant)) => {
                    let names = self.names_of(&tenant.record.spec);
                    // The serial number follows from the target's own identity, and another target
                    // has another.
                    let spec = TenantSpec {
                        nqn: Some(names.nqn),
                        serial: Some(names.serial),
                        ..tenant.record.spec.clone()
                    };
                    file.push(Section::Tenant, keys(&spec));
                }
                // Snapshots are in no file, nor is what they are shared as.
                Some(Node::Volume(volume)) if volume.record.spec.is_snapshot() => {}
                Some(Node::Volume(volume)) if volume.record.phase != Phase::Deleting => {
                    let spec = self.with_form_said(volume_spec(&volume.record));
                    file.push(Section::Volume, keys(&spec));
                }
                Some(Node::Function(function)) => {
                    file.push(Section::Function, keys(&function.spec));
                }
                _ => {}
            }
        }
        // What is to be imported is as the last file has it.
        for (section, name) in self.to_import() {
            if let Some(table) = self.applied.file.by_name(*section).get(name.as_str()) {
                file.push(*section, Keys::clone(table));
            }
        }
        file
    }
}

/// A device without what the target keeps of it for itself; nothing of a partition that is half
/// made.
fn device_table(mut table: Keys) -> Option<Keys> {
    table.remove("disposable");
    if let Some(cut) = table.get_mut("partition").and_then(|it| it.as_object_mut()) {
        if cut.contains_key("unfinished") {
            return None;
        }
        cut.remove("imported");
    }
    Some(table)
}

/// A volume with all that hosts know it by. What is on a whole device is kept wherever the file is
/// applied: it may be applied because the state was lost.
fn volume_spec(record: &VolumeRecord) -> VolumeSpec {
    let spec = record.spec.clone();
    let is_whole = spec.device.is_some();
    VolumeSpec {
        size: spec.size.filter(|_| !is_whole),
        content: is_whole.then_some(ContentName::Keep),
        uuid: Some(NamespaceUuid(record.uuid)),
        nguid: Some(record.nguid()),
        nsid: Some(record.nsid),
        ..spec
    }
}
