//! Lines and text in SVG, and how wide text will be.

use crate::markup::{Markup, escape};

/// Which end of a text stands at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Markup {
    /// A straight line of this style class.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.put(format_args!(
            r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    /// A line of text of this style class, escaped.
    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.put(format_args!(
            r#"<text class="{class}" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
            at.0,
            at.1,
            escape(text)
        ));
    }
}

/// About how wide `text` is in a sans-serif font of this size; rather too wide than too narrow.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.32,
            ' ' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.41,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.95,
            c if c.is_ascii_uppercase() => 0.73,
            c if c.is_ascii() => 0.63,
            _ => 1.0,
        })
        .sum();
    units * size
}

/// `text`, cut with an ellipsis so that it fits into `room`.
pub(super) fn fitted(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = width("…", size);
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]), size);
        if used > room {
            break;
        }
        cut.push(c);
    }
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

/// `text` broken at spaces into lines no wider than `room`; what still does not fit is cut.
pub(super) fn wrapped(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(" ", size) + width(word, size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, size, room)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut canvas = Markup::default();
        canvas.text("tick", (1.0, 2.0), Anchor::End, "</text><script>");
        assert_eq!(
            canvas.finish(),
            "<text class=\"tick\" x=\"1.0\" y=\"2.0\" text-anchor=\"end\">&lt;/text&gt;&lt;script&gt;</text>\n"
        );
    }

    #[test]
    fn long_text_is_cut_or_broken() {
        assert_eq!(fitted("short", 10.0, 100.0), "short");
        let cut = fitted("a label that is much too long", 10.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 60.0, "{cut}");
        assert_eq!(fitted("anything", 10.0, 0.0), "…");
        assert_eq!(wrapped("one two three", 10.0, 50.0), ["one two", "three"]);
        assert!(wrapped("  ", 10.0, 50.0).is_empty());
    }
}
