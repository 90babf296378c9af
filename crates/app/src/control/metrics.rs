//! Figures for Prometheus, in the form that it asks for.

use serde::{Serialize, Serializer};

/// How figures are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsForm {
    /// As OpenMetrics text.
    #[default]
    Text,
    /// As messages of protobuf, with native histograms.
    Protobuf,
}

/// Figures as they are written.
#[derive(Clone, Debug)]
pub enum MetricsText {
    Text(String),
    Protobuf(Vec<u8>),
}

/// Only text can be in JSON; no request asks for the other with it.
impl Serialize for MetricsText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Protobuf(bytes) => serializer.serialize_bytes(bytes),
        }
    }
}
