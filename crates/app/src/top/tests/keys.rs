//! What keys and looks do.

use super::*;
use crate::top::column::Cell;
use crate::top::model::{Link, Panel};

fn cell(model: &Model, row: &str, key: &str) -> Cell {
    let at = model.columns().iter().position(|it| it.key == key);
    let row = model.rows().iter().find(|it| it.name == row);
    row.expect("it is there").cells[at.expect("a column")].clone()
}

#[test]
fn rates_are_of_the_last_interval_and_the_first_ones_since_the_start() {
    let mut first = Model::new(look(1, 100.0, &TENANTS), Tab::Tenants, 1.0);
    assert!(first.looks().since_start());
    assert_eq!(cell(&first, "db", "iops"), Cell::Number(10.0));
    first.take(Input::Look(look(1, 102.0, &[("db", 1_400)])));
    assert_eq!(cell(&first, "db", "iops"), Cell::Number(200.0));
    assert_eq!(names(&first), ["db"], "who has gone is not shown");
    // It was started again: its counts begin anew.
    first.take(Input::Look(look(2, 10.0, &[("db", 50)])));
    assert!(first.looks().since_start());
    assert_eq!(cell(&first, "db", "iops"), Cell::Number(5.0));

    let model = model(Tab::Tenants);
    for (row, key, want) in [
        ("batch", "iops", Cell::Number(900.0)),
        ("batch", "bytes_per_second", Cell::Number(900.0 * 4096.0)),
        ("batch", "waited_mean_us", Cell::Number(100.0)),
        ("batch", "promise", Cell::Nothing),
        ("batch", "queued", Cell::Number(3.0)),
        ("db", "promise", Cell::Text("MISSED".into())),
        (
            "db",
            "promised",
            Cell::Text("12000 of 20000 read iops".into()),
        ),
        ("db", "blame", Cell::Text("batch 60 %".into())),
        ("web", "iops", Cell::Number(0.0)),
        ("web", "p99_us", Cell::Nothing),
    ] {
        assert_eq!(cell(&model, row, key), want, "{row} {key}");
    }
}

#[test]
fn other_tables_have_their_figures() {
    let volumes = model(Tab::Volumes);
    assert_eq!(names(&volumes), ["batch-v", "db-v", "web-v"]);
    assert_eq!(cell(&volumes, "db-v", "iops"), Cell::Number(100.0));
    assert_eq!(
        cell(&volumes, "db-v", "blame"),
        Cell::Text("batch 60 %".into())
    );
    let devices = model(Tab::Devices);
    assert_eq!(cell(&devices, "ssd0", "iops"), Cell::Number(1_000.0));
    assert_eq!(cell(&devices, "ssd0", "queued"), Cell::Number(9.0));
    let cores = model(Tab::Cores);
    for (row, key, want) in [
        ("0", "processor_part", Cell::Number(0.25)),
        ("0", "iops", Cell::Number(1_000.0)),
        ("0", "state", Cell::Text("answers".into())),
        ("1", "processor_part", Cell::Nothing),
        ("1", "iops", Cell::Number(0.0)),
        ("1", "state", Cell::Text("silent".into())),
    ] {
        assert_eq!(cell(&cores, row, key), want, "{row} {key}");
    }
    let connections = model(Tab::Connections);
    let host = "2 nqn.2014-08.org.nvmexpress:uuid:host-2";
    assert_eq!(cell(&connections, host, "iops"), Cell::Number(100.0));
    assert_eq!(
        cell(&connections, host, "peer"),
        Cell::Text("127.0.0.1:40002".into())
    );
    let discovery = "9 nqn.2014-08.org.nvmexpress:uuid:host-9";
    assert_eq!(
        cell(&connections, discovery, "tenant"),
        Cell::Text("(discovery)".into())
    );
}

