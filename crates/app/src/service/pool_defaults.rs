//! What a mapped pool has for its volumes: how those are compressed, and in which chunks, that do
//! not say it when they are made. Volumes that are there stay as they are.

use flashyard_block::pool::VolumeForm;

use super::work::Work;
use super::{Fault, Stack};
use crate::control::{KindName, PoolChange, View};
use crate::spec::{CompressionName, PoolSpec, Size, VolumeSpec};
use crate::state::Kind;

impl Work<'_> {
    pub(super) fn set_pool(&mut self, name: &str, change: PoolChange) -> Result<View, Fault> {
        let (_, record) = self.pool(name)?;
        let spec = record.spec.clone();
        self.change_pool(PoolSpec {
            compression: change.compression.or(spec.compression),
            chunk: change.chunk.or(spec.chunk),
            ..spec
        })?;
        self.view_one(KindName::Pool, name)
    }

    /// Notes what a pool has for new volumes from now on.
    pub(super) fn change_pool(&mut self, spec: PoolSpec) -> Result<(), Fault> {
        let spec = spec.normal();
        spec.check()?;
        let (id, _) = self.pool(&spec.name)?;
        self.commit(|state, _| {
            state.change_pool(&spec)?;
            Ok(move |stack: &mut Stack| stack.graph.change_pool(id, |record| record.spec = spec))
        })
    }
}

impl Stack {
    /// Compression and chunk of a new volume: as it says, else as its pool says, else chunks that
    /// go with the compression.
    pub(super) fn form_of_new(&self, spec: &VolumeSpec) -> (Option<CompressionName>, Option<Size>) {
        let defaults = self.defaults_of(spec);
        let (compression, chunk) = defaults.map_or((None, None), |it| (it.compression, it.chunk));
        let compression = CompressionName::normal(spec.compression.or(compression));
        let [short, long] = VolumeForm::CHUNKS.map(|chunk| Size(chunk.into()));
        let usual = if compression.is_some() { long } else { short };
        (compression, Some(spec.chunk.or(chunk).unwrap_or(usual)))
    }

    /// A volume that says of its form whatever a new one that says nothing would not have.
    pub(super) fn with_form_said(&self, mut spec: VolumeSpec) -> VolumeSpec {
        let Some(defaults) = self.defaults_of(&spec) else {
            return spec;
        };
        let least = Size(VolumeForm::CHUNKS[0].into());
        let chunk = spec.chunk.take().unwrap_or(least);
        if defaults.compression.is_some() {
            spec.compression = spec.compression.or(Some(CompressionName::None));
        }
        if self.form_of_new(&spec).1 != Some(chunk) {
            spec.chunk = Some(chunk);
        }
        spec
    }

    /// The pool of a volume, with what it has for those that are new.
    fn defaults_of(&self, spec: &VolumeSpec) -> Option<&PoolSpec> {
        let pool = self.graph.find(Kind::Pool, spec.pool.as_deref()?)?;
        Some(&self.graph.pool(pool)?.spec)
    }
}
