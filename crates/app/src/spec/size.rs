//! A size as it is written in files, on the command line and in JSON.

use std::borrow::Cow;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use crate::units::{SIZE, UnitError};

/// A size in bytes, written with its unit in files and shown as bytes in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "u64")]
pub struct Size(pub u64);

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl FromStr for Size {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        SIZE.parse(text).map(Self)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(of: &mut SchemaGenerator) -> Schema {
        SIZE.schema("integer", of)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        SIZE.read(value).map(Self)
    }
}
