//! What `why` says to people: where a tenant's latency comes from, and each promise beside what it
//! got. What would be shown as nothing is left out.

use crate::control::{CauseView, PromiseState, PromiseView, Sampled, WhyDevice, WhyView};
use crate::out::say;
use crate::table::Table;
use crate::units::{figure, microseconds};

/// Less of the mean than this, in microseconds, would be shown as nothing.
const NOTHING_US: f64 = 0.5;
/// The same of a part of all causes.
const NOTHING_SHARE: f64 = 0.000_5;

/// Prints where a tenant's latency comes from, device by device.
pub fn print_why(why: &WhyView) {
    say!("{}", why_text(why));
}

/// The same as text, lines of which end with a line break.
pub fn why_text(why: &WhyView) -> String {
    let devices = why.devices.iter();
    devices
        .map(|device| on_device(&why.tenant, device))
        .collect()
}

fn on_device(tenant: &str, device: &WhyDevice) -> String {
    let who = format!("{tenant} on {} ({})", device.device, device.policy.name());
    let sampled = device.sampled.as_ref().filter(|sampled| sampled.ios > 0);
    let promises = promises(&device.promises);
    match sampled {
        None => format!("{who}: no I/O in the last seconds\n{promises}\n"),
        Some(sampled) => format!(
            "{who}, measured at the target: {} I/Os\n{}{promises}{}{}\n",
            sampled.ios,
            latency(sampled),
            stages(sampled),
            causes(&sampled.causes)
        ),
    }
}

fn latency(sampled: &Sampled) -> String {
    let parts = [
        ("mean", sampled.mean_us),
        ("p50", sampled.p50_us),
        ("p99", sampled.p99_us),
        ("p99.9", sampled.p999_us),
        ("max", sampled.max_us),
    ];
    let parts = parts.map(|(name, us)| format!("{name} {}", microseconds(us)));
    format!("latency: {}\n", parts.join(", "))
}

fn stages(sampled: &Sampled) -> String {
    let stages = [
        (sampled.receive_us, "receive"),
        (sampled.intake_us, "to be taken in"),
        (sampled.turn_us, "waiting for a turn"),
        (sampled.device_us, "at the device"),
        (sampled.send_us, "send"),
    ];
    let stages = stages.iter().filter(|(us, _)| *us >= NOTHING_US);
    let stages: Vec<_> = stages
        .map(|(us, what)| format!("{} {what}", microseconds(*us)))
        .collect();
    match stages.is_empty() {
        true => String::new(),
        false => format!("of the mean: {}\n", stages.join(", ")),
    }
}

fn causes(causes: &[CauseView]) -> String {
    let columns = [("SHARE", true), ("OF THE MEAN", true), ("CAUSE", false)];
    let mut table = Table::of(columns.map(|(name, numeric)| (name.to_owned(), numeric)));
    let causes = causes.iter();
    let causes = causes.filter(|it| it.us >= NOTHING_US && it.share >= NOTHING_SHARE);
    let mut found = false;
    for cause in causes {
        found = true;
        let share = format!("{:.1} %", cause.share * 100.0);
        table.row(vec![share, microseconds(cause.us), cause.cause.clone()]);
    }
    match found {
        false => "nothing was in its way\n".to_owned(),
        true => format!(
            "beyond what it takes when nothing is in the way:\n{}",
            table.render()
        ),
    }
}

/// What was wanted and what was got.
fn promises(promises: &[PromiseView]) -> String {
    if promises.is_empty() {
        return "promised: nothing (no guarantee, no latency target)\n".to_owned();
    }
    let columns = ["PROMISE", "WANTED", "GOT", "STATE", "WHY"];
    let is_number = |name| ["WANTED", "GOT"].contains(&name);
    let mut table = Table::of(columns.map(|name| (name.to_owned(), is_number(name))));
    for it in promises {
        let got = it.got.map(|got| figure(got, &it.unit));
        table.row(vec![
            it.promise.clone().into_owned(),
            figure(it.promised, &it.unit),
            got.unwrap_or_else(|| "-".to_owned()),
            it.state.map_or("not known", state).to_owned(),
            it.reason.clone().unwrap_or_default(),
        ]);
    }
    format!("promised, and got in the last seconds:\n{}", table.render())
}

