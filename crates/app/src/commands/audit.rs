//! `flashyard audit`.

use std::time::{Duration, Instant};

use super::place;
use crate::api;
use crate::cli::AuditArgs;
use crate::control::{AuditAsk, AuditRecord, LIMIT_MAX, Request};
use crate::failure::Failure;
use crate::json;
use crate::live::{Said, Watched};
use crate::out::say_line;

/// As many are shown when nothing is said.
const LAST: usize = 100;

/// How often one that goes on looks for more.
const LOOK: Duration = Duration::from_secs(1);

/// `flashyard audit`.
pub fn audit(args: &AuditArgs) -> Result<(), Failure> {
    let place = place(&args.reach)?;
    let last = match args.since {
        Some(_) => args.limit,
        None => Some(args.limit.unwrap_or(LAST)),
    };
    let ask = AuditAsk {
        limit: last.is_none().then_some(LIMIT_MAX),
        after: None,
        last,
        who: args.who.clone(),
        since: args.since.clone(),
    };
    let as_json = args.reach.json;
    if !args.follow {
        let records: Vec<AuditRecord> = api::ask(&place, &Request::Audit(ask))?;
        for record in &records {
            print(record, as_json);
        }
        return Ok(());
    }
    let mut target = Watched::new(place)?;
    let mut ask = ask;
    while let Said::Answer(records) = target.ask(&Request::Audit(ask.clone()))? {
        let records: Vec<AuditRecord> = records;
        for record in &records {
            print(record, as_json);
        }
        let after = records.last().map(|record| record.number).or(ask.after);
        // From now on all that are new; none are behind 0 where there was none.
        ask = AuditAsk {
            limit: Some(LIMIT_MAX),
            after: after.or(Some(0)),
            last: None,
            ..ask
        };
        if target.pause_until(Instant::now() + LOOK) {
            break;
        }
    }
    Ok(())
}

fn print(record: &AuditRecord, as_json: bool) {
    if as_json {
        let record = serde_json::to_value(record).expect("a record is plain data");
        return json::print_line(record);
    }
    let AuditRecord {
        number,
        at,
        by,
        who,
        from,
        operation,
        object,
        change,
        detail,
        ..
    } = record;
    let outcome = match (record.code, &**detail) {
        (None, "") => "done".to_owned(),
        (None, detail) => detail.to_owned(),
        (Some(_), detail) => format!("refused: {detail}"),
    };
    let who = match &**who {
        "" => by.name().to_owned(),
        who => format!("{} {who}", by.name()),
    };
    let change = match &**change {
        "" => String::new(),
        change => format!(" {change}"),
    };
    say_line!("{at}  {number}  {who} ({from})  {object}: {operation}{change}: {outcome}");
}
