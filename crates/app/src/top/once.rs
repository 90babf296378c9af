//! `top --once`: one table, of one interval, for people or as JSON.

use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::model::{Input, Model};
use super::{ask, begun};
use crate::api::Place;
use crate::cli::TopArgs;
use crate::failure::Failure;
use crate::json;
use crate::out::{say, say_line};
use crate::table::Table;

/// Looks twice, and prints what was in between.
pub(super) fn run(place: &Place, args: &TopArgs, sort: Option<usize>) -> Result<(), Failure> {
    let mut model = begun(Box::new(ask::look(place)?), args, sort);
    thread::sleep(Duration::from_secs_f64(args.interval));
    model.take(Input::Look(Box::new(ask::look(place)?)));
    match args.reach.json {
        true => json::print("", &object(&model)),
        false if model.rows().is_empty() => say_line!("no {} to show", model.tab().name()),
        false => say!("{}", table(&model)),
    }
    Ok(())
}

fn table(model: &Model) -> String {
    let columns = model.columns();
    let header = columns.iter();
    let header = header.map(|column| (column.title.to_uppercase(), column.unit.is_number()));
    let mut table = Table::of(header);
    for row in model.rows() {
        let cells = row.cells.iter().zip(&columns);
        table.row(
            cells
                .map(|(cell, column)| cell.shown(column.unit))
                .collect(),
        );
    }
    table.render()
}

fn object(model: &Model) -> Value {
    let columns = model.columns();
    let rows = model.rows().iter().map(|row| {
        let cells = row.cells.iter().zip(&columns);
        let cells = cells.map(|(cell, column)| (column.key.to_owned(), cell.exact(column.unit)));
        Value::Object(cells.collect::<Map<_, _>>())
    });
    json!({
        "table": model.tab().name(),
        "since_start": model.looks().since_start(),
        "seconds": model.looks().seconds(),
        "rows": rows.collect::<Vec<_>>(),
    })
}
