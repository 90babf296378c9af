//! Tables of what a guest may do to a function, and of what it may not.

mod config_space;
mod interrupts;
mod prp;
mod queues;
mod registers;
mod shadow;
