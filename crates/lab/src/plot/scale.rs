//! Maps values to positions on an axis, and places its ticks.

use crate::report::Scale;

/// Beyond this a value is drawn no more than an infinity is: differences of such numbers overflow.
const GREATEST: f64 = 1e30;
/// The smallest value that a logarithmic axis takes.
const LEAST: f64 = 1e-30;

/// What an axis spans. `low < high`, both drawable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub(super) low: f64,
    pub(super) high: f64,
    scale: Scale,
}

/// Where an axis begins and ends relative to its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// At the values themselves; at zero if they come near it.
    Close,
    /// With room above them, and at zero unless they are far from it.
    Roomy,
    /// From zero, with room above: lengths are compared.
    FromZero,
}

/// Whether a value has a place on an axis of this scale.
pub(super) fn drawable(value: f64, scale: Scale) -> bool {
    match scale {
        Scale::Linear => value.abs() <= GREATEST,
        Scale::Log => (LEAST..=GREATEST).contains(&value),
    }
}

impl Span {
    /// What the drawable ones among `values` need; `None` when there are none.
    pub(super) fn fit(values: impl Iterator<Item = f64>, scale: Scale, fit: Fit) -> Option<Self> {
        let (low, high) = values.filter(|&value| drawable(value, scale)).fold(
            None,
            |range, value| match range {
                None => Some((value, value)),
                Some((low, high)) => Some((value.min(low), value.max(high))),
            },
        )?;
        Some(match scale {
            Scale::Linear => Self::linear(low, high, fit),
            Scale::Log => Self::log(low, high, fit),
        })
    }

    fn linear(mut low: f64, mut high: f64, fit: Fit) -> Self {
        let near_zero = match fit {
            Fit::Close => 0.3,
            Fit::Roomy => 0.7,
            Fit::FromZero => 1.0,
        };
        if low >= 0.0 && low <= high * near_zero {
            low = 0.0;
        } else if high <= 0.0 && high >= low * near_zero {
            high = 0.0;
        }
        if low >= high {
            // One value, zero included.
            let half = if low == 0.0 { 1.0 } else { low.abs() / 2.0 };
            (low, high) = (low - half, high + half);
        }
        if fit != Fit::Close {
            let step = nice_step((high - low) / 5.0);
            // A line on the edge itself touches the frame; a bar may end there.
            let free = if fit == Fit::Roomy { 0.25 } else { 0.0 };
            if high > 0.0 {
                high = ((high / step + free).ceil() * step).min(2.0 * GREATEST);
            }
            if low < 0.0 {
                low = ((low / step - free).floor() * step).max(-2.0 * GREATEST);
            }
        }
        Self {
            low,
            high,
            scale: Scale::Linear,
        }
    }

    fn log(low: f64, high: f64, fit: Fit) -> Self {
        let (mut low, mut high) = (low, high);
        if fit == Fit::FromZero {
            // Bars have to begin somewhere: at a power of ten clearly below the shortest.
            low = 10_f64.powf((low / 2.0).log10().floor());
        }
        let margin = match fit {
            Fit::Close => 1.0,
            Fit::Roomy | Fit::FromZero => (high / low).powf(0.06).max(1.1),
        };
        high *= margin;
        if fit == Fit::Roomy {
            low /= margin;
        }
        if low >= high {
            (low, high) = (low / 2.0, high * 2.0);
        }
        Self {
            low,
            high,
            scale: Scale::Log,
        }
    }

