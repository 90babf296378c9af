//! The namespaces as one I/O queue sees them: a copy that is refreshed when its tenant's generation
//! has moved, so that the path of an I/O takes no lock.

use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::{Class, Tag};

use crate::association::{Association, TenantShared};
use crate::core::Core;
use crate::credit::CreditShare;
use crate::forwarding::Route;
use flashyard_controller::NamespaceInfo;
use flashyard_sched::{Ask, IoId, Op};

/// A namespace and the way to its device.
pub struct Namespace {
    /// What its host sees of it.
    pub info: NamespaceInfo,
    pub(crate) route: Route,
    pub(crate) tag: Tag,
    /// For a host that is told what it may have outstanding.
    pub(crate) credit_share: Option<CreditShare>,
}

impl Namespace {
    /// What an I/O to it asks of the switch before its device.
    #[inline]
    pub(super) fn ask(&self, class: Class, op: Op, lba: u64, bytes: u64) -> Ask {
        Ask {
            id: IoId::NONE,
            tenant: self.tag.tenant,
            class,
            op,
            bytes,
            lba,
        }
    }
}

/// All that a queue may reach.
#[derive(Default)]
pub(crate) struct Namespaces {
    /// Whose host is told what it may have outstanding.
    reported: Option<Arc<Association>>,
    generation: u64,
    /// By identifier.
    list: Vec<Rc<Namespace>>,
}

impl Namespaces {
    /// Nothing yet. The host of `reported` is told what it may have outstanding.
    pub(crate) fn new(reported: Option<Arc<Association>>) -> Self {
        Self {
            reported,
            ..Self::default()
        }
    }

    /// The namespace of this identifier, as it is now.
    #[inline]
    pub(crate) fn find(
        &mut self,
        core: &Core,
        tenant: &TenantShared,
        nsid: u32,
    ) -> Option<&Rc<Namespace>> {
        if self.generation != tenant.generation() {
            self.refresh(core, tenant);
        }
        // Identifiers mostly count from 1 without gaps.
        let guess = (nsid as usize).wrapping_sub(1);
        if self
            .list
            .get(guess)
            .is_some_and(|namespace| namespace.info.nsid == nsid)
        {
            return self.list.get(guess);
        }
        let found = self
            .list
            .binary_search_by_key(&nsid, |namespace| namespace.info.nsid);
        found.ok().map(|at| &self.list[at])
    }

    #[cold]
    fn refresh(&mut self, core: &Core, tenant: &TenantShared) {
        let reachable = core.target().reachable(tenant);
        self.generation = reachable.generation;
        let tag = Tag {
            tenant: tenant.id,
            class: reachable.class,
        };
        let namespaces = reachable.namespaces.into_iter().map(|(info, device)| {
            let route = if device.core() == core.index() {
                core.port(device.id()).map_or(Route::Nowhere, Route::Here)
            } else {
                Route::There {
                    core: device.core(),
                    device: device.id(),
                }
            };
            let credit_share = self.reported.as_ref().map(|association| {
                CreditShare::new(device.account(tenant.id), association.part(device.id()))
            });
            Rc::new(Namespace {
                info,
                route,
                tag,
                credit_share,
            })
        });
        self.list = namespaces.collect();
    }
}
