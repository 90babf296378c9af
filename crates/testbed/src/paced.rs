//! A device in front of another one that decides when each I/O is passed on: it sets speeds for
//! experiments and tests.

use std::future::Future;
use std::rc::Rc;

use flashyard_block::{Device, Health, Info, Io, IoFuture, SharedDevice, Tag};

/// Passes an I/O on to `device` when the future has ended that `pace` gives for it.
pub struct Paced<P> {
    device: SharedDevice,
    pace: P,
}

impl<P, W> Paced<P>
where
    P: Fn(Tag, &Io) -> W,
    W: Future<Output = ()> + 'static,
{
    /// A device before `device`. `pace` is called when an I/O comes.
    pub fn new(device: SharedDevice, pace: P) -> Self {
        Self { device, pace }
    }
}

impl<P, W> Device for Paced<P>
where
    P: Fn(Tag, &Io) -> W,
    W: Future<Output = ()> + 'static,
{
    fn info(&self) -> Info {
        self.device.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let (pace, device) = ((self.pace)(tag, &io), Rc::clone(&self.device));
        IoFuture::boxed(async move {
            pace.await;
            device.submit(tag, io).await
        })
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
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use flashyard_runtime::sim::{Config, World};
    use flashyard_runtime::{Buf, Data};
    use flashyard_sched::Op;
    use flashyard_time::Duration;

    use super::*;
    use flashyard_block::{DeviceExt, MemoryDevice};

    #[test]
    fn each_kind_of_io_is_reported_and_done_when_its_time_has_come() {
        let world = World::new(Config::calm(1));
        let machine = world.machine(1);
        world.run(&machine, |rt| async move {
            let memory = Rc::new(MemoryDevice::new(512, 1 << 20).expect("a good size"));
            let calls: Rc<RefCell<Vec<_>>> = Rc::default();
            let (clock, list) = (rt.clone(), Rc::clone(&calls));
            let paced = Paced::new(memory.clone(), move |_, io: &Io| {
                list.borrow_mut().push((io.op(), io.lba(), io.transfers()));
                clock.sleep(Duration::from_ms(io.lba()))
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
            assert_eq!(*calls.borrow(), all);
            let took = rt.now().since(begun);
            assert_eq!(took.as_ms(), 7, "{took}");
        });
    }
}
