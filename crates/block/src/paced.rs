//! A device before another one that decides when each I/O is passed on: speeds, for experiments and
//! tests.

use std::future::Future;
use std::rc::Rc;

use flashyard_runtime::{Buf, Data};
use flashyard_sched::Op;

use crate::{Device, Health, Info, IoFuture, SharedDevice, Tag};

/// An I/O that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// Whose it is.
    pub tag: Tag,
    /// What is to be done.
    pub op: Op,
    /// Its first block; 0 for a flush.
    pub lba: u64,
    /// Bytes that it transfers.
    pub bytes: usize,
}

/// Passes an I/O on to `device` when the future has ended that `pace` gives for it.
pub struct Paced<P> {
    device: SharedDevice,
    pace: P,
}

impl<P, W> Paced<P>
where
    P: Fn(Coming) -> W,
    W: Future<Output = ()> + 'static,
{
    /// A device before `device`. `pace` is called when an I/O comes.
    pub fn new(device: SharedDevice, pace: P) -> Self {
        Self { device, pace }
    }

    fn pass<T: Unpin + 'static>(
        &self,
        coming: Coming,
        act: impl FnOnce(&dyn Device) -> IoFuture<T> + 'static,
    ) -> IoFuture<T> {
        let (pace, device) = ((self.pace)(coming), Rc::clone(&self.device));
        IoFuture::boxed(async move {
            pace.await;
            act(&*device).await
        })
    }
}

impl<P, W> Device for Paced<P>
where
    P: Fn(Coming) -> W,
    W: Future<Output = ()> + 'static,
{
    fn info(&self) -> Info {
        self.device.info()
    }

    fn read(&self, tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        let coming = Coming {
            tag,
            op: Op::Read,
            lba,
            bytes: buf.len(),
        };
        self.pass(coming, move |device| device.read(tag, lba, buf))
    }

    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        let coming = Coming {
            tag,
            op: Op::Write,
            lba,
            bytes: buf.len(),
        };
        self.pass(coming, move |device| device.write(tag, lba, buf, fua))
    }

    fn flush(&self, tag: Tag) -> IoFuture<()> {
        let coming = Coming {
            tag,
            op: Op::Flush,
            lba: 0,
            bytes: 0,
        };
        self.pass(coming, move |device| device.flush(tag))
    }

    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        let coming = Coming {
            tag,
            op: Op::WriteZeroes,
            lba,
            bytes: 0,
        };
        self.pass(coming, move |device| {
            device.write_zeroes(tag, lba, blocks, deallocate)
        })
    }

    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        let coming = Coming {
            tag,
            op: Op::Deallocate,
            lba,
            bytes: 0,
        };
        self.pass(coming, move |device| device.deallocate(tag, lba, blocks))
    }

    fn health(&self) -> Health {
        self.device.health()
    }

    fn moved(&self) -> Option<u64> {
        self.device.moved()
    }

    fn is_blank(&self) -> bool {
        self.device.is_blank()
    }

    fn compare_and_write(
        &self,
        tag: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> IoFuture<()> {
        let coming = Coming {
            tag,
            op: Op::CompareAndWrite,
            lba,
            bytes: compare.len() + write.len(),
        };
        self.pass(coming, move |device| {
            device.compare_and_write(tag, lba, compare, write, fua)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use flashyard_runtime::sim::{Config, World};
    use flashyard_time::Duration;

    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn each_kind_of_io_is_told_and_done_when_its_time_has_come() {
        let world = World::new(Config::calm(1));
        let machine = world.machine(1);
        world.run(&machine, |rt| async move {
            let memory = Rc::new(MemoryDevice::new(512, 1 << 20).expect("a good size"));
            let told: Rc<RefCell<Vec<_>>> = Rc::default();
            let (clock, list) = (rt.clone(), Rc::clone(&told));
            let paced = Paced::new(memory.clone(), move |coming: Coming| {
                list.borrow_mut()
                    .push((coming.op, coming.lba, coming.bytes));
                clock.sleep(Duration::from_ms(coming.lba))
            });
            let (tag, begun) = (Tag::default(), rt.now());
            let buf = |byte| {
                let mut buf = Buf::take(512).expect("memory");
                buf.fill(byte);
                buf
            };
            assert_eq!(paced.info(), memory.info());
            assert_eq!(paced.is_blank(), memory.is_blank());
            assert_eq!(paced.write(tag, 1, buf(7), false).await, Ok(()));
            assert_eq!(
                paced.compare_and_write(tag, 1, buf(7), buf(8), true).await,
                Ok(())
            );
            let Ok(Data::Buf(read)) = paced.read(tag, 1, buf(0)).await else {
                panic!("what was written")
            };
            assert!(read.iter().all(|byte| *byte == 8));
            assert_eq!(paced.flush(tag).await, Ok(()));
            assert_eq!(paced.write_zeroes(tag, 1, 1, true).await, Ok(()));
            assert_eq!(paced.deallocate(tag, 2, 3).await, Ok(()));
            match paced.read(tag, 1, buf(9)).await {
                Ok(Data::Zeroes(bytes)) => assert_eq!(bytes, 512),
                Ok(Data::Buf(read)) => assert!(read.iter().all(|byte| *byte == 0)),
                Err(error) => panic!("{error:?}"),
            }
            let all = [
                (Op::Write, 1, 512),
                (Op::CompareAndWrite, 1, 1024),
                (Op::Read, 1, 512),
                (Op::Flush, 0, 0),
                (Op::WriteZeroes, 1, 0),
                (Op::Deallocate, 2, 0),
                (Op::Read, 1, 512),
            ];
            assert_eq!(*told.borrow(), all);
            let took = rt.now().since(begun);
            assert_eq!(took.as_ms(), 7, "{took}");
        });
    }
}
