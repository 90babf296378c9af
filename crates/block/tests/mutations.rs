//! Metadata of pools and arrays, and headers of what is encrypted, changed by chance.

mod parsers;

#[test]
fn no_metadata_of_a_pool_panics() {
    flashyard_corpus::try_all("pool", 250, parsers::pool);
}

#[test]
fn no_header_of_an_encrypted_device_panics() {
    flashyard_corpus::try_all("crypt", 1000, parsers::crypt);
}

#[test]
fn no_record_of_an_array_panics() {
    flashyard_corpus::try_all("array", 400, parsers::array);
}

#[test]
fn no_keys_of_an_encrypted_pool_panic() {
    flashyard_corpus::try_all("pool_keys", 40, parsers::pool_keys);
}
