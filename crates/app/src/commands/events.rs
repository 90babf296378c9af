//! `flashyard events`.

use super::place;
use crate::cli::EventsArgs;
use crate::control::{EventView, EventsAsk, EventsView, Request};
use crate::failure::Failure;
use crate::live::Watched;
use crate::out::say_line;
use crate::{api, json};

/// `flashyard events`.
pub fn events(args: &EventsArgs) -> Result<(), Failure> {
    let as_json = args.reach.json;
    let place = place(&args.reach)?;
    if args.follow {
        let mut target = Watched::new(place)?;
        return target.follow(args.after.clone(), |event| print(&event, as_json));
    }
    let ask = EventsAsk {
        after: args.after.clone(),
        follow: false,
    };
    let view: EventsView = api::ask(&place, &Request::Events(ask))?;
    view.events.iter().for_each(|event| print(event, as_json));
    Ok(())
}

fn print(event: &EventView, as_json: bool) {
    if as_json {
        let event = serde_json::to_value(event).expect("an event is plain data");
        return json::print_line(event);
    }
    let EventView {
        id,
        at,
        kind,
        what,
        detail,
        ..
    } = event;
    say_line!("{at}  {id}  {}  {what}: {detail}", kind.name());
}
