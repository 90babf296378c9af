//! The screen at several sizes.

use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;

use super::*;
use crate::top::draw::{Palette, draw, page};

fn drawn(model: &mut Model, (width, height): (u16, u16), colours: bool) -> Buffer {
    let backend = TestBackend::new(width, height);
    let mut terminal = Terminal::new(backend).expect("it needs nothing");
    model.take(Input::Page(page(height)));
    let mut most = 0;
    let done = terminal.draw(|frame| {
        most = draw(model, Palette { colours }, frame.buffer_mut());
    });
    done.expect("it cannot fail");
    model.bound_scrolling(most);
    terminal.backend().buffer().clone()
}

/// Its lines, without the space behind them.
fn lines(model: &mut Model, size: (u16, u16)) -> Vec<String> {
    let buffer = drawn(model, size, true);
    let width = usize::from(size.0).max(1);
    let lines = buffer.content().chunks(width).map(|line| {
        let text: String = line.iter().map(Cell::symbol).collect();
        text.trim_end().to_owned()
    });
    lines.collect()
}

#[test]
fn the_columns_of_80_and_40_and_200_are_those_that_matter_most() {
    for (size, want) in [((80, 24), EIGHTY), ((40, 10), FORTY), ((200, 60), WIDE)] {
        let shown = lines(&mut model(Tab::Tenants), size);
        let shown: Vec<&str> = shown.iter().map(|line| &**line).collect();
        let (head, foot) = want.split_at(want.len() - 1);
        assert_eq!(shown[..head.len()], *head, "{}", shown.join("\n"));
        let between = &shown[head.len()..shown.len() - 1];
        assert!(between.iter().all(|line| line.is_empty()), "{size:?}");
        assert_eq!(shown.last(), foot.first(), "{size:?}");
    }
}

const EIGHTY: &[&str] = &[
    "DEGRADED: 1 problem  last 1.0 s, every 1 s  runs 1 min 41 s  flashyard top",
    "[1 tenants]  2 volumes   3 devices   4 cores   5 connections",
    "                 WANTS              GETS          WAITS",
    "TENANT  PROMISE  IN FLIGHT  QUEUED  IOPS▼  MIB/S     P99    TURN  BLAME",
    "batch   -                4       3    900    3.5  991 us  100 us  batch 60 %",
    "db      MISSED           4       3    100    0.4  991 us  100 us  batch 60 %",
    "web     kept             4       3      0    0.0       -       -  batch 60 %",
    "q quit  Tab table  Enter why  / filter  s sort  r reverse  p pause  ? help",
];

const FORTY: &[&str] = &[
    "DEGRADED: 1 problem  last 1.0 s, every …",
    "[1 tenants]",
    "TENANT  PROMISE  IOPS▼  BLAME",
    "batch   -          900  batch 60 %",
    "db      MISSED     100  batch 60 %",
    "web     kept         0  batch 60 %",
    "q quit  Tab table  Enter why  / filter …",
];

const WIDE: &[&str] = &[
    "DEGRADED: 1 problem  last 1.0 s, every 1 s  runs 1 min 41 s  flashyard top",
    "[1 tenants]  2 volumes   3 devices   4 cores   5 connections",
    "                 PROMISE                                    WANTS                    GETS                                     WAITS",
    "TENANT  CLASS    WEIGHT  PROMISE  GOT OF IT                 IN FLIGHT  QUEUED  BUSY  IOPS▼  READS/S  WRITES/S  MIB/S  ERRORS     P50     P99    TURN  TURN P99  EXCESS  BLAME",
    "batch   latency       2  -        -                                 4       3  98 %    900      900         0    3.5       0  550 us  991 us  100 us     99 us  100 us  batch 60 %",
    "db      latency       2  MISSED   12000 of 20000 read iops          4       3  98 %    100      100         0    0.4       0  550 us  991 us  100 us     99 us  100 us  batch 60 %",
    "web     latency       2  kept     12000 of 20000 read iops          4       3  98 %      0        0         0    0.0       0       -       -       -         -  100 us  batch 60 %",
    "q quit  Tab table  Enter why  / filter  s sort  r reverse  p pause  ? help",
];

/// Whatever is shown, in whatever room, is drawn.
#[test]
fn no_size_is_too_small() {
    let states = [
        "",
        "enter",
        "?",
        "? down down end",
        "/ d b",
        "/ z z z",
        "p",
        "end r",
    ];
    for tab in [
        Tab::Tenants,
        Tab::Volumes,
        Tab::Devices,
        Tab::Cores,
        Tab::Connections,
    ] {
        for keys in states {
            let mut model = model(tab);
            press(&mut model, keys);
            let sides = [0, 1, 2, 3, 5, 6, 12, 30];
            for size in sides
                .iter()
                .flat_map(|width| sides.map(|height| (*width, height)))
            {
                drawn(&mut model, size, true);
            }
            model.take(Input::Why(
                "batch".into(),
                Ok("日本 because of ".repeat(50)),
            ));
            model.take(Input::Away("日本".repeat(50)));
            for size in [(1, 1), (1, 24), (80, 1), (2, 2), (3, 30)] {
                drawn(&mut model, size, true);
            }
        }
    }
    assert_eq!(lines(&mut model(Tab::Tenants), (1, 1)), ["…"]);
}

