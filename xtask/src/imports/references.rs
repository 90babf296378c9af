//! Which file of a crate refers to which: paths, resolved to where their item is defined.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::tree::{Module, Names, Tree};

/// Re-exports that are followed one after the other; more of them are a circle of their own.
const MOST_STEPS: usize = 32;

/// For each file of the crate, the files that it refers to.
pub(crate) fn imports(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (names, module) in &tree.modules {
        let own = edges.entry(module.file.clone()).or_default();
        for path in paths(module) {
            if let Some(file) = tree.defined_in(names, &path, MOST_STEPS)
                && *file != module.file
            {
                own.insert(file.to_owned());
            }
        }
    }
    edges
}

/// Every path in the module: those of its code, and what its `use` items name.
fn paths(module: &Module) -> BTreeSet<Names> {
    let mut collector = Collector(BTreeSet::new());
    for item in &module.items {
        collector.visit_item(item);
    }
    // A module that is only brought into scope is imported by the paths that begin with it:
    // `m::self` finds an item called `m`, and no module.
    let brought = module.brings.values();
    collector
        .0
        .extend(brought.map(|path| path.iter().cloned().chain(["self".into()]).collect()));
    collector.0
}

struct Collector(BTreeSet<Names>);

impl<'ast> Visit<'ast> for Collector {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.0.insert(names.collect());
        visit::visit_path(self, path);
    }

    // Who may see an item is no import.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

impl Tree {
    /// The file that defines what `path` means in module `within`; `None` for what is not of this
    /// crate, and for modules that are named and not used.
    fn defined_in(&self, within: &Names, path: &[String], steps: usize) -> Option<&str> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.below(&Names::new(), rest, steps),
            "self" => self.below(within, rest, steps),
            "super" => {
                let (_, parent) = within.split_last()?;
                match rest.first().map(String::as_str) {
                    Some("super") => self.defined_in(&parent.to_vec(), rest, steps),
                    _ => self.below(&parent.to_vec(), rest, steps),
                }
            }
            _ => self.below(within, path, steps),
        }
    }

    /// The same for names looked up in a module itself.
    fn below(&self, within: &Names, path: &[String], steps: usize) -> Option<&str> {
        let module = self.modules.get(within)?;
        let (first, rest) = path.split_first()?;
        let mut inner = within.clone();
        inner.push(first.clone());
        // A function may be called what a module is called: only the module has something below it.
        if !rest.is_empty() && self.modules.contains_key(&inner) {
            return self.below(&inner, rest, steps);
        }
        if module.defines.contains(first) {
            return Some(&module.file);
        }
        if let Some(behind) = module.brings.get(first) {
            let whole: Names = behind.iter().chain(rest).cloned().collect();
            // `use flashyard_x::y` and the like name no module of this crate.
            return (whole != path).then(|| self.defined_in(within, &whole, steps))?;
        }
        module.globs.iter().find_map(|glob| {
            let whole: Names = glob.iter().chain(path).cloned().collect();
            self.defined_in(within, &whole, steps.checked_sub(1)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refers(sources: &[(&str, &str)], file: &str, to: &[&str]) {
        let edges = imports(&Tree::of(sources));
        let found: Vec<&str> = edges[file].iter().map(String::as_str).collect();
        assert_eq!(found, to);
    }

    #[test]
    fn paths_lead_to_the_definition() {
        let sources = [
            ("", "pub use a::Thing; pub mod a; mod b;"),
            ("a", "pub struct Thing; pub fn make() -> Thing { Thing }"),
            (
                "b",
                "use crate::Thing; use super::a; fn f(_: Thing) { a::make(); }",
            ),
            ("c", "use super::b; use std::fmt; fn f() { fmt::format(); }"),
            ("d", "use super::a::*; fn f() -> Thing { make() }"),
            (
                "e",
                "pub(in crate::a) fn g() {} fn f() { crate::e::f(); self::f(); super::a::make() }",
            ),
        ];
        refers(&sources, ".rs", &["a.rs"]);
        refers(&sources, "b.rs", &["a.rs"]);
        refers(&sources, "c.rs", &[]);
        refers(&sources, "d.rs", &["a.rs"]);
        refers(&sources, "e.rs", &["a.rs"]);
    }

    #[test]
    fn a_function_and_a_module_of_one_name_are_distinguished() {
        let sources = [
            ("", "pub use a::a;"),
            ("a", "pub fn a() {} pub struct Thing;"),
            ("a::a", "pub struct Inner;"),
            ("b", "use crate::a; fn f(_: a::Thing) {}"),
            ("c", "use crate::a::a; fn f(_: a::Inner) {}"),
            ("d", "fn f() { crate::a::a() }"),
        ];
        refers(&sources, "b.rs", &["a.rs"]);
        refers(&sources, "c.rs", &["a::a.rs"]);
        refers(&sources, "d.rs", &["a.rs"]);
    }

    #[test]
    fn tests_do_not_count() {
        let sources = [
            ("a", "pub struct Thing;"),
            (
                "b",
                "#[cfg(test)] mod tests { use crate::a::Thing; fn f(_: Thing) {} }",
            ),
        ];
        refers(&sources, "b.rs", &[]);
    }

    #[test]
    fn re_exports_in_a_circle_end() {
        let sources = [
            ("a", "pub use super::b::Thing;"),
            ("b", "pub use super::a::Thing;"),
        ];
        refers(&sources, "a.rs", &[]);
    }
}
