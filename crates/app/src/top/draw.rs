//! The screen: a header, the tables' names, a table or what covers it, and what keys do. Fits to
//! any size, down to one column in one line.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::column::{Column, Row};
use super::layout::{GAP, Wish, widths};
use super::model::{Link, Model, Panel};
use super::tables::TABS;
use super::text::{fit, width};
use crate::control::HealthState;
use crate::printable::printable;

/// A column of words is not shown with less.
const WORDS_LEAST: usize = 12;

const KEYS: &str = "q quit  Tab table  Enter why  / filter  s sort  r reverse  p pause  ? help";

const HELP: &str = "\
Tab, Shift-Tab, 1 to 5   another table
arrows, PgUp, PgDn, Home, End   move
Enter   `why` of the tenant, or of the tenant of the volume or connection
< >, s   sort by another column     r   the other way round
/   show only rows with this text; Enter ends it, Esc shows all again
p   pause, and go on     + -   longer or shorter interval
q, Ctrl-C   end

WANTS   in flight: I/Os that wait for their turn or are at the device; queued: \
those that wait for their turn; busy: for how much of the last seconds there were any
GETS   what ended in the interval
WAITS   p50, p99: at the device, waiting for a turn and served, right to a quarter; \
turn: the mean wait for a turn; excess: what was beyond the least that such I/O takes
BLAME   whose work that excess comes from in the last seconds: a tenant, or a cause
PROMISE   MISSED, kept, or not asked for so much; in the last seconds

The first figures are since the target started, all others of the last interval.";

/// Whether colours are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) colours: bool,
}

impl Palette {
    fn colour(self, colour: Color) -> Style {
        match self.colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }
}

/// Which lines there are, of a terminal of this height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines {
    tabs: bool,
    groups: bool,
    titles: bool,
    keys: bool,
}

impl Lines {
    fn of(height: usize) -> Self {
        Self {
            tabs: height >= 6,
            groups: height >= 12,
            titles: height >= 3,
            keys: height >= 4,
        }
    }

    /// Those above the rows.
    fn above(self) -> usize {
        1 + usize::from(self.tabs) + usize::from(self.groups) + usize::from(self.titles)
    }
}

/// How many rows of a table there are in a terminal of this height.
pub(super) fn page(height: u16) -> usize {
    let height = usize::from(height);
    let lines = Lines::of(height);
    height.saturating_sub(lines.above() + usize::from(lines.keys))
}

/// Draws all of it; gives how far what covers the table can be scrolled.
pub(super) fn draw(model: &Model, palette: Palette, buffer: &mut Buffer) -> usize {
    let area = *buffer.area();
    if area.is_empty() {
        return 0;
    }
    let mut screen = Screen {
        buffer,
        area,
        palette,
    };
    let height = usize::from(area.height);
    let lines = Lines::of(height);
    screen.header(model);
    if lines.tabs {
        screen.tabs(model);
    }
    if lines.keys {
        screen.keys(model, height - 1);
    }
    match model.panel() {
        None => {
            screen.table(model, lines);
            0
        }
        Some(panel) => screen.panel(panel, 1 + usize::from(lines.tabs), height, lines),
    }
}

struct Screen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    palette: Palette,
}

