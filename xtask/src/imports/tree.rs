//! The modules of a crate: which file each is in, what it defines, and what it brings into scope.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree};

/// A path of names, from the root of the crate.
pub(crate) type Names = Vec<String>;

/// All modules of a crate by their path; the root's is empty.
pub(crate) struct Tree {
    pub(crate) modules: BTreeMap<Names, Module>,
}

/// One module.
pub(crate) struct Module {
    /// Its file, relative to the crate's `src`.
    pub(crate) file: String,
    /// Names of items that it defines, modules not among them.
    pub(crate) defines: Vec<String>,
    /// Names that its `use` items bring into scope, and the path behind each, as written.
    pub(crate) brings: BTreeMap<String, Names>,
    /// Paths whose every name is brought into scope, as written.
    pub(crate) globs: Vec<Names>,
    /// Items that are neither modules nor made for tests.
    pub(crate) items: Vec<Item>,
}

impl Tree {
    /// Reads the crate in `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let source = folder.join("src");
        let root = ["lib.rs", "main.rs"]
            .iter()
            .map(|name| source.join(name))
            .find(|path| path.exists())
            .ok_or_else(|| format!("{} has neither lib.rs nor main.rs", source.display()))?;
        let mut tree = Self {
            modules: BTreeMap::new(),
        };
        tree.read_file(&source, &root, &source, Names::new())?;
        Ok(tree)
    }

    /// A crate out of texts: module path and source.
    #[cfg(test)]
    pub(crate) fn of(sources: &[(&str, &str)]) -> Self {
        let mut tree = Self {
            modules: BTreeMap::new(),
        };
        for (path, text) in sources {
            let names: Names = path
                .split("::")
                .filter(|name| !name.is_empty())
                .map(Into::into)
                .collect();
            let items = syn::parse_file(text)
                .expect("the test's source parses")
                .items;
            let mut outside = Vec::new();
            tree.add(&format!("{path}.rs"), names, items, &mut outside);
        }
        tree
    }

    /// Reads a module in a file of its own; `below` is where the files of its modules are.
    fn read_file(
        &mut self,
        source: &Path,
        file: &Path,
        below: &Path,
        names: Names,
    ) -> Result<(), String> {
        let text = fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let parsed = syn::parse_file(&text)
            .map_err(|error| format!("cannot parse {}: {error}", file.display()))?;
        let relative = file
            .strip_prefix(source)
            .unwrap_or(file)
            .display()
            .to_string();
        let mut outside = Vec::new();
        self.add(&relative, names.clone(), parsed.items, &mut outside);
        for inner in outside {
            let folder = inner[names.len()..inner.len() - 1]
                .iter()
                .fold(below.to_path_buf(), |path, name| path.join(name));
            let name = &inner[inner.len() - 1];
            let (path, folder) = file_of(&folder, name)?;
            self.read_file(source, &path, &folder, inner)?;
        }
        Ok(())
    }

    /// Adds a module and those within the same file; paths of modules in files of their own go to
    /// `outside`.
    fn add(&mut self, file: &str, names: Names, items: Vec<Item>, outside: &mut Vec<Names>) {
        let mut module = Module {
            file: file.to_owned(),
            defines: Vec::new(),
            brings: BTreeMap::new(),
            globs: Vec::new(),
            items: Vec::new(),
        };
        for item in items {
            if attributes(&item).iter().any(is_for_tests) {
                continue;
            }
            match item {
                Item::Mod(inner) => {
                    let mut path = names.clone();
                    path.push(inner.ident.to_string());
                    match inner.content {
                        Some((_, items)) => self.add(file, path, items, outside),
                        None => outside.push(path),
                    }
                }
                Item::Use(item) => module.bring(&mut Names::new(), &item.tree),
                item => {
                    module.defines.extend(name_of(&item));
                    module.items.push(item);
                }
            }
        }
        self.modules.insert(names, module);
    }
}

impl Module {
    fn bring(&mut self, before: &mut Names, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.bring(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.bring(before, tree);
                }
            }
            UseTree::Glob(_) => self.globs.push(before.clone()),
            UseTree::Name(name) => self.bring_as(before, &name.ident.to_string(), None),
            UseTree::Rename(rename) => self.bring_as(
                before,
                &rename.ident.to_string(),
                Some(rename.rename.to_string()),
            ),
        }
    }

    fn bring_as(&mut self, before: &Names, name: &str, alias: Option<String>) {
        let mut path = before.clone();
        if name != "self" {
            path.push(name.to_owned());
        }
        if let Some(last) = path.last() {
            let alias = alias.unwrap_or_else(|| last.clone());
            self.brings.insert(alias, path);
        }
    }
}

/// The file of module `name` of a module whose files are in `folder`, and where the files of its
/// own modules are.
fn file_of(folder: &Path, name: &str) -> Result<(PathBuf, PathBuf), String> {
    let beside = folder.join(format!("{name}.rs"));
    let within = folder.join(name);
    if beside.exists() {
        return Ok((beside, within));
    }
    let inside = within.join("mod.rs");
    if inside.exists() {
        return Ok((inside, within));
    }
    Err(format!(
        "no file for module `{name}` in {}",
        folder.display()
    ))
}

/// Whether this is `#[cfg(test)]`, or a condition that needs it.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Ok(list) = attribute.meta.require_list() else {
        return false;
    };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all (test"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