    /// Where `value` stands, 0 to 1; `None` outside.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        if !drawable(value, self.scale) {
            return None;
        }
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        (-1e-9..=1.0 + 1e-9)
            .contains(&place)
            .then_some(place.clamp(0.0, 1.0))
    }

    /// Round values within, about `wanted` of them, ascending; never more than twice as many.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<f64> {
        let wanted = wanted.max(2);
        let ticks = match self.scale {
            Scale::Linear => self.linear_ticks(wanted),
            Scale::Log => self.log_ticks(wanted),
        };
        ticks
            .into_iter()
            .filter(|&tick| self.place(tick).is_some())
            .collect()
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let step = nice_step((self.high - self.low) / wanted as f64);
        let first = (self.low / step - 1e-9).ceil();
        // Multiplied, not added up, and without the negative zero that rounding up makes.
        (0..=2 * wanted)
            .map(|index| (first + index as f64) * step + 0.0)
            .take_while(|&tick| tick <= self.high + step * 1e-9)
            .collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        const DIGITS: [&[f64]; 4] = [&[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
        let (first, last) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        let decades = (self.high / self.low).log10();
        if decades < 0.7 {
            return self.linear_ticks(wanted);
        }
        for digits in DIGITS {
            let ticks: Vec<f64> = (first..=last)
                .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)))
                .filter(|&tick| self.place(tick).is_some())
                .collect();
            if ticks.len() <= wanted + 2 {
                return ticks;
            }
        }
        let stride = (decades / wanted as f64).ceil() as usize;
        (first..=last)
            .step_by(stride)
            .map(|power| 10_f64.powi(power))
            .collect()
    }
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is not less than `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|&step| step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(values: &[f64], scale: Scale, fit: Fit) -> Span {
        Span::fit(values.iter().copied(), scale, fit).expect("something to draw")
    }

    fn close(left: &[f64], right: &[f64]) -> bool {
        left.len() == right.len()
            && left
                .iter()
                .zip(right)
                .all(|(left, right)| (left - right).abs() <= 1e-9 * right.abs())
    }

    #[test]
    fn linear_ticks_are_round() {
        let table: [(&[f64], Fit, &[f64]); 4] = [
            (&[0.0, 10.0], Fit::Close, &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
            (
                &[3.0, 97.0],
                Fit::FromZero,
                &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0],
            ),
            (
                &[0.90, 0.95],
                Fit::Close,
                &[0.90, 0.91, 0.92, 0.93, 0.94, 0.95],
            ),
            (&[-1.0, 1.0], Fit::Close, &[-1.0, -0.5, 0.0, 0.5, 1.0]),
        ];
        for (values, fit, ticks) in table {
            let found = span(values, Scale::Linear, fit).ticks(5);
            assert!(close(&found, ticks), "{values:?}: {found:?}");
        }
    }

    #[test]
    fn log_ticks_follow_the_decades() {
        let found = span(&[1.0, 1e4], Scale::Log, Fit::Close).ticks(5);
        assert!(
            close(&found, &[1.0, 10.0, 100.0, 1e3, 1e4]),
            "four decades: {found:?}"
        );
        let found = span(&[10.0, 100.0], Scale::Log, Fit::Close).ticks(4);
        assert!(
            close(&found, &[10.0, 20.0, 30.0, 50.0, 100.0]),
            "one decade: {found:?}"
        );
    }

    #[test]
    fn whatever_the_values_ticks_are_few_and_places_within() {
        let values = [
            0.0,
            1.0,
            -1.0,
            1e-30,
            1e30,
            -1e30,
            1e-300,
            1e300,
            43_600.0,
            43_601.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
        ];
        for scale in [Scale::Linear, Scale::Log] {
            for fit in [Fit::Close, Fit::Roomy, Fit::FromZero] {
                for left in values {
                    for right in values {
                        let pair = [left, right];
                        let Some(span) = Span::fit(pair.into_iter(), scale, fit) else {
                            assert!(pair.iter().all(|&value| !drawable(value, scale)));
                            continue;
                        };
                        assert!(span.low < span.high, "{pair:?} {scale:?} {fit:?}: {span:?}");
                        for value in pair.into_iter().filter(|&value| drawable(value, scale)) {
                            assert!(span.place(value).is_some(), "{pair:?} {fit:?}: {span:?}");
                        }
                        let ticks = span.ticks(5);
                        assert!(ticks.len() <= 24, "{pair:?}: {ticks:?}");
                        assert!(ticks.is_sorted(), "{pair:?}: {ticks:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn bars_begin_at_zero_and_lines_near_their_values() {
        for (values, fit, low) in [
            ([90.0, 95.0], Fit::FromZero, 0.0),
            ([90.0, 95.0], Fit::Roomy, 90.0),
            ([5.0, 95.0], Fit::Roomy, 0.0),
        ] {
            let found = span(&values, Scale::Linear, fit).low;
            assert!(close(&[found], &[low]), "{values:?} {fit:?}: {found}");
        }
    }
}
