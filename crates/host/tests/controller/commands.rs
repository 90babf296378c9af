//! What the controller answers to each command, and what it does wrong on request.

use std::rc::Rc;

use flashyard_nvme::command::{AdminOpcode, IoOpcode, Status};
use flashyard_nvme::fabrics::{Capabilities, Property};
use flashyard_nvme::identify::{
    Cns, IDENTIFY_LEN, IdentifyController, IdentifyNamespace, encode_namespace_list,
};
use flashyard_nvme::log::LogId;
use flashyard_nvme::tcp::{C2HData, CapsuleCmd, MAX_HEADER, R2T};
use flashyard_nvme::{CompletionQueueEntry, Sgl, SubmissionQueueEntry};

use super::{BLOCK, CNTLID, Connection, Controller, Mischief};

impl Connection {
    pub(super) fn fabrics(&self, controller: &Controller, entry: &SubmissionQueueEntry) {
        let answer = CompletionQueueEntry::new(entry.cid(), Status::SUCCESS);
        let kind = entry.fabrics_type().0;
        let answer = match kind {
            0x00 => answer,
            0x01 => {
                self.admin.set(entry.cdw10() >> 16 == 0);
                match controller.connect_status.get() {
                    None => answer.with_dw0(u32::from(CNTLID)),
                    Some((status, dw0)) => {
                        CompletionQueueEntry::new(entry.cid(), status).with_dw0(dw0)
                    }
                }
            }
            _ => answer.with_value(match Property::at(entry.property_offset()) {
                Some(Property::Capabilities) => {
                    let capabilities = Capabilities {
                        mqes: controller.mqes.get(),
                        cqr: true,
                        to: 4,
                        css: 1,
                        ..Capabilities::default()
                    };
                    capabilities.bits()
                }
                // Ready, and shut down as soon as the host asks.
                Some(Property::Status) => 0x9,
                _ => 0,
            }),
        };
        self.push_answer(answer);
    }

    pub(super) fn admin_command(
        self: &Rc<Self>,
        controller: &Controller,
        entry: &SubmissionQueueEntry,
    ) {
        let success = CompletionQueueEntry::new(entry.cid(), Status::SUCCESS);
        if controller.mischief.get() == Mischief::Dead {
            return;
        }
        match entry.admin_opcode() {
            AdminOpcode::IDENTIFY => {
                let mut page = [0; IDENTIFY_LEN];
                match Cns(entry.cdw10() as u8) {
                    Cns::CONTROLLER => identify(controller).encode(&mut page),
                    Cns::NAMESPACE if entry.nsid() == 1 => namespace(controller).encode(&mut page),
                    Cns::NAMESPACE_DESCRIPTORS => {
                        controller.identity.borrow().descriptors.encode(&mut page)
                    }
                    Cns::ACTIVE_NAMESPACES => {
                        encode_namespace_list((entry.nsid() < 1).then_some(1), &mut page)
                    }
                    _ => {}
                }
                self.push_read(entry, &page, false);
                self.push_answer(success);
            }
            AdminOpcode::GET_LOG_PAGE => {
                let mut page = vec![0; sgl_length(entry) as usize];
                if entry.cdw10() as u8 == LogId::CHANGED_NAMESPACES.0 {
                    for (place, nsid) in page
                        .as_chunks_mut()
                        .0
                        .iter_mut()
                        .zip(controller.changed.borrow_mut().drain(..))
                    {
                        *place = nsid.to_le_bytes();
                    }
                }
                self.push_read(entry, &page, false);
                self.push_answer(success);
            }
            AdminOpcode::SET_FEATURES => self.push_answer(success.with_dw0(entry.cdw11())),
            AdminOpcode::ASYNC_EVENT_REQUEST => {
                *controller.event.borrow_mut() = Some((Rc::clone(self), entry.cid()));
            }
            AdminOpcode::KEEP_ALIVE => {
                controller.keep_alives.set(controller.keep_alives.get() + 1);
                self.push_answer(success);
            }
            AdminOpcode::ABORT => {
                controller.aborts.set(controller.aborts.get() + 1);
                self.push_answer(success);
            }
            _ => self.push_answer(CompletionQueueEntry::new(
                entry.cid(),
                Status::INVALID_OPCODE,
            )),
        }
    }

