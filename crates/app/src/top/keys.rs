//! Keys as the terminal tells them, as the model knows them.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::Key;

/// The keys that were pressed, as far as they mean anything. Esc and the key after it come as one
/// where they come together, as over a slow line: nothing here is meant by Alt, so they are two.
pub(super) fn pressed(event: KeyEvent) -> Vec<Key> {
    if event.kind == KeyEventKind::Release {
        return Vec::new();
    }
    let held = event.modifiers.difference(KeyModifiers::SHIFT);
    let alone = held.difference(KeyModifiers::ALT);
    let escape = (held != alone).then_some(Key::Escape);
    escape.into_iter().chain(meant(event.code, alone)).collect()
}

fn meant(code: KeyCode, held: KeyModifiers) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if held == KeyModifiers::CONTROL => Key::Interrupt,
        KeyCode::Char(c) if held.is_empty() => Key::Char(c),
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_with_a_letter_makes_another_key_of_it() {
        let (control, alt) = (KeyModifiers::CONTROL, KeyModifiers::ALT);
        let (none, shift) = (KeyModifiers::NONE, KeyModifiers::SHIFT);
        for (code, held, keys) in [
            (KeyCode::Char('c'), control, vec![Key::Interrupt]),
            (KeyCode::Char('q'), control, vec![]),
            (KeyCode::Char('c'), none, vec![Key::Char('c')]),
            (KeyCode::Char('q'), alt, vec![Key::Escape, Key::Char('q')]),
            (KeyCode::Char('?'), shift, vec![Key::Char('?')]),
            (KeyCode::BackTab, shift, vec![Key::BackTab]),
            (KeyCode::F(1), none, vec![]),
        ] {
            let event = KeyEvent::new(code, held);
            assert_eq!(pressed(event), keys, "{code:?} {held:?}");
        }
        let up = KeyEvent::new_with_kind(KeyCode::Up, none, KeyEventKind::Release);
        assert_eq!(pressed(up), []);
    }
}
