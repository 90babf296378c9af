//! Metadata of pools and headers of encrypted devices, changed by chance.

mod parsers;

#[test]
fn no_metadata_of_a_pool_panics() {
    flashyard_corpus::try_all("pool", 250, parsers::pool);
}

#[test]
fn no_header_of_an_encrypted_device_panics() {
    flashyard_corpus::try_all("crypt", 1000, parsers::crypt);
}