fn state(state: PromiseState) -> &'static str {
    match state {
        PromiseState::Kept => "kept",
        PromiseState::Missed => "missed",
        PromiseState::NotAskedFor => "not asked for",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(name: &'static str, unit: &'static str, state: Option<PromiseState>) -> PromiseView {
        PromiseView {
            tenant: "db".into(),
            device: "ssd0".into(),
            promise: name.into(),
            unit: unit.into(),
            promised: 30_000,
            got: state.map(|_| 345_487),
            state,
            limited_by: None,
            neighbour: None,
            reason: state.map(|_| "its I/O waits while tenant backup is served".into()),
        }
    }

    fn cause(share: f64, us: f64, cause: &str) -> CauseView {
        CauseView {
            kind: "writes".into(),
            cause: cause.into(),
            tenant: None,
            share,
            us,
        }
    }

    fn device(sampled: Option<Sampled>, promises: Vec<PromiseView>) -> WhyView {
        WhyView {
            tenant: "db".into(),
            devices: vec![WhyDevice {
                device: "ssd0".into(),
                policy: crate::spec::PolicyName::fifo(),
                sampled,
                promises,
                gauges: Vec::new(),
            }],
        }
    }

    fn sampled(causes: Vec<CauseView>) -> Sampled {
        Sampled {
            ios: 70,
            mean_us: 169_357.0,
            p50_us: 210_764.0,
            p99_us: 345_487.0,
            p999_us: 345_487.0,
            max_us: 1_345_487.0,
            receive_us: 0.4,
            intake_us: 0.0,
            turn_us: 12.0,
            device_us: 169_344.0,
            send_us: 0.6,
            causes,
        }
    }

    #[test]
    fn figures_have_the_unit_that_fits_and_nothing_is_left_out() {
        let causes = vec![
            cause(0.934, 150_076.0, "device busy with writes of tenant backup"),
            cause(0.066, 10_646.0, "device busy with garbage collection"),
            cause(0.000_07, 11.0, "device busy with other reads of its own"),
            cause(0.001, 0.2, "send"),
        ];
        let target = promise("latency_target", "us", Some(PromiseState::Missed));
        let text = why_text(&device(Some(sampled(causes)), vec![target]));
        let expected = [
            "db on ssd0 (fifo), measured at the target: 70 I/Os",
            "latency: mean 169.36 ms, p50 210.76 ms, p99 345.49 ms, p99.9 345.49 ms, max 1.35 s",
            "promised, and got in the last seconds:",
            "PROMISE           WANTED        GOT  STATE   WHY",
            "latency_target  30.00 ms  345.49 ms  missed  its I/O waits while tenant backup is served",
            "of the mean: 12 us waiting for a turn, 169.34 ms at the device, 1 us send",
            "beyond what it takes when nothing is in the way:",
            " SHARE  OF THE MEAN  CAUSE",
            "93.4 %    150.08 ms  device busy with writes of tenant backup",
            " 6.6 %     10.65 ms  device busy with garbage collection",
        ];
        assert_eq!(text, expected.join("\n") + "\n\n");
    }

    #[test]
    fn a_tenant_without_io_still_sees_its_promises() {
        let asked = promise("read_iops", "per_second", Some(PromiseState::NotAskedFor));
        let unknown = promise("bandwidth", "bytes_per_second", None);
        let text = why_text(&device(None, vec![asked, unknown]));
        assert!(
            text.starts_with("db on ssd0 (fifo): no I/O in the last seconds\npromised, and got")
        );
        assert!(
            text.contains("read_iops     30000/s  345487/s  not asked for"),
            "{text}"
        );
        assert!(
            text.contains("bandwidth  30.00 KB/s         -  not known"),
            "{text}"
        );
    }

    #[test]
    fn nothing_in_the_way_and_nothing_promised_is_said() {
        let text = why_text(&device(
            Some(sampled(vec![cause(1.0, 0.1, "send")])),
            Vec::new(),
        ));
        assert!(
            text.contains("promised: nothing") && text.ends_with("nothing was in its way\n\n"),
            "{text}"
        );
        assert!(!text.contains("CAUSE"), "{text}");
    }
}
