//! What an open-channel device keeps, changed by chance.

mod parsers;

use flashyard_corpus::try_all;

#[test]
fn no_layout_panics() {
    try_all("layout", 5000, parsers::layout);
}

#[test]
fn no_header_of_a_file_panics() {
    try_all("image_header", 600, parsers::header);
}

#[test]
fn no_head_record_or_layout_in_a_file_panics() {
    try_all("image", 60, parsers::image);
}
