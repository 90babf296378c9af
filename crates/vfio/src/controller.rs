//! A controller of a function, from CC.EN = 1 to its end. To the engine it is an Admin connection
//! like that of a host.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use flashyard_controller::pcie::{AdminQueues, InvalidDoorbell, NewQueue};
use flashyard_controller::{
    Answer, ConnectRequest, ControllerLimits, PcieCapabilities, TransportCapabilities,
};
use flashyard_engine::Core;
use flashyard_engine::front::{
    self, Association, Caller, ConnectFailure, ConnectionId, Counted, TellWithdrawn,
};
use flashyard_nvme::CompletionQueueEntry;
use flashyard_nvme::fabrics::{
    Configuration, Connect, ConnectData, Property, PropertySize, Shutdown,
};
use flashyard_time::{Duration, Time};

use crate::function::{IDENTITY, State, VECTORS};

/// Where a function's client is, as far as lists of hosts show it: it has no address.
pub(crate) const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// How often a controller that was not let in tries again, within what its guest waits for CSTS.RDY
/// (CAP.TO, 15 s).
const ADMISSION_RETRY: Duration = Duration::from_ms(50);

/// What of the transport Identify Controller reports.
fn capabilities(_: &ControllerLimits) -> TransportCapabilities {
    TransportCapabilities {
        sgls: 0,
        ioccsz: 0,
        iorcsz: 0,
        icdoff: 0,
        msdbd: 0,
        admin_bytes: 4096,
        pcie: Some(PcieCapabilities {
            vendors: (IDENTITY.vendor, IDENTITY.subsystem_vendor),
            vectors: VECTORS,
        }),
    }
}

/// One controller.
pub(crate) struct Controller {
    pub(crate) state: Rc<State>,
    pub(crate) id: ConnectionId,
    pub(crate) association: Arc<Association>,
    /// CC as it was when the controller was enabled.
    configuration: Configuration,
    /// Aborts that a queue has been asked about.
    pub(crate) aborts: RefCell<Vec<u16>>,
    goodbye: Cell<bool>,
    _counted: [Counted; 2],
}

impl Controller {
    /// Makes the controller of a function that was enabled, when nothing of its last one is left.
    /// It is dropped if the guest changes its mind meanwhile.
    pub(crate) async fn make(state: Rc<State>, queues: AdminQueues) {
        let core = state.core.clone();
        let Some(id) = core.add_connection() else {
            return state.fail();
        };
        let mut unmade = Unmade(&core, Some(id));
        let deadline = core.rt().now() + core.target().config().limits.fence_deadline;
        loop {
            match Self::connect(&state, id, &queues) {
                Ok(controller) => {
                    unmade.1 = None;
                    return controller.begin(&queues);
                }
                Err(_) if core.rt().now() >= deadline => return state.fail(),
                Err(ConnectFailure::Fenced) => core.fence_lifted_or(deadline).await,
                // The tenant does not have all its volumes yet, or has too many controllers.
                Err(ConnectFailure::Refused(_)) => core.rt().sleep(ADMISSION_RETRY).await,
            }
        }
    }

    fn connect(
        state: &Rc<State>,
        id: ConnectionId,
        queues: &AdminQueues,
    ) -> Result<Rc<Self>, ConnectFailure> {
        let target = state.core.target();
        let request = request(
            state,
            ConnectData::DYNAMIC,
            Connect {
                sqsize: 31,
                ..Connect::default()
            },
        );
        let caller = Caller {
            connection: id,
            peer: SocketAddr::new(NOWHERE, 0),
            capabilities,
        };
        let seat = target.connect_admin(&request, caller, state.core.rt().now())?;
        let census = target.census();
        Ok(Rc::new(Self {
            state: state.clone(),
            id,
            association: seat.association,
            configuration: Configuration::from_bits(queues.configuration),
            aborts: RefCell::default(),
            goodbye: Cell::new(false),
            _counted: [census.connection(), census.queue()],
        }))
    }

