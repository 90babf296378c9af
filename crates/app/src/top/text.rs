//! Text in columns of a terminal: it takes as many as was counted.

use unicode_width::UnicodeWidthStr as _;

/// That something was cut off.
const CUT: char = '…';

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
