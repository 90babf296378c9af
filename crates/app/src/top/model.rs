//! What is shown and what keys do to it. Pure: looks at a target and keys come in, what is to be
//! asked and shown comes out.

use std::cmp::Ordering;

use super::column::{Cell, Column, Row};
use super::figures::{Look, Looks};
use super::tables::{TABS, Tab};
use crate::printable::printable;

/// Seconds between looks that + and - choose from.
const INTERVALS: [f64; 8] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// A filter is not longer.
const FILTER_MOST: usize = 100;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Tab,
    BackTab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C.
    Interrupt,
}

/// What comes in.
#[derive(Debug)]
pub(super) enum Input {
    Key(Key),
    /// The terminal has this many rows for a table.
    Page(usize),
    Look(Box<Look>),
    /// The target does not answer, and why.
    Away(String),
    /// Nothing has come for longer than looks take.
    Silent,
    /// What `why` says of a tenant, or why it says nothing.
    Why(String, Result<String, String>),
}

/// What is to be done after an input.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wanted {
    Nothing,
    /// This many seconds between looks.
    Interval(f64),
    /// No looks, or looks again.
    Paused(bool),
    /// What `why` says of this tenant, with each look; or no more of it.
    Why(Option<String>),
    End,
}

/// Whether the target answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    Away(String),
}

/// What covers the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    Help {
        scrolled: usize,
    },
    /// What `why` says of a tenant; nothing yet.
    Why {
        tenant: String,
        text: Option<String>,
        scrolled: usize,
    },
}

/// How a table is looked at.
#[derive(Clone, Debug)]
struct Place {
    /// The column that it is sorted by.
    sort: usize,
    reversed: bool,
    /// The row that stands out, by its name.
    chosen: Option<String>,
    /// Where that was last.
    cursor: usize,
}

/// Everything that is shown.
pub(super) struct Model {
    tab: Tab,
    places: [Place; TABS.len()],
    filter: String,
    /// The filter is being typed.
    typing: bool,
    panel: Option<Panel>,
    paused: bool,
    interval: f64,
    link: Link,
    /// What the last key did that cannot be seen otherwise.
    said: Option<&'static str>,
    /// Rows that the terminal has room for.
    page: usize,
    before: Option<Box<Look>>,
    now: Box<Look>,
    /// The rows of the table as they are shown.
    rows: Vec<Row>,
}

impl Model {
    /// Begins with a first look.
    pub(super) fn new(now: Box<Look>, tab: Tab, interval: f64) -> Self {
        let place = |tab: Tab| Place {
            sort: tab.first_sort(),
            reversed: false,
            chosen: None,
            cursor: 0,
        };
        let mut model = Self {
            tab,
            places: TABS.map(place),
            filter: String::new(),
            typing: false,
            panel: None,
            paused: false,
            interval,
            link: Link::Up,
            said: None,
            page: 1,
            before: None,
            now,
            rows: Vec::new(),
        };
        model.renew();
        model
    }

    /// Sorts the first table by this column.
    pub(super) fn sort_by(&mut self, column: usize) {
        self.place_mut().sort = column;
        self.renew();
    }

    /// Shows only rows with this in them.
    pub(super) fn filter_by(&mut self, text: &str) {
        self.filter = printable(text).chars().take(FILTER_MOST).collect();
        self.renew();
    }

    /// Something has come.
    pub(super) fn take(&mut self, input: Input) -> Wanted {
        match input {
            Input::Key(key) => return self.on_key(key),
            Input::Page(rows) => self.page = rows.max(1),
            Input::Away(why) => self.link = Link::Away(printable(&why)),
            // Nobody asks, or did so before.
            Input::Silent | Input::Look(_) if self.paused => {}
            Input::Silent => self.link = Link::Away("it does not answer".to_owned()),
            Input::Look(look) => {
                self.link = Link::Up;
                self.before = Some(std::mem::replace(&mut self.now, look));
                self.renew();
            }
            Input::Why(of, answer) => {
                if let Some(Panel::Why { tenant, text, .. }) = &mut self.panel
                    && *tenant == of
                {
                    *text = Some(answer.unwrap_or_else(|why| why));
                }
            }
        }
        Wanted::Nothing
    }

