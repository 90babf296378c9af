//! What is wrong, for whoever asked.

/// One line that says what is wrong and what to do.
pub type Fault = String;
