//! What a mapped pool has on its device, changed by chance.

mod parsers;

#[test]
fn no_bytes_of_a_pool_panic() {
    flashyard_corpus::try_all("logstore", 400, parsers::logstore);
}
