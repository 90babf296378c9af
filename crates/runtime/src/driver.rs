//! The boundary between the executor and the two drivers.
