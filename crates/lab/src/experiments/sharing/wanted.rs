//! What several experiments on sharing want, judged in the table that all of them have.

use crate::report::{Got, Promise, Row, Rows};

/// The columns in which scenes differ.
const SCENE: [&str; 3] = ["profile", "condition", "tenants"];
/// The policies that Gimbal's authors compare it with.
const OTHERS: [&str; 3] = ["parda", "flashfq", "reflex"];

/// Shares are equal, as far as the drive allows: equal parts of it add up to more or less than one.
pub(in crate::experiments) const EQUAL: Promise = Promise {
    wanted: "Under `fair` every tenant's f-Util is 0.95 to 1.05 of the mean of all",
    judge: |rows| Got::within(&of_the_mean(&rows.with("policy", "fair")), 0.95, 1.05),
};

/// Nor is anything lost by making them equal.
pub(in crate::experiments) const NEAR_THE_ORACLE: Promise = Promise {
    wanted: "Under `fair` nobody has less than 0.95 of what the best fixed rates give everybody",
    judge: |rows| {
        let rows = rows.with("policy", "fair");
        Got::at_least(
            &rows.each(|row| row.ratio("f_util_min", "oracle_f_util")),
            0.95,
        )
    },
};

/// What Gimbal's authors report of E2 and E3.
pub(in crate::experiments) const GIMBAL_IS_FAIREST: Promise = Promise {
    wanted: "As its authors report, Gimbal is nearer to equal f-Utils than ReFlex, FlashFQ and Parda (least over greatest)",
    judge: |rows| {
        let gimbal = evenness(&rows.with("policy", "gimbal"))?;
        let others = OTHERS.map(|policy| evenness(&rows.with("policy", policy)));
        let best = others.into_iter().flatten().reduce(f64::max)?;
        Some(Got {
            kept: gimbal > best,
            text: format!("{gimbal:.3} under Gimbal, {best:.3} under the best of the others"),
        })
    },
};

/// A latency-sensitive reader is never worse off than without a switch.
pub(in crate::experiments) const READER_BEATS_FIFO: Promise = Promise {
    wanted: "Under `fair` the p99 of latency-sensitive readers is nowhere above 1.05 of what it is under `fifo`",
    judge: |rows| Got::at_most(&of_fifo(rows, "p99_us", is_latency_reader), 1.05),
};

/// Whether a row is of latency-sensitive readers.
pub(in crate::experiments) fn is_latency_reader(row: &Row) -> bool {
    row.word("worker").contains("latency reader")
}

/// A figure under `fair` as a part of what it is under `fifo`, of these rows.
pub(in crate::experiments) fn of_fifo(
    rows: &Rows,
    figure: &str,
    is: impl Fn(&Row) -> bool,
) -> Vec<f64> {
    let part = |row: &Row| {
        let alike = rows.like(row, &SCENE).like(row, &["worker"]);
        let fifo = alike.with("policy", "fifo").first()?.number(figure)?;
        Some(row.number(figure)? / fifo)
    };
    rows.with("policy", "fair").that(is).each(part)
}

/// The least and the greatest f-Util of each row, as parts of the mean of all tenants.
fn of_the_mean(rows: &Rows) -> Vec<f64> {
    let least = rows.each(|row| row.ratio("f_util_min", "utilization"));
    let greatest = rows.each(|row| row.ratio("f_util_max", "utilization"));
    [least, greatest].concat()
}

/// The least f-Util of a policy's rows over the greatest; of the scene where that is least.
fn evenness(rows: &Rows) -> Option<f64> {
    let of_scene = |row: &Row| {
        let scene = rows.like(row, &SCENE);
        let least = scene.numbers("f_util_min").into_iter().reduce(f64::min)?;
        let greatest = scene.numbers("f_util_max").into_iter().reduce(f64::max)?;
        (greatest > 0.0).then(|| least / greatest)
    };
    rows.each(of_scene).into_iter().reduce(f64::min)
}
