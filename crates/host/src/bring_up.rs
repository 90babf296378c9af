//! From an address to a working association: connections, Connect, and getting the controller
//! ready.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_nvme::command::Status;
use flashyard_nvme::fabrics::{
    Capabilities, Connect, ConnectData, ConnectResponse, InvalidParameter, Property, ReadyTimeouts,
};
use flashyard_nvme::feature::AsyncEventConfiguration;
use flashyard_nvme::identify::{IdentifyController, ascii_text};
use flashyard_nvme::tcp::{
    Digests, Event, Framer, Header, ICReq, Limits, Negotiated, Role, accept_response,
};
use flashyard_nvme::{CompletionQueueEntry, SubmissionQueueEntry};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Data, Gather, Rt, TcpStream};
use flashyard_time::Duration;

use crate::admin;
use crate::association::{Association, ConnectError, Inner, Options};
use crate::credits::Credits;
use crate::events::Events;
use crate::outbox::{self, Outbox};
use crate::queue::{ADMIN_IN_CAPSULE, HostError, Queue, Shared};
use crate::receiver::{self, Violation};
use crate::slots::MAX_DEPTH;

/// Commands in flight on the Admin queue; its submission queue has one entry more.
const ADMIN_DEPTH: u16 = 31;
/// Most data of one C2HData PDU: the largest transfer there is.
const MAX_C2H_DATA: u32 = 2 << 20;
/// CAP.TO and CRTO count in these.
const READY_UNIT: Duration = Duration::from_ms(500);
/// CRDT1 to CRDT3 count in these.
const RETRY_UNIT: Duration = Duration::from_ms(100);
/// SGLS bits 1:0: SGLs are supported, with or without alignment rules.
const SGLS_SUPPORTED: u32 = 3;
/// Between two looks at CSTS.
const POLL: Duration = Duration::from_ms(1);
/// Events that the host wants to be notified of, of those the controller has.
const EVENTS: u32 = AsyncEventConfiguration::NAMESPACE
    | AsyncEventConfiguration::DISCOVERY
    | AsyncEventConfiguration::SMART
    | AsyncEventConfiguration::FIRMWARE;

/// See [`Association::connect`].
pub(crate) async fn connect(
    rt: &Rt,
    addr: SocketAddr,
    options: Options,
) -> Result<Association, ConnectError> {
    check(&options)?;
    let timeout = options.connect_timeout;
    let making = Making {
        rt,
        addr,
        options,
        queue_failed: Rc::new(Notify::new()),
    };
    rt.timeout(timeout, making.run())
        .await
        .unwrap_or(Err(ConnectError::Timeout))
}

/// Model number of the controllers that are ours.
const OUR_MODEL: &str = "Flashyard";

/// Weighted round robin with urgent class: a bit of CAP.AMS, and its number in CC.AMS.
const WEIGHTED_ROUND_ROBIN: u8 = 1;

fn check(options: &Options) -> Result<(), ConnectError> {
    if !(1..MAX_DEPTH).contains(&options.depth) {
        return Err(ConnectError::Option("the depth of a queue is 1 to 4095"));
    }
    if options.priority.is_some_and(|priority| priority > 3) {
        return Err(ConnectError::Option("priority is 0 (urgent) to 3 (low)"));
    }
    if options.kato.as_ms() > u64::from(u32::MAX) {
        return Err(ConnectError::Option("the Keep Alive Timeout is too long"));
    }
    if options.hostid == [0; 16] {
        return Err(ConnectError::Option("the host identifier is all zeroes"));
    }
    Ok(())
}

/// Whether vendor features of the controller are those of this project.
fn is_ours(identify: &IdentifyController) -> bool {
    ascii_text(&identify.mn) == Some(OUR_MODEL)
}

/// An association being made.
struct Making<'a> {
    rt: &'a Rt,
    addr: SocketAddr,
    options: Options,
    queue_failed: Rc<Notify>,
}

