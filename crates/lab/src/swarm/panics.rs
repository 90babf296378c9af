//! Catches panics as findings, with message and place, and prints nothing.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

thread_local! {
    /// Panics of this thread are findings.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// What a panic says, and where it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Panicked(pub(super) String);

/// What `act` gives, or the first panic in it.
pub(super) fn caught<T>(act: impl FnOnce() -> T) -> Result<T, Panicked> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match WATCHED.get() {
            true => note(info),
            false => before(info),
        }));
    });
    WATCHED.set(true);
    LAST.take();
    let outcome = panic::catch_unwind(AssertUnwindSafe(act));
    WATCHED.set(false);
    outcome.map_err(|_| Panicked(LAST.take().unwrap_or_default()))
}

/// A panic while another one unwinds comes of it.
fn note(info: &PanicHookInfo<'_>) {
    LAST.with_borrow_mut(|last| {
        last.get_or_insert_with(|| {
            let text = info.payload_as_str().unwrap_or("of an unknown kind");
            match info.location() {
                Some(place) => format!("{text} ({}:{})", place.file(), place.line()),
                None => text.to_owned(),
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_reported_with_its_place() {
        assert_eq!(caught(|| 7), Ok(7));
        let Panicked(message) = caught(|| panic!("so {}", "bad")).expect_err("it panics");
        assert!(
            message.starts_with("so bad (") && message.contains("panics.rs:"),
            "{message}"
        );
    }
}