impl Screen<'_> {
    fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Writes as much of a text as there is room for; gives where it ends.
    fn put(&mut self, x: usize, y: usize, text: &str, style: Style) -> usize {
        let room = self.width().saturating_sub(x);
        if room == 0 || y >= usize::from(self.area.height) {
            return x;
        }
        let text = fit(text, room);
        // Both are within the area, whose sides are 16 bits.
        let (left, line) = (self.area.x + x as u16, self.area.y + y as u16);
        self.buffer.set_stringn(left, line, &text, room, style);
        x + width(&text)
    }

    fn whole_line(&mut self, y: usize, style: Style) {
        let line = Rect {
            y: self.area.y.saturating_add(y as u16),
            height: 1,
            ..self.area
        };
        self.buffer.set_style(line, style);
    }

    fn header(&mut self, model: &Model) {
        if let Link::Away(why) = model.link() {
            let style = Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD);
            self.put(0, 0, &format!("TARGET AWAY, and waited for: {why}"), style);
            return self.whole_line(0, style);
        }
        let activity = &model.now().activity;
        let problems = match activity.problems {
            1 => "1 problem".to_owned(),
            several => format!("{several} problems"),
        };
        let (state, colour) = match activity.health {
            HealthState::Healthy => ("healthy".to_owned(), Color::Green),
            HealthState::Degraded => (format!("DEGRADED: {problems}"), Color::Yellow),
            HealthState::Failed => (format!("FAILED: {problems}"), Color::Red),
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let x = self.put(0, 0, &state, self.palette.colour(colour).patch(bold));
        let x = match model.is_paused() {
            true => self.put(x, 0, "  PAUSED", bold),
            false => x,
        };
        let of = match model.looks().since_start() {
            true => "since the start".to_owned(),
            false => format!("last {:.1} s", model.looks().seconds()),
        };
        let (run, every) = (lasting(activity.run_seconds), model.interval());
        let text = format!("  {of}, every {every} s  runs {run}  flashyard top");
        self.put(x, 0, &text, Style::new());
    }

    fn tabs(&mut self, model: &Model) {
        let name = |tab: super::tables::Tab| match tab == model.tab() {
            true => format!("[{} {}]", tab.number() + 1, tab.name()),
            false => format!(" {} {} ", tab.number() + 1, tab.name()),
        };
        let all: usize = TABS.iter().map(|tab| width(&name(*tab)) + 1).sum();
        let is_shown = |tab: &super::tables::Tab| all <= self.width() || *tab == model.tab();
        let shown: Vec<_> = TABS.into_iter().filter(is_shown).collect();
        let mut x = 0;
        for tab in shown {
            let style = match tab == model.tab() {
                true => Style::new().add_modifier(Modifier::BOLD),
                false => Style::new(),
            };
            x = self.put(x, 1, &name(tab), style) + 1;
        }
    }

    fn keys(&mut self, model: &Model, y: usize) {
        let (filter, all) = (model.filter(), model.rows().len());
        let text = match (model.said(), model.panel()) {
            _ if model.is_typing() => format!("/{filter}_   Enter keeps the filter, Esc shows all"),
            (Some(said), _) => said.to_owned(),
            (None, Some(_)) => "Esc back  arrows scroll  q quit".to_owned(),
            (None, None) if !filter.is_empty() => {
                format!("only with \"{filter}\": {all} rows  Esc shows all")
            }
            (None, None) => KEYS.to_owned(),
        };
        self.put(0, y, &text, Style::new().add_modifier(Modifier::DIM));
    }

    fn table(&mut self, model: &Model, lines: Lines) {
        let (columns, rows) = (model.columns(), model.rows());
        let page = page(self.area.height);
        let first = first_shown(model.cursor(), rows.len(), page);
        let shown: Vec<&Row> = rows.iter().skip(first).take(page).collect();
        let titles = titles(model, &columns);
        let places = places(&columns, &titles, &shown, self.width());
        let above = lines.above();
        if lines.groups {
            self.groups(&columns, &places, above - 2);
        }
        if lines.titles {
            let style = Style::new().add_modifier(Modifier::BOLD);
            for (at, x, room) in &places {
                let title = aligned(&titles[*at], *room, columns[*at].unit.is_number());
                self.put(*x, above - 1, &title, style);
            }
        }
        if rows.is_empty() {
            let of = model.tab().name();
            let text = match model.filter() {
                "" => format!("no {of} yet"),
                filter => format!("no {of} with \"{filter}\""),
            };
            self.put(0, above, &text, Style::new());
        }
        for (number, row) in shown.into_iter().enumerate() {
            self.row(row, &columns, &places, above + number);
            if first + number == model.cursor() {
                let style = Style::new().add_modifier(Modifier::REVERSED);
                self.whole_line(above + number, style);
            }
        }
    }

    fn row(&mut self, row: &Row, columns: &[Column], places: &[(usize, usize, usize)], y: usize) {
        let style = match row.alarming {
            true => self.palette.colour(Color::Red),
            false => Style::new(),
        };
        for (at, x, room) in places {
            let unit = columns[*at].unit;
            let text = fit(&row.cells[*at].shown(unit), *room);
            self.put(*x, y, &aligned(&text, *room, unit.is_number()), style);
        }
    }

    /// The titles of groups, each above its first column.
    fn groups(&mut self, columns: &[Column], places: &[(usize, usize, usize)], y: usize) {
        let mut before = None;
        for (at, x, _) in places {
            let group = columns[*at].group;
            let says_it = columns[*at].title.eq_ignore_ascii_case(group.title());
            if before != Some(group) && !says_it {
                self.put(*x, y, group.title(), self.palette.colour(Color::Cyan));
            }
            before = Some(group);
        }
    }

    /// What covers the table; gives how far it can be scrolled.
    fn panel(&mut self, panel: &Panel, top: usize, height: usize, lines: Lines) -> usize {
        let (title, text, scrolled) = match panel {
            Panel::Help { scrolled } => ("help".to_owned(), HELP, *scrolled),
            Panel::Why {
                tenant,
                text,
                scrolled,
            } => {
                let text = text.as_deref().unwrap_or("asked for");
                (format!("why {}", printable(tenant)), text, *scrolled)
            }
        };
        let bottom = height - usize::from(lines.keys);
        let room = bottom.saturating_sub(top + 1);
        self.put(0, top, &title, Style::new().add_modifier(Modifier::BOLD));
        let text = wrapped(text, self.width());
        let most = text.len().saturating_sub(room);
        for (line, text) in text.iter().skip(scrolled.min(most)).take(room).enumerate() {
            self.put(0, top + 1 + line, text, Style::new());
        }
        most
    }
}