#[test]
fn rows_are_sorted_turned_round_and_filtered() {
    let by = |typed: &str| {
        let columns = Tab::Tenants.columns();
        columns.iter().position(|column| column.is_called(typed))
    };
    for (sort, keys, want) in [
        ("iops", "", ["batch", "db", "web"]),
        ("iops", "r", ["web", "db", "batch"]),
        ("tenant", "", ["batch", "db", "web"]),
        ("NAME", "r", ["web", "db", "batch"]),
        // Who has none comes last, either way.
        ("promise", "", ["db", "web", "batch"]),
        ("promise", "r", ["web", "db", "batch"]),
        // Of equals the names decide.
        ("queued", "r", ["batch", "db", "web"]),
        ("weight", "< < >", ["batch", "db", "web"]),
    ] {
        let mut model = model(Tab::Tenants);
        model.sort_by(by(sort).expect("a column"));
        press(&mut model, keys);
        assert_eq!(names(&model), want, "{sort} {keys}");
    }
    assert_eq!(by("speed"), None);

    let mut model = model(Tab::Tenants);
    for (keys, want) in [
        ("/ D B enter", vec!["db"]),
        // It stays while other tables are looked at.
        ("tab", vec!["db-v"]),
        ("esc", vec!["batch-v", "db-v", "web-v"]),
        ("1 / k e p t", vec!["web"]),
        (
            "backspace backspace backspace backspace",
            vec!["batch", "db", "web"],
        ),
        ("x y", vec![]),
        ("enter enter down end up", vec![]),
        ("/ esc", vec!["batch", "db", "web"]),
    ] {
        let wanted = press(&mut model, keys);
        assert!(wanted.iter().all(|it| *it == Wanted::Nothing), "{keys}");
        assert_eq!(names(&model), want, "{keys}");
    }
}

#[test]
fn who_is_chosen_stays_chosen_when_others_pass() {
    let mut model = model(Tab::Tenants);
    model.take(Input::Page(2));
    for (keys, want) in [
        ("", "batch"),
        ("down", "db"),
        ("down down down", "web"),
        ("home", "batch"),
        ("pagedown", "web"),
        ("pageup", "batch"),
        ("end", "web"),
        ("up", "db"),
        ("r", "db"),
        ("tab 1", "db"),
    ] {
        press(&mut model, keys);
        assert_eq!(names(&model)[model.cursor()], want, "{keys}");
    }
    let faster = [("db", 90_000), ("batch", 9_900), ("web", 1)];
    model.take(Input::Look(look(1, 102.0, &faster)));
    assert_eq!(names(&model)[model.cursor()], "db");
    // It has gone: whoever stands there now is chosen, if there is anybody.
    model.take(Input::Look(look(1, 103.0, &[("batch", 9_900)])));
    assert_eq!(model.cursor(), 0);
    model.take(Input::Look(look(1, 104.0, &[])));
    assert_eq!((model.cursor(), names(&model)), (0, vec![]));
    press(&mut model, "down end enter r s <");
}

#[test]
fn tables_follow_each_other_in_a_circle() {
    let mut model = model(Tab::Tenants);
    for (keys, want) in [
        ("tab", Tab::Volumes),
        ("backtab backtab", Tab::Connections),
        ("tab", Tab::Tenants),
        ("4", Tab::Cores),
        ("3", Tab::Devices),
        ("9", Tab::Devices),
    ] {
        press(&mut model, keys);
        assert_eq!(model.tab(), want, "{keys}");
    }
}

