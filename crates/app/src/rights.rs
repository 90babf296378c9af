//! Messages that bring open files to another process (SCM_RIGHTS, unix(7)).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most files of one message; the kernel takes 253.
pub const FILES_MOST: usize = 128;

/// Sends one message with files, at most [`FILES_MOST`], over a connected socket.
pub fn send(socket: impl AsFd, message: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::ArgumentListTooLong.into());
    }
    let parts = [IoSlice::new(message)];
    // A process that was stopped and goes on is interrupted where a time limit is set.
    retry_on_intr(|| sendmsg(&socket, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one message and its files. One of no length is the end of the connection; one that does
/// not fit is an error.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(into)];
    let received =
        retry_on_intr(|| recvmsg(&socket, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            files.extend(more);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((received.bytes, files))
}