    fn on_key(&mut self, key: Key) -> Wanted {
        self.said = None;
        if key == Key::Interrupt {
            return Wanted::End;
        }
        if self.typing {
            self.type_filter(key);
            return Wanted::Nothing;
        }
        if self.panel.is_some() {
            return self.on_key_in_panel(key);
        }
        match key {
            Key::Tab => self.turn_to(self.tab.number() + 1),
            Key::BackTab => self.turn_to(self.tab.number() + TABS.len() - 1),
            Key::Up => self.move_to(self.cursor().saturating_sub(1)),
            Key::Down => self.move_to(self.cursor() + 1),
            Key::PageUp => self.move_to(self.cursor().saturating_sub(self.page)),
            Key::PageDown => self.move_to(self.cursor() + self.page),
            Key::Home => self.move_to(0),
            Key::End => self.move_to(usize::MAX),
            Key::Enter => return self.ask_why(),
            Key::Escape => self.filter_by(""),
            Key::Char(c) => return self.on_char(c),
            Key::Backspace | Key::Interrupt => {}
        }
        Wanted::Nothing
    }

    fn on_char(&mut self, c: char) -> Wanted {
        match c {
            'q' => return Wanted::End,
            '1'..='5' => self.turn_to(c as usize - '1' as usize),
            's' | '>' => self.sort_beside(1),
            '<' => self.sort_beside(self.columns().len() - 1),
            'r' => {
                let place = self.place_mut();
                place.reversed = !place.reversed;
                self.renew();
            }
            '/' => self.typing = true,
            'p' => {
                self.paused = !self.paused;
                return Wanted::Paused(self.paused);
            }
            '+' | '=' => return self.choose_interval(true),
            '-' => return self.choose_interval(false),
            '?' | 'h' => self.panel = Some(Panel::Help { scrolled: 0 }),
            _ => {}
        }
        Wanted::Nothing
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.typing = false;
                self.filter_by("");
            }
            Key::Backspace => {
                self.filter.pop();
                self.renew();
            }
            Key::Char(c) => {
                let text = format!("{}{c}", self.filter);
                self.filter_by(&text);
            }
            _ => {}
        }
    }

    fn on_key_in_panel(&mut self, key: Key) -> Wanted {
        let page = self.page;
        let Some(Panel::Help { scrolled } | Panel::Why { scrolled, .. }) = &mut self.panel else {
            return Wanted::Nothing;
        };
        match key {
            Key::Up => *scrolled = scrolled.saturating_sub(1),
            Key::Down => *scrolled += 1,
            Key::PageUp => *scrolled = scrolled.saturating_sub(page),
            Key::PageDown => *scrolled += page,
            Key::Home => *scrolled = 0,
            Key::Char('q') => return Wanted::End,
            Key::Escape | Key::Enter | Key::Char('?' | 'h') => {
                let asked = matches!(self.panel.take(), Some(Panel::Why { .. }));
                return if asked {
                    Wanted::Why(None)
                } else {
                    Wanted::Nothing
                };
            }
            _ => {}
        }
        Wanted::Nothing
    }

    /// What was drawn is no longer than this: one cannot scroll beyond its end.
    pub(super) fn bound_scrolling(&mut self, most: usize) {
        if let Some(Panel::Help { scrolled } | Panel::Why { scrolled, .. }) = &mut self.panel {
            *scrolled = (*scrolled).min(most);
        }
    }

    fn ask_why(&mut self) -> Wanted {
        let Some(row) = self.rows.get(self.cursor()) else {
            return Wanted::Nothing;
        };
        let Some(tenant) = row.tenant.clone() else {
            self.said = Some("`why` is of a tenant: choose one in another table");
            return Wanted::Nothing;
        };
        self.panel = Some(Panel::Why {
            tenant: tenant.clone(),
            text: None,
            scrolled: 0,
        });
        Wanted::Why(Some(tenant))
    }

    fn choose_interval(&mut self, longer: bool) -> Wanted {
        let mut steps = INTERVALS.into_iter();
        let next = match longer {
            true => steps.find(|step| *step > self.interval),
            false => steps.rfind(|step| *step < self.interval),
        };
        match next {
            Some(next) => {
                self.interval = next;
                Wanted::Interval(next)
            }
            None => Wanted::Nothing,
        }
    }

    fn turn_to(&mut self, tab: usize) {
        self.tab = TABS[tab % TABS.len()];
        self.renew();
    }

    fn sort_beside(&mut self, step: usize) {
        let columns = self.columns().len();
        let place = self.place_mut();
        place.sort = (place.sort + step) % columns;
        place.reversed = false;
        self.renew();
    }

    fn move_to(&mut self, row: usize) {
        let row = row.min(self.rows.len().saturating_sub(1));
        let chosen = self.rows.get(row).map(|row| row.name.clone());
        let place = self.place_mut();
        (place.chosen, place.cursor) = (chosen, row);
    }

    /// Makes the rows anew. Who was chosen stays chosen, wherever it stands now.
    fn renew(&mut self) {
        let looks = Looks::new(self.before.as_deref(), &self.now);
        let mut rows = self.tab.rows(looks);
        let filter = self.filter.to_lowercase();
        rows.retain(|row| filter.is_empty() || row.has(&filter));
        let Place { sort, reversed, .. } = *self.place();
        let downwards = self.columns()[sort].unit.is_figure() != reversed;
        rows.sort_by(|one, other| compare(one, other, sort, downwards));
        self.rows = rows;
        let chosen = self.place().chosen.as_ref();
        let found = chosen.and_then(|name| self.rows.iter().position(|row| row.name == *name));
        if let Some(found) = found {
            self.place_mut().cursor = found;
        }
    }

    fn place(&self) -> &Place {
        &self.places[self.tab.number()]
    }

    fn place_mut(&mut self) -> &mut Place {
        &mut self.places[self.tab.number()]
    }

    /// The row that stands out.
    pub(super) fn cursor(&self) -> usize {
        self.place().cursor.min(self.rows.len().saturating_sub(1))
    }

    pub(super) fn tab(&self) -> Tab {
        self.tab
    }

    pub(super) fn columns(&self) -> Vec<Column> {
        self.tab.columns()
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The column that it is sorted by, and whether the largest come first.
    pub(super) fn sort(&self) -> (usize, bool) {
        let Place { sort, reversed, .. } = *self.place();
        (sort, self.columns()[sort].unit.is_figure() != reversed)
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn is_typing(&self) -> bool {
        self.typing
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn interval(&self) -> f64 {
        self.interval
    }

    pub(super) fn panel(&self) -> Option<&Panel> {
        self.panel.as_ref()
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn said(&self) -> Option<&'static str> {
        self.said
    }

    pub(super) fn now(&self) -> &Look {
        &self.now
    }

    pub(super) fn looks(&self) -> Looks<'_> {
        Looks::new(self.before.as_deref(), &self.now)
    }
}

/// What has nothing to tell comes last, however it is sorted, and those that are equal stand by
/// their names.
fn compare(one: &Row, other: &Row, column: usize, downwards: bool) -> Ordering {
    let turned = |order: Ordering| if downwards { order.reverse() } else { order };
    let order = match (&one.cells[column], &other.cells[column]) {
        (Cell::Number(one), Cell::Number(other)) => turned(one.total_cmp(other)),
        (Cell::Text(one), Cell::Text(other)) => turned(one.cmp(other)),
        (one, other) => (*one == Cell::Nothing).cmp(&(*other == Cell::Nothing)),
    };
    order.then_with(|| one.name.cmp(&other.name))
}
