//! Descriptors that are not what the function asks for. Closing the last one of a socket that
//! lingers waits for its peer; the core must not.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use flashyard_host::vfio::{GuestOptions, VfioClient};
use flashyard_nvme::vfio_user::{
    DMA_READ, DmaMap, DmaUnmap, IrqAction, IrqData, Request, SetIrqs, pci::MSIX,
};
use flashyard_runtime::unix::UnixStream;
use flashyard_time::Duration;

use super::hostile::works;
use super::{Site, run};

/// Whoever closes it last waits as long as a test may take: it has sent what nobody receives.
struct Lingering {
    socket: OwnedFd,
    peer: TcpStream,
}

fn lingering() -> Lingering {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("it is bound");
    let mut socket = TcpStream::connect(addr).expect("it listens");
    let (peer, _) = listener.accept().expect("connected");
    socket.set_nonblocking(true).expect("a socket");
    while socket.write(&[0; 16384]).is_ok() {}
    let long = Some(std::time::Duration::from_hours(1));
    rustix::net::sockopt::set_socket_linger(&socket, long).expect("a socket");
    let socket = socket.into();
    Lingering { socket, peer }
}

fn requests() -> [Request<'static>; 3] {
    let map = DmaMap {
        flags: DMA_READ,
        offset: 0,
        address: 0x1000,
        size: 0x1000,
    };
    let set = SetIrqs {
        index: MSIX,
        start: 0,
        count: 1,
        action: IrqAction::Trigger,
        data: IrqData::EventFds,
    };
    // The last one brings descriptors that it has no use for.
    [
        Request::DmaMap(map),
        Request::SetIrqs(set),
        Request::DeviceInfo,
    ]
}

async fn connected(site: &Site, path: &Path) -> VfioClient {
    loop {
        match VfioClient::connect(&site.rt, path).await {
            Ok(client) => return client,
            Err(_) => site.rt.sleep(Duration::from_ms(1)).await,
        }
    }
}

/// In any message, beyond what a message may bring, in one that is not read any more, and from a
/// client that is not let in.
#[test]
fn what_takes_long_to_close_holds_up_nobody_else() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let (_other_function, other_path) = site.offer("a");
        let mut other = site.guest(&other_path, GuestOptions::default()).await;
        let mut peers = Vec::new();
        for request in requests() {
            let mut client = connected(&site, &path).await;
            let one = lingering();
            // Nobody else has it while it is on its way.
            let sent = client.send(&request.encode(1), &[one.socket.as_fd()]).await;
            sent.expect("sent");
            drop(one.socket);
            peers.push(one.peer);
            assert!(client.reply().await.is_err(), "refused");
            works(&mut other, 1).await;
        }
        let client = connected(&site, &path).await;
        let (one, others) = (lingering(), memory());
        let mut many = vec![others.as_fd(); 200];
        many.push(one.socket.as_fd());
        let message = Request::DeviceInfo.encode(1);
        client.send(&message, &many).await.expect("sent");
        drop(one.socket);
        peers.push(one.peer);
        works(&mut other, 2).await;
        // A client that is not let in, and that goes before its message is read.
        for _ in 0..2 {
            let stranger = UnixStream::connect(&site.rt, &path).expect("it listens");
            let one = lingering();
            let sent = stranger.send(&message, &[one.socket.as_fd()]).await;
            sent.expect("sent");
            drop((one.socket, stranger));
            peers.push(one.peer);
            works(&mut other, 3).await;
        }
        drop(peers);
        drop(client);
        // What was left has ended with its peers, so the function takes a client again.
        let mut next = connected(&site, &path).await;
        next.region(0).await.expect("it answers");
    });
}

/// What is unmapped takes addresses until it is: a client that maps faster waits, and is served.
#[test]
fn memory_that_comes_and_goes_is_mapped_when_there_are_addresses() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut client = connected(&site, &path).await;
        let (all, file) = (
            4 << 40,
            flashyard_runtime::shared_memory::memory_file(4 << 40),
        );
        let file = file.expect("a memfd without pages");
        let (map, unmap) = (
            Request::DmaMap(DmaMap {
                flags: DMA_READ,
                offset: 0,
                address: 0,
                size: all,
            }),
            Request::DmaUnmap(DmaUnmap {
                argsz: 24,
                flags: 0,
                address: 0,
                size: all,
            }),
        );
        for round in 0..200 {
            let mapped = client.ask(&map, &[file.as_fd()]).await;
            assert!(mapped.is_ok(), "{round}: {mapped:?}");
            client.ask(&unmap, &[]).await.expect("it is mapped");
        }
    });
}

fn memory() -> OwnedFd {
    flashyard_runtime::shared_memory::memory_file(4096).expect("a memfd")
}