    pub(super) fn io(&self, controller: &Controller, command: &CapsuleCmd, data: &[u8]) -> bool {
        let entry = &command.entry;
        let cid = entry.cid();
        let success = CompletionQueueEntry::new(cid, Status::SUCCESS);
        controller
            .seen
            .borrow_mut()
            .push((entry.io_opcode(), entry.fuse()));
        controller.entries.borrow_mut().push(*entry);
        match controller.mischiefs_left.get().checked_sub(1) {
            Some(left) => controller.mischiefs_left.set(left),
            None => controller.mischief.set(Mischief::None),
        }
        let read = entry.io_opcode() == IoOpcode::READ;
        let length = if entry.lba_range().is_some() && read {
            sgl_length(entry)
        } else {
            0
        };
        match controller.mischief.get() {
            Mischief::NoAnswer | Mischief::Dead => return true,
            Mischief::Refuse(bits) => {
                self.push_answer(CompletionQueueEntry::new(cid, Status::from_bits(bits)));
                return true;
            }
            Mischief::AnswerTwice => {
                self.push_read(entry, &vec![0; length as usize], false);
                self.push_answer(success);
                self.push_answer(success);
                return true;
            }
            Mischief::UnknownCid => {
                self.push_answer(CompletionQueueEntry::new(cid ^ 0x1000, Status::SUCCESS));
                return true;
            }
            Mischief::NoData => {
                self.push_answer(success);
                return true;
            }
            Mischief::DataBeyondStart => {
                self.push_data(
                    C2HData {
                        cccid: cid,
                        datao: 4,
                        datal: 4,
                        last: true,
                        success: false,
                    },
                    &[0; 4],
                );
                return true;
            }
            Mischief::TooMuchData => {
                let datal = length + 4;
                let header = C2HData {
                    cccid: cid,
                    datao: 0,
                    datal,
                    last: true,
                    success: false,
                };
                self.push_data(header, &vec![0; datal as usize]);
                return true;
            }
            Mischief::DataForWrite => {
                self.push_data(
                    C2HData {
                        cccid: cid,
                        datao: 0,
                        datal: 4,
                        last: true,
                        success: true,
                    },
                    &[0; 4],
                );
                return true;
            }
            Mischief::TransferForRead => {
                self.push(&R2T {
                    cccid: cid,
                    ttag: 1,
                    r2to: 0,
                    r2tl: 4,
                });
                return true;
            }
            Mischief::TransferBeyondEnd => {
                let r2tl = sgl_length(entry) + 1;
                self.push(&R2T {
                    cccid: cid,
                    ttag: 1,
                    r2to: 0,
                    r2tl,
                });
                return true;
            }
            Mischief::HalfAnswer => {
                self.push_answer(success);
                self.output.borrow_mut().truncate(12);
                return false;
            }
            Mischief::WrongDirection => {
                let mut pdu = [0; MAX_HEADER];
                let length = command.encode(self.how.get(), &mut pdu);
                self.output.borrow_mut().extend_from_slice(&pdu[..length]);
                return true;
            }
            Mischief::BadLength => {
                self.push_answer(success);
                let mut output = self.output.borrow_mut();
                let at = output.len() - 20;
                output[at] = 0xff;
                return true;
            }
            _ => {}
        }
        match entry.io_opcode() {
            IoOpcode::READ => self.read(controller, entry),
            IoOpcode::WRITE | IoOpcode::COMPARE if matches!(entry.sgl(), Sgl::Transport { .. }) => {
                let r2t = Self::next_transfer(controller, entry, 0);
                self.transfers.borrow_mut().push((*entry, Vec::new()));
                self.push(&r2t);
            }
            _ => self.store(controller, entry, data),
        }
        if controller.mischief.get() == Mischief::DamageHeader {
            let mut output = self.output.borrow_mut();
            let at = output.len() - 1;
            output[at] ^= 1;
        }
        true
    }

