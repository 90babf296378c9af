//! Text on its way to a terminal. Names come from users and from hosts: whatever is in them, it is
//! shown and does nothing, and takes as many columns as was counted.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// What stands for a character that a terminal would obey instead of show.
const INSTEAD: char = '?';
/// That something was cut off.
const CUT: char = '…';

/// The same text with nothing in it that a terminal obeys: no control characters, and none that
/// turn the direction of what follows, or that cannot be seen.
pub(super) fn clean(text: &str) -> String {
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

/// How many columns it takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// As much of it as there is room for, with a mark where something was cut off.
pub(super) fn fit(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let Some(room) = room.checked_sub(1) else {
        return String::new();
    };
    let mut fitted = String::new();
    for c in text.chars() {
        fitted.push(c);
        if width(&fitted) > room {
            fitted.pop();
            break;
        }
    }
    fitted.push(CUT);
    fitted
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
            assert_eq!(clean(text), shown, "{text:?}");
        }
        for c in (0..=0x11_ffff_u32).filter_map(char::from_u32) {
            assert!(!clean(&c.to_string()).contains(char::is_control), "{c:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_at_a_column_and_not_within_a_character() {
        for (text, room, fitted) in [
            ("tenant", 6, "tenant"),
            ("tenant", 5, "tena…"),
            ("tenant", 1, "…"),
            ("tenant", 0, ""),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("日本語", 2, "…"),
            ("e\u{301}e\u{301}e", 2, "e\u{301}…"),
        ] {
            assert_eq!(fit(text, room), fitted, "{text} {room}");
            assert!(width(&fitted_of(text, room)) <= room);
        }
    }

    fn fitted_of(text: &str, room: usize) -> String {
        fit(text, room)
    }
}