    /// It is there: the guest may send commands.
    fn begin(self: Rc<Self>, queues: &AdminQueues) {
        self.configure(self.configuration);
        let state = self.state.clone();
        let connection: Rc<dyn front::Connection> = self.clone();
        state.core.keep(self.id, &connection);
        state.worker.queues.borrow_mut().set_admin(queues);
        state.worker.begin(self.id, self.association.clone());
        *state.controller.borrow_mut() = Some(self);
        state.registers.borrow_mut().set_ready();
        state.update_gate();
        state.worker.begin_to_look();
    }

    fn configure(&self, configuration: Configuration) {
        let now = self.state.core.rt().now();
        let (property, size) = (Property::Configuration, PropertySize::Four);
        let value = configuration.bits().into();
        let mut controller = self.association.controller();
        // The registers of the function have checked the value already.
        let _ = controller.set_property(now, property, size, value);
    }

    /// The guest announces its end.
    pub(crate) fn shut_down(&self, shn: Shutdown) {
        self.goodbye.set(true);
        self.configure(Configuration {
            shn,
            ..self.configuration
        });
    }

    /// Whether the guest has announced its end.
    pub(crate) fn has_said_goodbye(&self) -> bool {
        self.goodbye.get()
    }

    /// A doorbell was written in vain.
    pub(crate) fn on_invalid_doorbell(&self, invalid: InvalidDoorbell) {
        self.association.controller().on_invalid_doorbell(invalid);
        self.report_events();
    }

    /// A Connect of a new I/O queue.
    pub(crate) fn connect_to(&self, new: NewQueue) -> ConnectRequest {
        let command = Connect {
            qid: new.qid,
            sqsize: new.entries - 1,
            cattr: new.priority,
            ..Connect::default()
        };
        request(&self.state, self.association.cntlid, command)
    }

    /// Ends it, behind its queues. What was issued returns in its time.
    pub(crate) fn end(&self, with_notice: bool) {
        let core = &self.state.core;
        core.target()
            .end_association(&self.association, with_notice, core.rt().now());
        core.forget(self.id, None);
    }

    /// Completes a command of the Admin queue.
    pub(crate) fn answer(&self, cid: u16, answer: Answer) {
        let entry = CompletionQueueEntry::new(cid, answer.status).with_value(answer.value);
        self.state.worker.post(0, entry);
    }

    /// Completes requests for events that have come, as long as there are places for completions.
    pub(crate) fn report_events(&self) {
        loop {
            if !self.state.worker.queues.borrow_mut().keep_place(0) {
                return;
            }
            let event = self.association.controller().poll_event();
            match event {
                Some((cid, dw0)) => self.answer(cid, Answer::dw0(dw0)),
                None => return self.state.worker.queues.borrow_mut().release(0),
            }
        }
    }
}

/// A connection of which no controller has been made: it is forgotten with this.
struct Unmade<'a>(&'a Core, Option<ConnectionId>);

impl Drop for Unmade<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.1 {
            self.0.forget(id, None);
        }
    }
}

/// A Connect as a host would send it.
fn request(state: &State, cntlid: u16, command: Connect) -> ConnectRequest {
    ConnectRequest {
        command,
        data: ConnectData {
            hostid: state.spec.host.id,
            cntlid,
            subnqn: state.spec.subnqn,
            hostnqn: state.spec.host.nqn,
        },
        of_function: true,
    }
}

impl front::Connection for Controller {
    /// The target takes the tenant away, or ends: the guest sees a controller that has failed.
    fn close(&self) {
        self.state.fail();
        self.state.drop_controller(true);
    }

    fn withdraw(&self, _cid: u16, tell: TellWithdrawn) {
        tell(false);
    }

    fn on_aborted(&self, ticket: u16, aborted: bool) {
        let mut aborts = self.aborts.borrow_mut();
        let Some(at) = aborts.iter().position(|waiting| *waiting == ticket) else {
            return;
        };
        aborts.swap_remove(at);
        drop(aborts);
        self.answer(ticket, Answer::to_abort(aborted));
    }

    fn on_namespace_changed(&self, nsid: u32) {
        self.association.controller().on_namespace_change(nsid);
        self.report_events();
    }

    fn on_discovery_changed(&self) {}

    fn sweep(&self, _now: Time) {}
}