/// Of a thousand rows the chosen one is there, wherever it is.
#[test]
fn the_chosen_row_is_on_the_screen() {
    let tenants: Vec<(String, u64)> = (0..1_000).map(|n| (format!("t{n:03}"), n)).collect();
    let tenants: Vec<(&str, u64)> = tenants.iter().map(|(name, n)| (&**name, *n)).collect();
    let mut model = Model::new(look(1, 100.0, &tenants), Tab::Tenants, 1.0);
    for (keys, size, want) in [
        ("", (80, 24), "t999"),
        ("end", (80, 24), "t000"),
        ("pageup", (80, 24), "t019"),
        ("up up", (80, 2), "t021"),
        ("home down", (40, 10), "t998"),
        ("pagedown", (40, 10), "t992"),
    ] {
        press(&mut model, keys);
        let shown = drawn(&mut model, size, false);
        let shown = shown.content().chunks(usize::from(size.0));
        let standing_out = shown.filter(|line| line[0].modifier.contains(Modifier::REVERSED));
        let standing_out: Vec<String> = standing_out
            .map(|line| line.iter().take(4).map(Cell::symbol).collect())
            .collect();
        assert_eq!(standing_out, [want], "{keys}");
    }
}

#[test]
fn names_do_nothing_to_the_terminal_and_keep_their_columns() {
    let bad = "a\u{1b}]0;x\u{7}\u{202e}b";
    let tenants = [(bad, 500), ("日本語", 400), ("db", 300)];
    let mut model = Model::new(look(1, 100.0, &tenants), Tab::Tenants, 1.0);
    press(&mut model, "enter");
    model.take(Input::Why(bad.into(), Ok(format!("{bad}\nend"))));
    let all = |model: &mut Model| {
        let buffer = drawn(model, (80, 24), true);
        let cells = buffer.content().iter();
        cells
            .map(|cell| cell.symbol().to_owned())
            .collect::<String>()
    };
    let panel = all(&mut model);
    press(&mut model, "esc");
    let table = all(&mut model);
    for text in [&panel, &table] {
        assert!(text.contains("a?]0;x??b"), "{text}");
        assert!(
            !text.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text}"
        );
    }
    let buffer = drawn(&mut model, (80, 24), true);
    let line = |y: u16| (0..80).map(move |x| (x, y));
    let ends = (4..7).map(|y| {
        let used = line(y).filter(|at| buffer[*at].symbol() == "0");
        used.map(|(x, _)| x).max()
    });
    let ends: Vec<_> = ends.collect();
    assert!(ends.windows(2).all(|two| two[0] == two[1]), "{ends:?}");
}

/// Whoever sees no colours sees the same words.
#[test]
fn nothing_is_told_by_colour_alone() {
    for tab in [Tab::Tenants, Tab::Cores] {
        let (mut with, mut without) = (model(tab), model(tab));
        let size = (120, 30);
        let (with, without) = (
            drawn(&mut with, size, true),
            drawn(&mut without, size, false),
        );
        let cells = with.content().iter().zip(without.content());
        for (one, other) in cells {
            assert_eq!(one.symbol(), other.symbol());
            assert_eq!((other.fg, other.bg), (Color::Reset, Color::Reset));
        }
        let red = with.content().iter().filter(|cell| cell.fg == Color::Red);
        let red: String = red.map(Cell::symbol).collect();
        let word = if tab == Tab::Cores {
            "silent"
        } else {
            "MISSED"
        };
        assert!(red.contains(word), "{red}");
    }
}

#[test]
fn the_header_tells_what_is_not_as_ever() {
    let header = |model: &mut Model| lines(model, (120, 24)).swap_remove(0);
    let mut one = Model::new(look(1, 100.0, &TENANTS), Tab::Tenants, 1.0);
    let said = header(&mut one);
    assert!(
        said.starts_with("DEGRADED: 1 problem  since the start, every 1 s"),
        "{said}"
    );
    assert!(said.contains("runs 1 min 40 s"), "{said}");
    press(&mut one, "p");
    let said = header(&mut one);
    assert!(said.contains("PAUSED"), "{said}");
    let mut away = model(Tab::Tenants);
    away.take(Input::Away("no target runs".into()));
    let said = header(&mut away);
    assert!(
        said.starts_with("TARGET AWAY, and waited for: no target runs"),
        "{said}"
    );
}

#[test]
fn the_last_line_tells_what_is_typed_and_what_was_said() {
    let foot = |keys: &str| {
        let mut model = model(Tab::Devices);
        press(&mut model, keys);
        lines(&mut model, (80, 24)).pop().unwrap_or_default()
    };
    for (keys, want) in [
        ("", "q quit  Tab table"),
        ("/ s s", "/ss_"),
        ("/ s s enter", "only with \"ss\": 1 rows"),
        ("enter", "`why` is of a tenant"),
        ("?", "Esc back"),
    ] {
        assert!(foot(keys).starts_with(want), "{keys}: {}", foot(keys));
    }
}

#[test]
fn a_table_without_rows_says_so() {
    let mut model = Model::new(look(1, 100.0, &[]), Tab::Tenants, 1.0);
    let shown = |model: &mut Model| lines(model, (80, 24)).swap_remove(4);
    assert_eq!(shown(&mut model), "no tenants yet");
    press(&mut model, "/ z");
    assert_eq!(shown(&mut model), "no tenants with \"z\"");
}
