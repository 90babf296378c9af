//! The client of a vfio-user socket: one request at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use flashyard_nvme::vfio_user::{
    Capabilities, DMA_READ, DMA_WRITE, DmaMap, DmaUnmap, Header, IrqAction, IrqData, IrqInfo,
    Malformed, RegionAccess, RegionInfo, Reply, Request, SetIrqs, Version,
};
use flashyard_runtime::Rt;
use flashyard_runtime::unix::UnixStream;

/// Why a request has failed.
#[derive(Debug)]
pub enum ClientError {
    /// The socket.
    Io(io::Error),
    /// The server has closed the connection.
    Closed,
    /// The server refuses: `errno`.
    Refused(u32),
    /// The reply is not one, or that of another request.
    Reply,
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Malformed> for ClientError {
    fn from(_: Malformed) -> Self {
        Self::Reply
    }
}

/// One connection.
pub struct VfioClient {
    stream: UnixStream,
    next: u16,
    /// The last reply.
    message: Vec<u8>,
    /// The descriptors beside it.
    beside: Vec<OwnedFd>,
}

impl VfioClient {
    /// Connects to the socket at `path` and agrees on a version.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn connect(rt: &Rt, path: &Path) -> Result<Self, ClientError> {
        let mut client = Self::silent(rt, path)?;
        let proposed = Capabilities {
            descriptors: Some(8),
            data: Some(1 << 20),
            maps: Some(64),
            page_sizes: Some(4096),
        };
        let version = Version {
            major: 0,
            minor: 0,
            text: &proposed.text(),
        };
        match client.ask(&Request::Version(version), &[]).await? {
            Reply::Version(Version { major: 0, .. }) => Ok(client),
            _ => Err(ClientError::Reply),
        }
    }

    /// Connects and says nothing.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn silent(rt: &Rt, path: &Path) -> Result<Self, ClientError> {
        Ok(Self {
            stream: UnixStream::connect(rt, path)?,
            next: 0,
            message: Vec::new(),
            beside: Vec::new(),
        })
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ask(
        &mut self,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Reply<'_>, ClientError> {
        self.next = self.next.wrapping_add(1);
        self.stream.send(&request.encode(self.next), fds).await?;
        self.reply().await
    }

    /// Sends any bytes, with descriptors beside them.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub async fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        Ok(self.stream.send(bytes, fds).await?)
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reply(&mut self) -> Result<Reply<'_>, ClientError> {
        let message = &mut self.message;
        let came = self
            .stream
            .recv_message(message, Header::message_len)
            .await?;
        self.beside = came.ok_or(ClientError::Closed)?.take();
        let (head, payload) = message.split_first_chunk().ok_or(ClientError::Reply)?;
        match Reply::decode(&Header::decode(head)?, payload)? {
            Reply::Error(_, errno) => Err(ClientError::Refused(errno)),
            reply => Ok(reply),
        }
    }

    /// Gives the function `size` bytes of `memory` from `offset` on, at a guest address.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn map(
        &mut self,
        memory: &OwnedFd,
        (offset, address, size): (u64, u64, u64),
    ) -> Result<(), ClientError> {
        let map = DmaMap {
            flags: DMA_READ | DMA_WRITE,
            offset,
            address,
            size,
        };
        let fds = [memory.as_fd()];
        self.ask(&Request::DmaMap(map), &fds).await.map(drop)
    }

    /// Takes memory back.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn unmap(&mut self, address: u64, size: u64) -> Result<(), ClientError> {
        let unmap = DmaUnmap {
            argsz: 24,
            flags: 0,
            address,
            size,
        };
        self.ask(&Request::DmaUnmap(unmap), &[]).await.map(drop)
    }

    /// What a region is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn region(&mut self, index: u32) -> Result<RegionInfo, ClientError> {
        let argsz = 4096;
        let request = Request::RegionInfo { argsz, index };
        match self.ask(&request, &[]).await? {
            Reply::Region(info) => Ok(info),
            _ => Err(ClientError::Reply),
        }
    }

    /// What a region is, and the file by which parts of it can be mapped.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn region_file(
        &mut self,
        index: u32,
    ) -> Result<(RegionInfo, Option<OwnedFd>), ClientError> {
        let info = self.region(index).await?;
        Ok((info, self.beside.pop()))
    }

    /// What a kind of interrupt is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn irq(&mut self, index: u32) -> Result<IrqInfo, ClientError> {
        match self.ask(&Request::IrqInfo { index }, &[]).await? {
            Reply::Irq(info) => Ok(info),
            _ => Err(ClientError::Reply),
        }
    }

    /// Gives the function an eventfd for one interrupt.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_eventfd(
        &mut self,
        (index, number): (u32, u32),
        eventfd: BorrowedFd<'_>,
    ) -> Result<(), ClientError> {
        let set = SetIrqs {
            index,
            start: number,
            count: 1,
            action: IrqAction::Trigger,
            data: IrqData::EventFds,
        };
        self.ask(&Request::SetIrqs(set), &[eventfd]).await.map(drop)
    }

    /// Reads a region: 4 or 8 bytes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn read(&mut self, region: u32, offset: u64, size: u32) -> Result<u64, ClientError> {
        let access = RegionAccess {
            offset,
            region,
            count: size,
        };
        match self.ask(&Request::RegionRead(access), &[]).await? {
            Reply::RegionRead(_, data) if data.len() <= 8 => {
                let mut value = [0; 8];
                value[..data.len()].copy_from_slice(data);
                Ok(u64::from_le_bytes(value))
            }
            _ => Err(ClientError::Reply),
        }
    }

    /// Writes `bytes` to a region.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn write(
        &mut self,
        region: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let access = RegionAccess {
            offset,
            region,
            count: bytes.len() as u32,
        };
        self.ask(&Request::RegionWrite(access, bytes), &[])
            .await
            .map(drop)
    }

    /// Writes `bytes` to a region and does not wait until that is done, as QEMU does where a guest
    /// rings.
    ///
    /// # Errors
    /// The server has closed the connection.
    pub async fn post(
        &mut self,
        region: u32,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let access = RegionAccess {
            offset,
            region,
            count: bytes.len() as u32,
        };
        self.next = self.next.wrapping_add(1);
        let message = Request::RegionWrite(access, bytes).encode_posted(self.next);
        self.send(&message, &[]).await
    }
}
