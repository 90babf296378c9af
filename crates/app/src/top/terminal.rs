//! The terminal while it is drawn on: it is given back as it was, however that ends.

use std::io::{self, Stdout, Write, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::process;
use std::sync::Once;

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::draw::{Palette, draw, page};
use super::model::{Input, Model};

/// As Rust ends a program that panics.
const PANICKED: i32 = 101;

/// A screen of its own, until it is dropped.
pub(super) struct Screen {
    /// Never dropped: it would tell a terminal that has gone of an error, and panic of that.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    palette: Palette,
}

impl Screen {
    /// Takes the terminal. From now on a panic of any thread gives it back and ends the program.
    pub(super) fn open(palette: Palette) -> io::Result<Self> {
        give_back_on_panic();
        let opened = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match opened {
            Ok(terminal) => Ok(Self {
                terminal: ManuallyDrop::new(terminal),
                palette,
            }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Tells the model how much there is room for, and draws it: only what has changed is sent, and
    /// all of it where the size is another one. The terminal is never asked for anything: its
    /// answer would come among the keys, and over a slow line late.
    pub(super) fn show(&mut self, model: &mut Model) -> io::Result<()> {
        let height = self.terminal.size()?.height;
        model.take(Input::Page(page(height)));
        let mut most = 0;
        let palette = self.palette;
        self.terminal.draw(|frame| {
            most = draw(model, palette, frame.buffer_mut());
        })?;
        model.bound_scrolling(most);
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Makes the terminal what it was. Where it has gone there is nothing to be done about it.
pub(super) fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// What a panic says would be lost with the screen, and a thread that is gone would leave one that
/// stands still.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |why| {
            give_back();
            before(why);
            process::exit(PANICKED);
        }));
    });
}