#[test]
fn why_is_asked_of_the_tenant_of_a_row_and_shown_until_it_is_closed() {
    let why = |tenant: &str| Wanted::Why(Some(tenant.to_owned()));
    for (tab, keys, want) in [
        (Tab::Tenants, "enter", why("batch")),
        (Tab::Tenants, "down enter", why("db")),
        (Tab::Volumes, "down enter", why("db")),
        (Tab::Connections, "enter", why("db")),
        // Discovery, and what is no tenant's.
        (Tab::Connections, "down enter", Wanted::Nothing),
        (Tab::Devices, "enter", Wanted::Nothing),
        (Tab::Cores, "enter", Wanted::Nothing),
    ] {
        let mut model = model(tab);
        let wanted = press(&mut model, keys).pop();
        assert_eq!(wanted, Some(want.clone()), "{tab:?} {keys}");
        assert_eq!(model.said().is_some(), want == Wanted::Nothing, "{tab:?}");
        assert_eq!(model.panel().is_some(), want != Wanted::Nothing, "{tab:?}");
    }
    let mut model = model(Tab::Tenants);
    press(&mut model, "enter");
    let text = |model: &Model| match model.panel() {
        Some(Panel::Why { text, .. }) => text.clone(),
        _ => None,
    };
    model.take(Input::Why("db".into(), Ok("of another".into())));
    assert_eq!(text(&model), None);
    model.take(Input::Why("batch".into(), Ok("because".into())));
    assert_eq!(text(&model).as_deref(), Some("because"));
    model.take(Input::Why("batch".into(), Err("it is gone".into())));
    assert_eq!(text(&model).as_deref(), Some("it is gone"));
    // What moves in a table moves here.
    assert_eq!(
        press(&mut model, "down down up tab r"),
        [const { Wanted::Nothing }; 5]
    );
    assert_eq!(model.tab(), Tab::Tenants);
    assert!(matches!(
        model.panel(),
        Some(Panel::Why { scrolled: 1, .. })
    ));
    model.bound_scrolling(0);
    assert!(matches!(
        model.panel(),
        Some(Panel::Why { scrolled: 0, .. })
    ));
    assert_eq!(press(&mut model, "esc"), [Wanted::Why(None)]);
    assert_eq!(model.panel(), None);
    assert_eq!(press(&mut model, "? esc"), [const { Wanted::Nothing }; 2]);
    assert_eq!(press(&mut model, "h q").pop(), Some(Wanted::End));
}

#[test]
fn it_ends_when_somebody_wants_that_and_not_while_one_types() {
    for (keys, ends) in [
        ("q", true),
        ("interrupt", true),
        ("/ q", false),
        ("/ interrupt", true),
        ("enter interrupt", true),
        ("esc", false),
    ] {
        let mut model = model(Tab::Tenants);
        let last = press(&mut model, keys).pop();
        assert_eq!(last == Some(Wanted::End), ends, "{keys}");
    }
}

#[test]
fn the_interval_has_its_steps_and_bounds() {
    for (from, keys, want) in [
        (1.0, "+", Wanted::Interval(2.0)),
        (1.0, "-", Wanted::Interval(0.5)),
        (3.0, "=", Wanted::Interval(5.0)),
        (3.0, "-", Wanted::Interval(2.0)),
        (0.5, "-", Wanted::Nothing),
        (300.0, "+", Wanted::Nothing),
        (86_400.0, "-", Wanted::Interval(300.0)),
    ] {
        let mut model = Model::new(look(1, 1.0, &TENANTS), Tab::Tenants, from);
        assert_eq!(press(&mut model, keys).pop(), Some(want), "{from} {keys}");
    }
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut model = model(Tab::Tenants);
    assert_eq!(press(&mut model, "p"), [Wanted::Paused(true)]);
    model.take(Input::Look(look(1, 102.0, &[("db", 5_000)])));
    model.take(Input::Silent);
    assert_eq!(names(&model), ["batch", "db", "web"]);
    assert_eq!(*model.link(), Link::Up, "nobody asks meanwhile");
    assert_eq!(press(&mut model, "p"), [Wanted::Paused(false)]);
    model.take(Input::Look(look(1, 103.0, &[("db", 5_000)])));
    assert_eq!(names(&model), ["db"]);
}

#[test]
fn a_target_that_is_away_is_told_until_it_is_back() {
    let mut model = model(Tab::Tenants);
    model.take(Input::Away("no target\u{1b}[2J".into()));
    assert_eq!(*model.link(), Link::Away("no target?[2J".into()));
    assert_eq!(
        names(&model),
        ["batch", "db", "web"],
        "the last that is known"
    );
    model.take(Input::Look(look(2, 1.0, &TENANTS)));
    assert_eq!(*model.link(), Link::Up);
    model.take(Input::Silent);
    assert!(matches!(model.link(), Link::Away(_)));
}
