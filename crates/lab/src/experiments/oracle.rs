//! The best that fixed rates could do: the bound that policies are held against.

use flashyard_flash::ssd::Condition;

use super::drive;
use super::sharing::{
    COLUMNS, Cast, GIB, Group, Kind, PROFILE, SHORT, entrants, f_util_chart, play,
};
use crate::experiment::{Context, Experiment, Refused, Setting};
use crate::report::Report;

/// See [`Experiment::claim`].
pub(super) struct Oracle;

const CLAIM: &str = "No policy can give the worst-off tenant more than the best fixed rates would, found by somebody who tries them all on \
the very drive. In each scene of `gimbal-fairness-fragmented`, `gimbal-fairness-clean` and `gimbal-sizes`, every tenant's \
I/O leaves evenly spaced at the same f-Util, and a search finds the one at which the least f-Util that comes of it is \
greatest. Beside it stand the same scenes without a switch. Conflicts between reads and writes at the dies make the bound \
less than one; kinds that use different parts of the drive make it more.";

const SETTINGS: [Setting; 3] = [PROFILE, GIB, SHORT];

impl Experiment for Oracle {
    fn name(&self) -> &'static str {
        "oracle"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo"]
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let profiles = drive::profiles(&context.words("profile"))?;
        let casts = casts(context.quick, profiles.len());
        let found = play(context, &profiles, &casts, &entrants(context), true)?;
        Ok(Report {
            rows: found.rows(&profiles),
            charts: vec![f_util_chart(
                &found,
                &profiles,
                &casts[0],
                "f-util",
                "Without a switch, one side has what the other lacks; the line is what both could have.",
            )],
            ..Report::of(self, context, found.digest, &COLUMNS)
        })
    }
}

/// All scenes on each drive.
fn casts(quick: bool, profiles: usize) -> Vec<Cast> {
    const FRAGMENTED: Condition = Condition::Fragmented(100);
    let mixed = |read, write| [Group::of(16, read), Group::of(16, write)];
    let sizes = [Group::of(16, Kind::READ_4K), Group::of(4, Kind::READ_128K)];
    let scenes = [
        (FRAGMENTED, mixed(Kind::READ_4K, Kind::WRITE_4K)),
        (Condition::Clean, mixed(Kind::READ_128K, Kind::WRITE_128K)),
        (Condition::Clean, sizes),
        (FRAGMENTED, sizes),
    ];
    let scenes = &scenes[..if quick { 1 } else { scenes.len() }];
    let cast = |profile| {
        let cast = move |&(condition, groups)| Cast::new(profile, condition, groups);
        scenes.iter().map(cast)
    };
    (0..profiles).flat_map(cast).collect()
}
