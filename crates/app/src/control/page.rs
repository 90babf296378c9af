//! Long lists, part by part. A list is in the order of names, and a part begins behind a name: what
//! is there all the time is in exactly one part, whatever else comes and goes meanwhile.

use schemars::JsonSchema;
use serde::Serialize;

/// As many rows as a part of a list can have.
pub const LIMIT_MAX: usize = 1000;

/// Which part of a list; all of it if nothing is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<After = String> {
    /// As many as there may be in it.
    pub limit: Option<usize>,
    /// The last of the part before.
    pub after: Option<After>,
}

impl<After> Default for Page<After> {
    fn default() -> Self {
        Self {
            limit: None,
            after: None,
        }
    }
}

impl<After> Page<After> {
    /// The first part, as long as one can be. Whoever asks goes on to the others.
    pub fn first() -> Self {
        Self {
            limit: Some(LIMIT_MAX),
            after: None,
        }
    }

    /// The part of what is behind `after` already, with the name of each.
    pub fn take<T>(&self, rows: impl Iterator<Item = (String, T)>) -> Listed<T> {
        let Some(limit) = self.limit else {
            return Listed {
                rows: rows.map(|(_, row)| row).collect(),
                next: None,
            };
        };
        let mut found: Vec<(String, T)> = rows.take(limit.saturating_add(1)).collect();
        let next = match found.len() > limit {
            true => {
                found.truncate(limit);
                found.last().map(|(name, _)| name.clone())
            }
            false => None,
        };
        Listed {
            rows: found.into_iter().map(|(_, row)| row).collect(),
            next,
        }
    }
}

/// Which volumes; all of them if nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumesOf {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those in this pool.
    pub pool: Option<String>,
}

/// A list, or a part of one.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Listed<T> {
    pub rows: Vec<T>,
    /// If there is more, what the next part is behind.
    #[serde(skip)]
    pub next: Option<String>,
}

impl<T> From<Vec<T>> for Listed<T> {
    fn from(rows: Vec<T>) -> Self {
        Self { rows, next: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with their names.
    fn names(count: usize) -> impl Iterator<Item = (String, usize)> {
        (0..count).map(|number| (format!("n{number}"), number))
    }

    #[test]
    fn a_part_names_the_next_one_if_there_is_one() {
        let page = |limit| Page::<String> { limit, after: None };
        for (limit, rows, next) in [
            (None, 3, None),
            (Some(4), 3, None),
            (Some(3), 3, None),
            (Some(2), 2, Some("n1")),
            (Some(1), 1, Some("n0")),
        ] {
            let part = page(limit).take(names(3));
            assert_eq!(part.rows, (0..rows).collect::<Vec<_>>(), "{limit:?}");
            assert_eq!(part.next.as_deref(), next, "{limit:?}");
        }
        assert_eq!(page(Some(5)).take(names(0)).next, None);
    }
}
