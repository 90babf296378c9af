//! Reads any bytes as a message of vfio-user. Used by the tests here and by the fuzz target.

use flashyard_nvme::vfio_user::{Capabilities, Header, Reply, Request};

/// Reads `input` as a message in both directions: the first byte is the number of file descriptors
/// that come with it. What is read is written and read again, and has to be the same.
pub(crate) fn both_ways(input: &[u8]) {
    let Some((&descriptors, message)) = input.split_first() else {
        return;
    };
    let Some((head, payload)) = message.split_first_chunk() else {
        return;
    };
    let Ok(header) = Header::decode(head) else {
        return;
    };
    let descriptors = usize::from(descriptors);
    if let Ok(request) = Request::decode(&header, payload, descriptors) {
        if let Request::Version(version) = request {
            let said = Capabilities::read(version.text);
            assert_eq!(Capabilities::read(&said.text()), said);
        }
        let again = request.encode(header.id);
        let (head, payload) = again.split_first_chunk().expect("there is a header");
        let header = Header::decode(head).expect("written by us");
        assert_eq!(header.payload, payload.len());
        let read = Request::decode(&header, payload, descriptors);
        // Room in a reply is the client's own word; all else is kept.
        assert_eq!(read, Ok(request));
    }
    if let Ok(reply) = Reply::decode(&header, payload) {
        let again = reply.encode(header.id);
        let (head, payload) = again.split_first_chunk().expect("there is a header");
        let header = Header::decode(head).expect("written by us");
        assert_eq!(Reply::decode(&header, payload), Ok(reply));
    }
}