/// The first row that is shown: the chosen one is in the middle, as far as that can be.
fn first_shown(chosen: usize, all: usize, page: usize) -> usize {
    chosen
        .saturating_sub(page / 2)
        .min(all.saturating_sub(page))
}

/// With a mark at the column that the table is sorted by.
fn titles(model: &Model, columns: &[Column]) -> Vec<String> {
    let (sorted, downwards) = model.sort();
    let mark = |at: usize| match (at == sorted, downwards) {
        (false, _) => "",
        (true, true) => "▼",
        (true, false) => "▲",
    };
    let titles = columns.iter().enumerate();
    titles
        .map(|(at, column)| column.title.to_uppercase() + mark(at))
        .collect()
}

/// Each column that is shown: which, where it begins, and its width.
fn places(
    columns: &[Column],
    titles: &[String],
    rows: &[&Row],
    room: usize,
) -> Vec<(usize, usize, usize)> {
    let wish = |(at, column): (usize, &Column)| {
        let cells = rows
            .iter()
            .map(|row| width(&row.cells[at].shown(column.unit)));
        let most = cells.max().unwrap_or(0).max(width(&titles[at]));
        let least = match column.unit.is_number() {
            true => most,
            false => most.min(WORDS_LEAST),
        };
        Wish {
            rank: column.rank,
            least,
            most,
        }
    };
    let wishes: Vec<Wish> = columns.iter().enumerate().map(wish).collect();
    let mut x = 0;
    let mut places = Vec::new();
    for (at, width) in widths(&wishes, room).into_iter().enumerate() {
        if let Some(width) = width {
            places.push((at, x, width));
            x += width + GAP;
        }
    }
    places
}

fn aligned(text: &str, room: usize, right: bool) -> String {
    let text = fit(text, room);
    match right {
        true => " ".repeat(room - width(&text)) + &text,
        false => text,
    }
}

/// Lines no wider than `room`, broken between words where that can be; harmless for a terminal.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut rest = printable(line);
        while width(&rest) > room.max(1) {
            let mut end = 0;
            let mut word = 0;
            for (at, c) in rest.char_indices() {
                let next = at + c.len_utf8();
                if width(&rest[..next]) > room.max(1) {
                    break;
                }
                end = next;
                if c == ' ' {
                    word = next;
                }
            }
            // A character that is wider than the line is left to be cut.
            let end = match (word, end) {
                (0, 0) => rest.chars().next().map_or(0, char::len_utf8),
                (0, end) => end,
                (word, _) => word,
            };
            let next = rest.split_off(end);
            lines.push(rest.trim_end().to_owned());
            rest = next;
        }
        lines.push(rest);
    }
    lines
}

/// How long something runs, in the two largest units.
fn lasting(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}
