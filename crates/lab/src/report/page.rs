//! A report as one HTML page that needs nothing else: no script, no font, no network.

use super::{QUICK, Report, Value};
use crate::Experiment;
use crate::markup::{Markup, escape};
use crate::plot;

/// Characters of a text that is not broken into lines.
const LONGEST_WORD: usize = 32;
const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#ffffff;--ink:#1b1f24;--muted:#57606a;--rule:#d8dde3;--bad:#b42318}
@media (prefers-color-scheme:dark){:root{--ground:#14181d;--ink:#e6e9ed;--muted:#9aa4af;--rule:#2f363e;--bad:#ff8a75}}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.55 system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif}
main{max-width:960px;margin:0 auto;padding:40px 20px 80px}
h1{font-size:28px;line-height:1.2;margin:0 0 12px}
h2{font-size:18px;margin:44px 0 12px}
p{max-width:72ch;margin:0 0 12px}
figure{margin:28px -16px;overflow-x:auto}
figure svg{max-width:100%;height:auto}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
th{color:var(--muted);font-weight:600;vertical-align:bottom}
th.number,td.number{text-align:right}
.number,.word,td code{white-space:nowrap}
td.no{color:var(--bad);font-weight:600}
li{max-width:72ch;margin-bottom:6px}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.small{color:var(--muted);font-size:14px}";

impl Report {
    /// The claim, every chart, what was noted, the table, the settings, and `command`, which
    /// repeats the run.
    pub fn page(&self, experiment: &dyn Experiment, command: &str) -> String {
        let name = escape(self.experiment);
        let mut page = Markup::default();
        page.put(format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
            <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
            <title>{name} - Flashyard laboratory</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n\
            <h1>{name}</h1>\n<p>{}</p>",
            escape(experiment.claim()),
        ));
        if self.quick {
            page.put(format_args!("<p><strong>{QUICK}</strong></p>"));
        }
        for chart in &self.charts {
            page.put(format_args!("<figure>\n{}</figure>", plot::svg(chart)));
        }
        self.write_promises(&mut page, experiment);
        self.write_notes(&mut page);
        self.write_table(&mut page);
        self.write_settings(&mut page, experiment);
        page.put(format_args!(
            "<h2>Again</h2>\n<p><code>{}</code></p>\n<p class=\"small\">Seed {}, digest {}. In virtual time the \
            same command gives the same digest on every machine.</p>\n</main>\n</body>\n</html>",
            escape(command),
            self.seed,
            self.digest_text()
        ));
        page.finish()
    }

    fn write_promises(&self, page: &mut Markup, experiment: &dyn Experiment) {
        let rows = self.promise_cells(experiment);
        if rows.is_empty() {
            return;
        }
        page.put(format_args!(
            "<h2>Promises</h2>\n<div class=\"scroll\">\n<table>\n\
            <tr><th>wanted</th><th>got</th><th>kept</th></tr>"
        ));
        for [wanted, got, kept] in rows {
            let class = if kept == "NO" { " class=\"no\"" } else { "" };
            page.put(format_args!(
                "<tr><td>{}</td><td>{}</td><td{class}>{kept}</td></tr>",
                escape(&wanted),
                escape(&got)
            ));
        }
        page.put(format_args!("</table>\n</div>"));
    }

    fn write_notes(&self, page: &mut Markup) {
        if self.notes.is_empty() {
            return;
        }
        page.put(format_args!("<h2>Notes</h2>\n<ul>"));
        for note in &self.notes {
            page.put(format_args!("<li>{}</li>", escape(note)));
        }
        page.put(format_args!("</ul>"));
    }

    fn write_table(&self, page: &mut Markup) {
        let rows = self.cells();
        let class = |place: usize| {
            let short = |row: &Vec<String>| row[place].chars().count() <= LONGEST_WORD;
            match self.is_numeric(place) {
                true => " class=\"number\"",
                false if rows.iter().all(short) => " class=\"word\"",
                false => "",
            }
        };
        let classes: Vec<&str> = (0..self.columns.len()).map(class).collect();
        page.put(format_args!(
            "<h2>Results</h2>\n<div class=\"scroll\">\n<table>\n<tr>"
        ));
        for (heading, class) in self.headings().iter().zip(&classes) {
            page.put(format_args!("<th{class}>{}</th>", escape(heading)));
        }
        for (cells, row) in rows.iter().zip(&self.rows) {
            page.put(format_args!("</tr>\n<tr>"));
            for (place, (cell, class)) in cells.iter().zip(&classes).enumerate() {
                let class = match row.get(place) {
                    Some(Value::Flag(false)) => " class=\"no\"",
                    _ => class,
                };
                page.put(format_args!("<td{class}>{}</td>", escape(cell)));
            }
        }
        page.put(format_args!("</tr>\n</table>\n</div>"));
    }

    fn write_settings(&self, page: &mut Markup, experiment: &dyn Experiment) {
        if self.settings.is_empty() {
            return;
        }
        page.put(format_args!(
            "<h2>Settings</h2>\n<div class=\"scroll\">\n<table>\n\
            <tr><th>key</th><th>value</th><th>meaning</th></tr>"
        ));
        for (key, value) in &self.settings {
            let declared = experiment
                .settings()
                .iter()
                .find(|setting| setting.key == key);
            page.put(format_args!(
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escape(key),
                escape(value),
                escape(declared.map_or("", |setting| setting.meaning))
            ));
        }
        page.put(format_args!("</table>\n</div>"));
    }
}
