//! What is wrong with a fault that a user asks for, in one line that says what may stand there.

use std::fmt;

use clap::ValueEnum;
use flashyard_time::Duration;

use super::fault::{FaultName, FaultOnName, LONGEST_DELAY, MOST_FAULTS};
use crate::units::UnitError;

/// What is wrong with a fault, and with which one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// More than a device may have.
    TooMany(usize),
    /// Not the name of a fault.
    Kind(String),
    /// Not a key with its value.
    Word(String),
    /// No key of a fault.
    Key(String),
    /// The value of a key.
    Value(String, UnitError),
    /// A rate that never hits, or more than always.
    Rate(FaultName),
    /// Every none, or not a number.
    Every(FaultName),
    /// How often it happens is said twice.
    RateAndEvery(FaultName),
    /// Not a kind of I/O.
    NoSuchOn(FaultName, String),
    /// I/Os that it cannot be for.
    On(FaultName, FaultOnName),
    /// A latency without a span.
    NeedsLatency,
    /// Together they delay an I/O by so much.
    Delay(Duration),
    /// It has no such key.
    HasNo(FaultName, &'static str),
    /// This bound is at so many bytes, and blocks have so many.
    Unaligned(FaultName, &'static str, u64, u32),
    /// From one byte to another that is not behind it.
    Empty(FaultName, u64, u64),
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(faults) => write!(f, "{faults} faults: give at most {MOST_FAULTS}"),
            Self::Kind(text) => write!(
                f,
                "`{text}` is no fault: begin with one of {}, and go on such as poison,rate=0.1%,on=read",
                FaultName::value_variants()
                    .iter()
                    .map(|kind| kind.name())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Self::Word(word) => write!(
                f,
                "`{word}` is no key with its value: write it like rate=0.1%"
            ),
            Self::Key(key) => write!(
                f,
                "a fault has no `{key}`: use rate, every, on, from, to, latency or spread"
            ),
            Self::Value(key, error) => write!(f, "{key}: {error}"),
            Self::Rate(kind) => write!(
                f,
                "{}: rate is out of range: give more than 0%, and 100% at most",
                kind.name()
            ),
            Self::Every(kind) => {
                write!(
                    f,
                    "{}: every must be a whole number, 1 at least",
                    kind.name()
                )
            }
            Self::RateAndEvery(kind) => {
                write!(f, "{}: give either `rate` or `every`", kind.name())
            }
            Self::NoSuchOn(kind, text) => write!(
                f,
                "{}: on is `{text}`: give {}",
                kind.name(),
                kind.possible_on().join(" or ")
            ),
            Self::On(kind, on) => write!(
                f,
                "{}: on is `{}`: it can only be {}",
                kind.name(),
                on.name(),
                kind.possible_on().join(" or ")
            ),
            Self::NeedsLatency => f.write_str("latency: needs `latency`, a span such as 5ms"),
            Self::Delay(longest) => write!(
                f,
                "latency: an I/O would be delayed by up to {} s: give {} s at most, `latency` and `spread` of all faults \
                 together; `hang` holds it up until that is taken away",
                longest.as_us().div_ceil(1_000_000),
                LONGEST_DELAY.as_us() / 1_000_000
            ),
            Self::HasNo(kind, key) => write!(f, "{}: has no `{key}`", kind.name()),
            Self::Unaligned(kind, key, bytes, block) => write!(
                f,
                "{}: {key} is byte {bytes}: give a multiple of {block} bytes (the block size), such as 1GiB",
                kind.name()
            ),
            Self::Empty(kind, from, to) => write!(
                f,
                "{}: from byte {from} to byte {to} is nothing: `to` must be greater than `from`",
                kind.name()
            ),
        }
    }
}

impl std::error::Error for FaultError {}
