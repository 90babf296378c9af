//! Operations in flight. The table owns the operation with its buffers until the driver reports its end; the
//! future holds only a ticket. Dropping the future asks the driver to cancel and leaves the buffers where they
//! are until the kernel has let go of them, so nothing can be freed too early.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::{Buf, Chunk, Gather};

/// A receive into the shared ring.
#[derive(Debug)]
pub struct RecvOp {}

impl Future for RecvOp {
    type Output = io::Result<Chunk>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}

/// A receive into a given buffer.
#[derive(Debug)]
pub struct RecvIntoOp {}

impl Future for RecvIntoOp {
    type Output = (io::Result<usize>, Buf);
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}

/// A gathered send.
#[derive(Debug)]
pub struct SendOp {}

impl Future for SendOp {
    type Output = (io::Result<()>, Gather);
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}

/// A file read or write: bytes moved, and the buffer back.
#[derive(Debug)]
pub struct TransferOp {}

impl Future for TransferOp {
    type Output = (io::Result<usize>, Buf);
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}

/// A file operation without payload.
#[derive(Debug)]
pub struct ControlOp {}

impl Future for ControlOp {
    type Output = io::Result<()>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}
