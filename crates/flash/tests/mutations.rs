//! Profiles, changed by chance.

mod parsers;

#[test]
fn no_profile_panics() {
    flashyard_corpus::try_all("profile", 1500, parsers::profile);
}