    fn read(&self, controller: &Controller, entry: &SubmissionQueueEntry) {
        let range = entry.lba_range().expect("a range");
        let at = range.slba as usize * BLOCK;
        let bytes = controller.storage.borrow()[at..at + range.blocks as usize * BLOCK].to_vec();
        let mischief = controller.mischief.get();
        if let Mischief::DataInPieces(size) = mischief {
            for (index, piece) in bytes.chunks(size as usize).enumerate() {
                let datao = index as u32 * size;
                let last = datao as usize + piece.len() == bytes.len();
                let header = C2HData {
                    cccid: entry.cid(),
                    datao,
                    datal: piece.len() as u32,
                    last,
                    success: false,
                };
                self.push_data(header, piece);
            }
        } else {
            self.push_read(entry, &bytes, mischief == Mischief::SuccessFlag);
            if mischief == Mischief::DamageData {
                let mut output = self.output.borrow_mut();
                let at = output.len() - 10;
                output[at] ^= 1;
            }
        }
        if mischief != Mischief::SuccessFlag {
            self.push_answer(CompletionQueueEntry::new(entry.cid(), Status::SUCCESS));
        }
    }

    pub(super) fn store(&self, controller: &Controller, entry: &SubmissionQueueEntry, data: &[u8]) {
        let mut status = Status::SUCCESS;
        if let (false, Some(range)) = (data.is_empty(), entry.lba_range()) {
            let at = range.slba as usize * BLOCK;
            let mut storage = controller.storage.borrow_mut();
            match entry.io_opcode() {
                IoOpcode::WRITE => storage[at..at + data.len()].copy_from_slice(data),
                IoOpcode::COMPARE if storage[at..at + data.len()] != *data => {
                    status = Status::COMPARE_FAILURE
                }
                _ => {}
            }
        }
        if entry.io_opcode() == IoOpcode::WRITE_ZEROES {
            let range = entry.lba_range().expect("a range");
            let at = range.slba as usize * BLOCK;
            controller.storage.borrow_mut()[at..at + range.blocks as usize * BLOCK].fill(0);
        }
        self.push_answer(CompletionQueueEntry::new(entry.cid(), status));
    }
}

pub(super) fn sgl_length(entry: &SubmissionQueueEntry) -> u32 {
    match entry.sgl() {
        Sgl::Transport { length } | Sgl::InCapsule { length, .. } => length,
        _ => 0,
    }
}

fn identify(controller: &Controller) -> IdentifyController {
    IdentifyController {
        cntlid: CNTLID,
        kas: 1,
        fuses: 1,
        mdts: 8,
        sgls: 1 | IdentifyController::SGLS_OFFSET | IdentifyController::SGLS_TRANSPORT,
        ioccsz: controller.ioccsz.get(),
        iorcsz: 1,
        oaes: 1 << 8,
        maxcmd: 128,
        oncs: IdentifyController::ONCS_DATASET_MANAGEMENT | IdentifyController::ONCS_WRITE_ZEROES,
        vwc: 1,
        crdt1: controller.retry_delays.get()[0],
        crdt2: controller.retry_delays.get()[1],
        crdt3: controller.retry_delays.get()[2],
        ..IdentifyController::default()
    }
}

fn namespace(controller: &Controller) -> IdentifyNamespace {
    let blocks = controller.blocks.get();
    let identity = controller.identity.borrow();
    let mut namespace = IdentifyNamespace {
        nguid: identity.nguid,
        eui64: identity.eui64,
        nsze: blocks,
        ncap: blocks,
        nuse: blocks,
        ..IdentifyNamespace::default()
    };
    namespace.lbaf[0].lbads = 9 + identity.larger_blocks;
    namespace
}
