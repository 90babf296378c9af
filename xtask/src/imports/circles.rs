//! Strongly connected parts of a graph of files.

use std::collections::{BTreeMap, BTreeSet};

/// The largest set of files of which each leads to each other, sorted; of several the first. One
/// file is no circle.
pub(crate) fn largest(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let forwards: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|file| (file.as_str(), reach(edges, file)))
        .collect();
    let mut best: Vec<String> = Vec::new();
    for (file, reached) in &forwards {
        let circle: Vec<String> = reached
            .iter()
            .filter(|other| forwards.get(*other).is_some_and(|back| back.contains(file)))
            .map(|other| (*other).to_owned())
            .collect();
        if circle.len() > best.len().max(1) {
            best = circle;
        }
    }
    best
}

/// Every file that can be reached from `file` in one step or more.
fn reach<'a>(edges: &'a BTreeMap<String, BTreeSet<String>>, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![file];
    while let Some(next) = open.pop() {
        for other in edges.get(next).into_iter().flatten() {
            if reached.insert(other.as_str()) {
                open.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_circle_is_found() {
        let edges = [
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "d"),
            ("d", "e"),
            ("e", "d"),
            ("f", "a"),
        ];
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            graph.entry(from.into()).or_default().insert(to.into());
        }
        assert_eq!(largest(&graph), ["a", "b", "c"]);
        graph.remove("b");
        assert_eq!(largest(&graph), ["d", "e"]);
        graph.remove("d");
        assert_eq!(largest(&graph), Vec::<String>::new());
    }
}
