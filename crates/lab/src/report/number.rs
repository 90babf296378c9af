//! Numbers as people read them: on an axis with unit and prefix (`20K`, `1.5 ms`, `3.2 GB/s`), in a
//! table in the one unit that the heading of its column names.

use super::{Column, Unit, Value};

impl Unit {
    /// What a table's heading says after the column's own words; empty for plain numbers.
    fn suffix(self) -> &'static str {
        match self {
            Unit::None | Unit::OfRow | Unit::Ratio => "",
            Unit::Micros => "us",
            Unit::Iops => "IOPS",
            Unit::BytesPerSecond => "MB/s",
            Unit::Bytes => "KiB",
            Unit::Percent => "%",
        }
    }

    /// A heading with the unit of what stands below it: `p99, us`. `IOPS, IOPS` would say nothing
    /// more.
    pub fn beside(self, heading: &str) -> String {
        match self.suffix() {
            "" => heading.to_owned(),
            unit if unit.eq_ignore_ascii_case(heading) => unit.to_owned(),
            unit => format!("{heading}, {unit}"),
        }
    }

    /// How much of the column's value is one of `suffix`.
    fn scale(self) -> f64 {
        match self {
            Unit::BytesPerSecond => 1e6,
            Unit::Bytes => 1024.0,
            _ => 1.0,
        }
    }

    /// A single value with its unit and a fitting prefix, of at most `digits` significant digits:
    /// `43.6K`, `806 MB/s`, `2.94 ms`. Infinities and what is no number are said to be so.
    pub fn quantity(self, value: f64, digits: i32) -> String {
        if !value.is_finite() {
            return not_finite(value).to_owned();
        }
        let (steps, unit): (&[(f64, &str)], _) = match self {
            Unit::None | Unit::OfRow | Unit::Ratio | Unit::Iops => (&DECIMAL, ""),
            Unit::BytesPerSecond => (&DECIMAL, "B/s"),
            Unit::Bytes => (&BINARY, "B"),
            Unit::Micros => (&MICROS, "s"),
            Unit::Percent => (&[], " %"),
        };
        let magnitude = value.abs();
        let (step, prefix) = steps
            .iter()
            .rev()
            .find(|(step, _)| magnitude >= step * (1.0 - 1e-9))
            .or(steps.first().filter(|_| self == Unit::Micros))
            .copied()
            .unwrap_or((1.0, ""));
        let number = significant(value / step, digits);
        match unit {
            "" => format!("{number}{prefix}"),
            "B/s" | "B" | "s" => format!("{number} {prefix}{unit}"),
            unit => format!("{number}{unit}"),
        }
    }
}

const DECIMAL: [(f64, &str); 5] = [(1e3, "K"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P")];
const BINARY: [(f64, &str); 4] = [
    (1024.0, "Ki"),
    (1_048_576.0, "Mi"),
    (1_073_741_824.0, "Gi"),
    (1_099_511_627_776.0, "Ti"),
];
const MICROS: [(f64, &str); 3] = [(1.0, "u"), (1e3, "m"), (1e6, "")];

/// The cells of a column, all with the same number of decimals so that they stand under each other;
/// `-` where there is no value.
pub(super) fn cells(column: Column, values: &[&Value]) -> Vec<String> {
    let scale = column.unit.scale();
    let numbers: Vec<f64> = values
        .iter()
        .filter_map(|value| match value {
            Value::Real(real) => Some(*real / scale),
            Value::Interval { mean, .. } => Some(*mean / scale),
            _ => None,
        })
        .collect();
    let decimals = decimals(&numbers);
    let number = |value: f64| match column.unit {
        // Rows that do not compare need not align.
        Unit::OfRow if value.is_finite() => grouped(&significant(value, 4)),
        _ => fixed(value / scale, decimals),
    };
    let halves = values.iter().filter_map(|value| match value {
        Value::Interval { half, .. } => Some(number(*half).len()),
        _ => None,
    });
    let widest = halves.max().unwrap_or(0);
    values
        .iter()
        .map(|value| match value {
            Value::Text(text) => text.clone(),
            Value::Count(count) => match column.unit {
                Unit::Bytes | Unit::BytesPerSecond => significant(*count as f64 / scale, 4),
                _ => grouped(&count.to_string()),
            },
            Value::Real(real) => number(*real),
            Value::Interval { mean, half } => {
                let (mean, half) = (number(*mean), number(*half));
                format!("{mean} ± {half:>widest$}")
            }
            Value::Flag(true) => "yes".to_owned(),
            Value::Flag(false) => "NO".to_owned(),
            Value::Missing => "-".to_owned(),
        })
        .collect()
}

/// Decimals that show three digits of the smallest number, and of the greatest no more than five
/// unless it is whole.
fn decimals(numbers: &[f64]) -> usize {
    let sizes = numbers
        .iter()
        .filter(|number| number.is_finite() && **number != 0.0)
        .map(|number| number.abs().log10().floor() as i32);
    let (Some(least), Some(most)) = (sizes.clone().min(), sizes.max()) else {
        return 0;
    };
    (2 - least).clamp(0, (4 - most).clamp(0, 4)) as usize
}

/// `value` with this many decimals and its thousands apart; a value that would look like zero keeps
/// two digits.
fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return not_finite(value).to_owned();
    }
    let magnitude = value.abs();
    if magnitude >= 1e15 || (magnitude > 0.0 && magnitude < 1e-6) {
        return format!("{value:.2e}");
    }
    let text = format!("{value:.decimals$}");
    if value != 0.0 && !text.contains(|c: char| ('1'..='9').contains(&c)) {
        return significant(value, 2);
    }
    grouped(&text)
}

