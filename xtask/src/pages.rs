//! Markdown pages: links and anchors lead somewhere, and the guide names every page.
//!
//! mdBook checks neither. What it shows, and a link that works in the repository, is what
//! `make install` has put beside each other; `tests/packaging.sh` looks at that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::tidy::Finding;

/// The contents of the guide.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Where its pages are.
const GUIDE: &str = "docs/";

/// What is to be known of a page.
#[derive(Default)]
struct Page {
    /// Where headings can be reached.
    anchors: BTreeSet<String>,
    /// Where links lead, and the lines that they stand in.
    links: Vec<(usize, String)>,
}

/// Everything wrong with the links of `texts`, pages by their names relative to `root`.
pub(crate) fn check(root: &Path, texts: &BTreeMap<String, String>) -> Vec<Finding> {
    let pages: BTreeMap<&str, Page> = texts
        .iter()
        .map(|(name, text)| (name.as_str(), Page::read(text)))
        .collect();
    let mut findings = Vec::new();
    for (&name, page) in &pages {
        for (line, link) in &page.links {
            findings.extend(broken(root, &pages, name, link).map(|message| Finding {
                file: name.to_owned(),
                line: *line,
                message,
            }));
        }
    }
    findings.extend(contents(&pages));
    findings
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let line = |place: Range<usize>| text[..place.start].matches('\n').count() + 1;
        for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line(place), dest_url.into_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    page.add_anchor(&heading.take().unwrap_or_default());
                }
                _ => {}
            }
        }
        page
    }

    /// As both GitHub and mdBook make it. The second heading of a text ends with `-1`.
    fn add_anchor(&mut self, heading: &str) {
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let id: String = heading.chars().filter(kept).collect();
        let id = id.to_lowercase().replace(' ', "-");
        let mut name = id.clone();
        for number in 1.. {
            if self.anchors.insert(name) {
                return;
            }
            name = format!("{id}-{number}");
        }
    }
}

/// Why a link of a page leads nowhere, if it does. What is elsewhere is not asked for.
fn broken(root: &Path, pages: &BTreeMap<&str, Page>, page: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let Some(target) = resolve(page, path) else {
        return Some(format!("the link `{link}` leaves the repository"));
    };
    if !root.join(&target).exists() && !pages.contains_key(target.as_str()) {
        return Some(format!("the link `{link}` leads nowhere: no {target}"));
    }
    let there = pages.get(target.as_str());
    let missing = there.is_some_and(|there| !anchor.is_empty() && !there.anchors.contains(anchor));
    missing.then(|| format!("the link `{link}` leads nowhere: {target} has no such heading"))
}

/// The file that a path of a page means, relative to the root.
fn resolve(page: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(page.to_owned());
    }
    let mut folders: Vec<&str> = page.split('/').collect();
    folders.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(folders.pop()?),
            part => folders.push(part),
        }
    }
    Some(folders.join("/"))
}

/// Pages that the contents leave out, or name twice. That named ones are there, their links tell.
fn contents(pages: &BTreeMap<&str, Page>) -> Vec<Finding> {
    let Some(summary) = pages.get(SUMMARY) else {
        return Vec::new();
    };
    let finding = |line, message| Finding {
        file: SUMMARY.to_owned(),
        line,
        message,
    };
    let mut findings = Vec::new();
    let mut named = BTreeSet::new();
    for (line, link) in &summary.links {
        let page = resolve(SUMMARY, link).unwrap_or_default();
        if !named.insert(page.clone()) {
            findings.push(finding(*line, format!("names {page} twice")));
        }
    }
    let guide = pages.keys().filter(|page| page.starts_with(GUIDE));
    for page in guide.filter(|page| **page != SUMMARY && !named.contains(**page)) {
        findings.push(finding(1, format!("does not name {page}")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in pages, none of which is on a disk.
    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let texts = pages
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let findings = check(Path::new("/nowhere"), &texts.collect());
        findings.iter().map(ToString::to_string).collect()
    }

    const HEADINGS: &str = "# `a`: one, two\n\n## Again\n\n## Again\n";

    #[test]
    fn what_leads_somewhere_is_left_alone() {
        let links = "[a](docs/b.md) [b](docs/b.md#a-one-two) [c](docs/b.md#again-1) [d](#here)\n\n# Here\n\n\
            [e](https://example.org/none.md#x) `[f](none.md)`\n\n```text\n[g](none.md)\n```\n";
        let back = format!("{HEADINGS}\n[up](../README.md#here)\n");
        assert_eq!(
            found(&[("README.md", links), ("docs/b.md", &back)]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_leads_nowhere_is_told_with_its_line() {
        let links = "# A\n\n[a](none.md)\n![b](none.png)\n\n| t |\n| - |\n| [c](b.md#agani) |\n\n[d](../../b.md) [e](#b)\n";
        let told = found(&[("docs/a.md", links), ("docs/b.md", HEADINGS)]);
        let parts = [
            ":3: the link `none.md`",
            ":4: the link `none.png`",
            ":8: the link `b.md#agani`",
            ":10: the link `../../b.md` leaves",
            ":10: the link `#b`",
        ];
        assert_eq!(told.len(), parts.len(), "{told:?}");
        for (told, part) in told.iter().zip(parts) {
            assert!(told.contains(part), "{told}: {part}");
        }
    }

    #[test]
    fn the_contents_name_each_page_once() {
        let summary = "[r](../README.md)\n\n- [a](a.md)\n  - [b](guide/b.md)\n";
        let mut pages = vec![
            ("README.md", ""),
            ("docs/SUMMARY.md", summary),
            ("docs/a.md", ""),
            ("docs/guide/b.md", ""),
        ];
        assert_eq!(found(&pages), Vec::<String>::new());
        pages.push(("docs/guide/c.md", ""));
        let missing = "docs/SUMMARY.md:1: does not name docs/guide/c.md";
        assert_eq!(found(&pages), [missing]);
        let twice = format!("{summary}- [c](guide/c.md)\n- [a](a.md)\n");
        pages[1].1 = &twice;
        assert_eq!(found(&pages), ["docs/SUMMARY.md:6: names docs/a.md twice"]);
    }
}