impl Making<'_> {
    async fn run(self) -> Result<Association, ConnectError> {
        let admin = self.open(0, ADMIN_DEPTH).await?;
        let response = self
            .connect_queue(&admin.queue, ConnectData::DYNAMIC)
            .await?;
        if response.authentication_required || response.secure_channel_required {
            return Err(ConnectError::AuthenticationRequired);
        }
        let capabilities = self.enable(&admin.queue).await?;
        let identify = admin::identify_controller(&admin.queue).await?;
        self.check_identify(&identify, response.cntlid)?;
        let (mut opened, mut credits) = (Vec::new(), None);
        if self.options.queues > 0 {
            let depth = self.options.depth.min(capabilities.mqes);
            let depth = if identify.maxcmd == 0 {
                depth
            } else {
                depth.min(identify.maxcmd)
            };
            let in_capsule = u32::try_from(identify.max_in_capsule_data()).unwrap_or(u32::MAX);
            let delays = self.retry_delays(&admin.queue, &identify).await?;
            let packed = self.coalesce(&admin.queue, &identify).await?;
            credits = self.credits(&admin.queue, &identify).await?;
            for qid in 1..=admin::set_number_of_queues(&admin.queue, self.options.queues).await? {
                let queue = self.open(qid, depth).await?;
                self.connect_queue(&queue.queue, response.cntlid).await?;
                queue.queue.shared.in_capsule.set(in_capsule);
                queue.queue.shared.packed.set(packed);
                queue.queue.shared.retry_delays.set(delays);
                if let Some(credits) = &credits {
                    queue.queue.shared.apply(Rc::clone(credits));
                }
                opened.push(queue);
            }
        }
        let events = identify.oaes & EVENTS;
        if events != 0 {
            admin::set_async_events(&admin.queue, events).await?;
        }
        let inner = Inner {
            rt: self.rt.clone(),
            addr: self.addr,
            options: self.options,
            admin: admin.keep(),
            io: RefCell::new(opened.into_iter().map(Opened::keep).collect()),
            cntlid: response.cntlid,
            capabilities,
            identify,
            credits,
            events: Events::default(),
            queue_failed: self.queue_failed,
            ended: Notify::new(),
            failure: Cell::new(None),
        };
        Ok(Association::new(Rc::new(inner)))
    }

    /// Asks the controller to report how long to wait before a command is tried again; gives its
    /// three delays. A controller does not report them unless it is asked.
    async fn retry_delays(
        &self,
        admin: &Queue,
        identify: &IdentifyController,
    ) -> Result<[Duration; 3], ConnectError> {
        let delays = [identify.crdt1, identify.crdt2, identify.crdt3];
        if delays == [0; 3] {
            return Ok(Default::default());
        }
        match admin::set_retry_delays(admin).await {
            // One that does not know the feature reports no delay either.
            Ok(()) | Err(HostError::Status(_)) => {
                Ok(delays.map(|units| RETRY_UNIT * u64::from(units)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Negotiates how the I/O queues report successes; gives whether a completion may retire
    /// several commands. The feature's number means something else to controllers of other vendors.
    async fn coalesce(
        &self,
        admin: &Queue,
        identify: &IdentifyController,
    ) -> Result<bool, ConnectError> {
        let Some(wanted) = self.options.coalescing else {
            return Ok(false);
        };
        if !is_ours(identify) {
            return Ok(false);
        }
        match admin::set_coalescing(admin, wanted).await {
            Ok(()) => Ok(wanted.packed),
            // An older one of ours.
            Err(HostError::Status(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What bounds what we have outstanding. A controller that is to report it is asked to; nothing
    /// if it does not do that.
    async fn credits(
        &self,
        admin: &Queue,
        identify: &IdentifyController,
    ) -> Result<Option<Rc<Credits>>, ConnectError> {
        if let Some(threshold) = self.options.parda {
            return Ok(Some(Credits::steered(self.rt, threshold)));
        }
        if !self.options.credits || !is_ours(identify) {
            return Ok(None);
        }
        match admin::set_credits(admin).await {
            Ok(()) => Ok(Some(Credits::new(self.rt))),
            // An older one of ours.
            Err(HostError::Status(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A connection with its tasks, before Connect.
    async fn open(&self, qid: u16, depth: u16) -> Result<Opened, ConnectError> {
        let stream = self.rt.connect(self.addr).await.map_err(transport)?;
        let mut framer = Framer::new(
            Role::Host,
            Limits {
                in_capsule: ADMIN_IN_CAPSULE,
                c2h_data: MAX_C2H_DATA,
            },
        );
        let negotiated = self.initialize(&stream, &mut framer).await?;
        framer.negotiated(&negotiated);
        let outbox = Outbox::new(&negotiated);
        let shared = Shared::new(
            qid,
            depth.max(1),
            stream,
            outbox,
            Rc::clone(&self.queue_failed),
        );
        let shared = Rc::new(shared);
        self.rt
            .spawn(receiver::receive(
                self.rt.clone(),
                Rc::clone(&shared),
                framer,
            ))
            .detach();
        self.rt
            .spawn(outbox::send(self.rt.clone(), Rc::clone(&shared)))
            .detach();
        Ok(Opened {
            queue: Queue { shared },
            kept: false,
        })
    }

    /// ICReq and ICResp.
    async fn initialize(
        &self,
        stream: &TcpStream,
        framer: &mut Framer,
    ) -> Result<Negotiated, ConnectError> {
        let digests = Digests {
            header: self.options.header_digest,
            data: self.options.data_digest,
        };
        let request = ICReq {
            digests,
            ..ICReq::default()
        };
        let mut gather = Gather::new();
        gather.push_bytes(&request.encode());
        stream.send(gather).await.0.map_err(transport)?;
        loop {
            let chunk = stream.recv().await.map_err(transport)?;
            if chunk.is_empty() {
                return Err(HostError::Transport(std::io::ErrorKind::UnexpectedEof).into());
            }
            let mut input = &chunk[..];
            match framer.next(&mut input).map_err(HostError::from)? {
                None => {}
                // Nothing may follow ICResp before our first command.
                Some(Event::Pdu(Header::ICResp(response))) if input.is_empty() => {
                    let agreed = accept_response(&request, &response).map_err(HostError::from)?;
                    return if agreed.digests == digests {
                        Ok(agreed)
                    } else {
                        Err(ConnectError::Unusable(
                            "it does not support the digests that were asked for",
                        ))
                    };
                }
                Some(Event::Pdu(Header::TermReq(reason))) => {
                    return Err(HostError::Terminated {
                        fes: reason.fes.0,
                        fei: reason.fei,
                    }
                    .into());
                }
                Some(_) => {
                    let violation = flashyard_nvme::tcp::Violation::sequence();
                    return Err(HostError::from(violation).into());
                }
            }
        }
    }

    /// Makes a connection a queue of a controller.
    async fn connect_queue(
        &self,
        queue: &Queue,
        cntlid: u16,
    ) -> Result<ConnectResponse, ConnectError> {
        let options = &self.options;
        let qid = queue.qid();
        let mut cattr = 0;
        if let Some(priority) = options.priority
            && qid != 0
        {
            cattr |= priority & Connect::CATTR_PRIORITY;
        }
        if options.disable_sq_flow_control {
            cattr |= Connect::CATTR_DISABLE_SQ_FLOW_CONTROL;
        }
        let command = Connect {
            recfmt: 0,
            qid,
            sqsize: queue.depth(),
            cattr,
            kato: if qid == 0 {
                options.kato.as_ms() as u32
            } else {
                0
            },
        };
        let data = ConnectData {
            hostid: options.hostid,
            cntlid,
            subnqn: options.subnqn,
            hostnqn: options.hostnqn,
        };
        let mut buf = Buf::take(ConnectData::LEN).ok_or(HostError::NoBuffer)?;
        buf.copy_from_slice(&data.encode());
        let entry = SubmissionQueueEntry::connect(command);
        let answer = queue.shared.connect_command(entry, Data::Buf(buf)).await?;
        let status = answer.status();
        if !status.is_success() {
            return Err(refusal(answer));
        }
        let response = ConnectResponse::from_dw0(answer.dw0());
        let other = cntlid != ConnectData::DYNAMIC && response.cntlid != cntlid;
        if other || response.cntlid >= 0xfff0 {
            return Err(HostError::from(Violation::Content(
                "Connect answered with a wrong controller",
            ))
            .into());
        }
        Ok(response)
    }

    /// Reads what the controller can do, enables it and waits until it is ready.
    async fn enable(&self, admin: &Queue) -> Result<Capabilities, ConnectError> {
        let capabilities =
            Capabilities::from_bits(admin::property_get(admin, Property::Capabilities).await?);
        if capabilities.mqes == 0 {
            return Err(ConnectError::Unusable(
                "its queues have room for less than one command",
            ));
        }
        let mut configuration = admin::enabled();
        if capabilities.css & Capabilities::CSS_NVM == 0
            && capabilities.css & Capabilities::CSS_IO_SETS != 0
        {
            configuration.css = 6;
        }
        if self.options.priority.is_some() && capabilities.ams & WEIGHTED_ROUND_ROBIN != 0 {
            configuration.ams = WEIGHTED_ROUND_ROBIN;
        }
        let value = u64::from(configuration.bits());
        admin::property_set(admin, Property::Configuration, value).await?;
        let mut units = u64::from(capabilities.to).max(1);
        if capabilities.crms & Capabilities::CRMS_WITH_MEDIA != 0 {
            let bits = admin::property_get(admin, Property::ReadyTimeouts).await?;
            units = units.max(u64::from(ReadyTimeouts::from_bits(bits as u32).crwmt));
        }
        let deadline = self.rt.now() + READY_UNIT * units;
        loop {
            let status = admin::status(admin).await?;
            if status.rdy {
                return Ok(capabilities);
            }
            if status.cfs || self.rt.now() >= deadline {
                return Err(ConnectError::NotReady);
            }
            self.rt.sleep(POLL).await;
        }
    }

    fn check_identify(
        &self,
        identify: &IdentifyController,
        cntlid: u16,
    ) -> Result<(), ConnectError> {
        let discovery = self.options.subnqn.is_discovery();
        let unusable = if identify.cntlid != cntlid {
            "its Identify tells another controller than Connect"
        } else if self.options.kato > Duration::ZERO && identify.kas == 0 {
            "it has no Keep Alive"
        } else if discovery || self.options.queues == 0 {
            return Ok(());
        } else if identify.sgls & SGLS_SUPPORTED == 0 {
            "it does not support SGLs"
        } else if identify.ioccsz < 4 || identify.iorcsz < 1 || identify.icdoff != 0 {
            "its capsule sizes cannot be"
        } else {
            return Ok(());
        };
        Err(ConnectError::Unusable(unusable))
    }
}

/// A queue that is closed again unless it is kept.
struct Opened {
    queue: Queue,
    kept: bool,
}

impl Opened {
    fn keep(mut self) -> Queue {
        self.kept = true;
        self.queue.clone()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.kept {
            self.queue.shared.fail(HostError::Closed);
        }
    }
}

fn refusal(answer: CompletionQueueEntry) -> ConnectError {
    let status = answer.status();
    if status.is(Status::CONNECT_INVALID_PARAMETERS) {
        ConnectError::InvalidParameter(InvalidParameter::from_dw0(answer.dw0()))
    } else if status.is(Status::CONNECT_INVALID_HOST) {
        ConnectError::HostNotAllowed
    } else if status.is(Status::CONNECT_CONTROLLER_BUSY) {
        ConnectError::Busy
    } else {
        HostError::Status(status).into()
    }
}

fn transport(error: std::io::Error) -> ConnectError {
    HostError::Transport(error.kind()).into()
}
