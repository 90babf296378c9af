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
use crate::printable::printable;

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
    // Where the log ends is asked before, so that nothing is behind it that is not shown.
    let end = AuditAsk {
        last: Some(1),
        ..AuditAsk::default()
    };
    let Said::Answer(end) = target.ask::<Vec<AuditRecord>>(&Request::Audit(end))? else {
        return Ok(());
    };
    let mut following = Following {
        who: args.who.clone(),
        after: end.last().map_or(0, |record| record.number),
    };
    let mut ask = ask;
    while let Said::Answer(records) = target.ask(&Request::Audit(ask))? {
        for record in following.take(records) {
            print(&record, as_json);
        }
        ask = following.ask();
        if target.pause_until(Instant::now() + LOOK) {
            break;
        }
    }
    Ok(())
}

/// One who has read the log up to a record, whoever that is of: so nothing is read twice of what
/// is of no interest.
struct Following {
    who: Option<String>,
    after: u64,
}

impl Following {
    /// What comes next.
    fn ask(&self) -> AuditAsk {
        AuditAsk {
            limit: Some(LIMIT_MAX),
            after: Some(self.after),
            ..AuditAsk::default()
        }
    }

    /// Of what has come, what is of interest.
    fn take(&mut self, records: Vec<AuditRecord>) -> impl Iterator<Item = AuditRecord> {
        let last = records.last().map_or(0, |record| record.number);
        self.after = self.after.max(last);
        let who = self.who.clone();
        let mut records = records.into_iter();
        std::iter::from_fn(move || {
            records.find(|record| who.as_ref().is_none_or(|who| record.who == *who))
        })
    }
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
    // An earlier version may have kept more of what a stranger has written.
    let line = format!("{who} ({from})  {object}: {operation}{change}: {outcome}");
    say_line!("{at}  {number}  {}", printable(&line));
}

#[cfg(test)]
mod tests {
    use flashyard_testbed::Scratch;

    use super::*;
    use crate::audit::{Audit, Outcome, of_target};

    /// What others do is read once, and what is looked for is shown once.
    #[test]
    fn who_follows_one_of_many_moves_on_with_all() {
        let directory = Scratch::new("audit-follow");
        let audit = Audit::open(&directory);
        let write = |who: &str, count| {
            for _ in 0..count {
                let mut record = of_target("here", "DELETE /volumes/{name}", String::new());
                who.clone_into(&mut record.who);
                audit.record(record, Outcome::Refused);
            }
        };
        let mut following = Following {
            who: Some("ci".to_owned()),
            after: 0,
        };
        let mut look = || {
            let records = audit.read(&following.ask()).expect("it can be read").rows;
            let shown: Vec<u64> = following.take(records).map(|it| it.number).collect();
            (shown, following.ask().after)
        };
        write("root", 3);
        assert_eq!(look(), (vec![], Some(3)));
        write("ci", 1);
        write("root", 2);
        assert_eq!(look(), (vec![4], Some(6)));
        assert_eq!(look(), (vec![], Some(6)));
        write("ci", 2);
        assert_eq!(look(), (vec![7, 8], Some(8)));
    }
}
