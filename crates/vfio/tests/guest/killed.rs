//! A client that is killed at any byte of any message: between it and the function stands a relay
//! that cuts the connection there.

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use flashyard_host::vfio::{Guest, GuestError, GuestOptions, VfioClient};
use flashyard_nvme::vfio_user::Header;
use flashyard_runtime::unix::UnixStream;
use flashyard_testbed::{BLOCK, pattern};

use super::endings::{busy, connected, slow, works};
use super::{Site, range, rounds, run};

/// Where the connection is cut: before this message of the client, or within it.
#[derive(Clone, Copy)]
struct Cut {
    message: usize,
    /// Bytes of it that the function still gets, of its descriptors all or none; if there are as
    /// many.
    bytes: usize,
}

/// Passes messages on until the cut; gives how many of the client's there were.
async fn relay(site: Site, client: UnixStream, function: PathBuf, cut: Option<Cut>) -> usize {
    let function = UnixStream::connect(&site.rt, &function).expect("it listens");
    let mut messages = 0;
    while let Some(message) = pass(&client, &function, messages, cut).await {
        messages += 1;
        if message.no_reply {
            continue;
        }
        if pass(&function, &client, 0, None).await.is_none() {
            break;
        }
    }
    messages
}

/// Passes one message on. `None` if there is none, or if it is cut.
async fn pass(
    from: &UnixStream,
    to: &UnixStream,
    number: usize,
    cut: Option<Cut>,
) -> Option<Header> {
    let mut message = Vec::new();
    let came = from.recv_message(&mut message, Header::message_len).await;
    let fds = came.ok()??;
    let header = Header::decode(message.first_chunk()?).ok()?;
    let fds: Vec<_> = fds.as_slice().iter().map(AsFd::as_fd).collect();
    let cut = cut.filter(|cut| cut.message == number);
    let part = cut.map_or(message.len(), |cut| cut.bytes.min(message.len()));
    to.send(&message[..part], &fds).await.ok()?;
    cut.is_none().then_some(header)
}

/// Starts a machine whose messages go over a relay, and has it work; it fails where that is cut.
/// Gives how many messages there were.
async fn life(site: &Site, function: &Path, cut: Option<Cut>) -> usize {
    let path = site.scratch.join("relay.sock");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a free path");
    let machine = {
        let (site, path) = (site.clone(), path.clone());
        site.rt
            .clone()
            .spawn(async move { live(&site, &path).await })
    };
    // The machine connects when it begins, and nothing else is done until then.
    site.rt.turn_end().await;
    let (client, _) = listener.accept().expect("the machine");
    let client = UnixStream::new(&site.rt, client).expect("a real machine");
    let messages = relay(site.clone(), client, function.to_owned(), cut).await;
    let lived = machine.await;
    assert_eq!(lived.is_ok(), cut.is_none(), "{:?}", lived.err());
    messages
}

async fn live(site: &Site, path: &Path) -> Result<(), GuestError> {
    let options = GuestOptions {
        shadow: true,
        ..GuestOptions::SMALL
    };
    let mut guest = Guest::start(&site.rt, path, options).await?;
    let block = pattern(1, BLOCK as usize);
    guest.write((1, 1), range(0, 1), (0, &block)).await?;
    guest.disable().await?;
    guest.unmap_memory().await?;
    guest.map_memory().await?;
    guest.enable().await?;
    guest.write((2, 1), range(0, 1), (0, &block)).await
}

#[test]
fn a_client_that_is_killed_at_any_message_leaves_nothing_to_the_next_one() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let (_other_function, other_path) = slow(&site);
        let mut other = site.guest(&other_path, GuestOptions::default()).await;
        busy(&mut other).await;
        let messages = life(&site, &path, None).await;
        assert!(messages > 40, "{messages} messages");
        for message in 0..messages {
            // Nothing of it, a byte, half a header, a header, and all of it without an answer.
            let places = [0, 1, 8, Header::LEN, usize::MAX];
            let some = places.len().min(rounds() as usize);
            for step in 0..some {
                let bytes = places[(message + step) % places.len()];
                freed(&site, &path).await;
                life(&site, &path, Some(Cut { message, bytes })).await;
            }
            if message % 8 == 0 {
                freed(&site, &path).await;
                let mut next = connected(&site, &path).await;
                works(&mut next, message as u64).await;
            }
        }
    });
}

/// Waits until the function has noticed that its client has gone: it talks to another one.
async fn freed(site: &Site, path: &Path) {
    while VfioClient::connect(&site.rt, path).await.is_err() {
        site.rt.turn_end().await;
    }
}