/// `value` rounded to this many significant digits, without trailing zeroes.
fn significant(value: f64, digits: i32) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e15 || (magnitude > 0.0 && magnitude < 1e-6) {
        return format!("{value:.0e}");
    }
    let whole = match magnitude {
        0.0 => 1,
        _ => magnitude.log10().floor() as i32 + 1,
    };
    let decimals = (digits - whole).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// The thousands of a decimal number apart: `1,234,567.8`.
fn grouped(number: &str) -> String {
    let (sign, rest) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number),
    };
    let (whole, fraction) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    let mut text = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

fn not_finite(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "no number",
        value if value > 0.0 => "infinite",
        _ => "-infinite",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_prefix_and_unit() {
        let table = [
            (Unit::Iops, 43_600.0, "43.6K"),
            (Unit::Iops, 999.0, "999"),
            (Unit::None, 0.25, "0.25"),
            (Unit::None, -1500.0, "-1.5K"),
            (Unit::Micros, 85.0, "85 us"),
            (Unit::Micros, 2940.0, "2.94 ms"),
            (Unit::Micros, 0.25, "0.25 us"),
            (Unit::Micros, 0.0, "0 us"),
            (Unit::Micros, 3e6, "3 s"),
            (Unit::BytesPerSecond, 3.2e9, "3.2 GB/s"),
            (Unit::BytesPerSecond, 0.0, "0 B/s"),
            (Unit::Bytes, 131_072.0, "128 KiB"),
            (Unit::Percent, 30.0, "30 %"),
            (Unit::Iops, f64::INFINITY, "infinite"),
            (Unit::Iops, f64::NAN, "no number"),
            (Unit::Iops, 1e30, "1e15P"),
            (Unit::Iops, 1e-30, "1e-30"),
        ];
        for (unit, value, shown) in table {
            assert_eq!(unit.quantity(value, 3), shown, "{unit:?} {value}");
        }
    }

    fn shown(unit: Unit, values: &[Value]) -> Vec<String> {
        let column = Column {
            name: "x",
            heading: "x",
            unit,
        };
        cells(column, &values.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_column_has_one_unit_and_one_number_of_decimals() {
        let reals = |values: &[f64]| {
            values
                .iter()
                .map(|&real| Value::Real(real))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shown(Unit::Micros, &reals(&[9.127, 119.3, 4785.0])),
            ["9.1", "119.3", "4,785.0"]
        );
        assert_eq!(
            shown(Unit::Iops, &reals(&[402_113.4, 11.0])),
            ["402,113", "11"]
        );
        assert_eq!(
            shown(Unit::BytesPerSecond, &reals(&[3.2e9, 8.06e8])),
            ["3,200", "806"]
        );
        assert_eq!(shown(Unit::Ratio, &reals(&[0.98, 1.0])), ["0.980", "1.000"]);
        assert_eq!(
            shown(Unit::Iops, &reals(&[500_000.0, 0.25])),
            ["500,000", "0.25"]
        );
    }

    #[test]
    fn intervals_stand_under_each_other() {
        let interval = |mean, half| Value::Interval { mean, half };
        assert_eq!(
            shown(
                Unit::Micros,
                &[interval(85.0, 1.25), interval(2340.0, 1475.0)]
            ),
            ["85.0 ±     1.2", "2,340.0 ± 1,475.0"]
        );
    }

    #[test]
    fn every_value_has_a_form() {
        let values = [
            Value::Text("fifo".into()),
            Value::Count(1_234_567),
            Value::Interval {
                mean: 100.0,
                half: 2.5,
            },
            Value::Flag(false),
            Value::Missing,
            Value::Real(f64::NAN),
            Value::Real(f64::NEG_INFINITY),
            Value::Real(1e300),
            Value::Real(-0.0),
        ];
        assert_eq!(
            shown(Unit::None, &values),
            [
                "fifo",
                "1,234,567",
                "100 ± 2",
                "NO",
                "-",
                "no number",
                "-infinite",
                "1.00e300",
                "-0",
            ]
        );
    }
}
