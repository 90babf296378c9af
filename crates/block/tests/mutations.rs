//! Metadata of pools, changed by chance.

mod parsers;

#[test]
fn no_metadata_of_a_pool_panics() {
    flashyard_corpus::try_all("pool", 250, parsers::pool);
}
