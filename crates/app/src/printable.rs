//! What others have written, for people who read it: names come from users, from hosts and from
//! strangers. Whatever is in them is shown and does nothing, on a terminal and in a log.

use unicode_width::UnicodeWidthChar as _;

/// What stands for a character that a terminal would obey instead of show.
const INSTEAD: char = '?';

/// The same text with nothing in it that a terminal obeys: no control characters, and none that
/// turn the direction of what follows, or that cannot be seen.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_shown(c) { c } else { INSTEAD })
        .collect()
}

/// Accents that stand above the letter before them stay: they take no column and belong to it.
fn is_shown(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    c.width().is_some() && !is_format
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (text, shown) in [
            ("db", "db"),
            ("a\u{1b}[2Jb", "a?[2Jb"),
            ("a\r\nb\tc\u{7f}", "a??b?c?"),
            ("a\u{9b}31mb", "a?31mb"),
            ("\u{202e}gnp.exe", "?gnp.exe"),
            ("a\u{200b}b\u{feff}", "a?b?"),
            ("日本", "日本"),
            ("e\u{301}", "e\u{301}"),
        ] {
            assert_eq!(printable(text), shown, "{text:?}");
        }
        for c in (0..=0x11_ffff_u32).filter_map(char::from_u32) {
            assert!(
                !printable(&c.to_string()).contains(char::is_control),
                "{c:?}"
            );
        }
    }
}
