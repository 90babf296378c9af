//! Writes HTML and SVG; text is escaped.

use std::fmt::{Arguments, Write as _};

/// Markup being written.
#[derive(Debug, Default)]
pub(crate) struct Markup {
    text: String,
}

impl Markup {
    /// Writes a line as it is: elements, attributes and numbers of ours, and text only after
    /// [`escape`].
    pub(crate) fn put(&mut self, line: Arguments<'_>) {
        self.text
            .write_fmt(line)
            .expect("a string takes everything");
        self.text.push('\n');
    }

    /// What was written.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// `text` as it may stand in an element or a quoted attribute of HTML and SVG. Control characters,
/// which XML has no way to write, are replaced.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escape("<b a=\"1\" c='2'>&\u{0}\n"),
            "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{fffd} "
        );
    }
}
