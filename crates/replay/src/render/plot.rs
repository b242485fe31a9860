//! One figure of both designs over time, on one axis, as SVG.

use std::fmt::Write as _;

use super::number;
use crate::outcome::Sample;

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 26.0;

/// What is drawn: its name, its unit, and what of a sample.
pub(super) struct Figure<'a> {
    pub(super) name: &'a str,
    /// How a value on the axis is written.
    pub(super) write: fn(f64) -> String,
    pub(super) of: fn(&Sample) -> Option<f64>,
    /// Latencies and counts span orders of magnitude.
    pub(super) logarithmic: bool,
}

pub(super) fn svg(figure: &Figure<'_>, old: &[Sample], new: &[Sample]) -> String {
    let lines = [("old", old), ("new", new)];
    let points = |samples: &[Sample]| -> Vec<(f64, f64)> {
        let point = |s: &Sample| Some((s.at_ms as f64 / 1e3, (figure.of)(s)?));
        samples.iter().filter_map(point).collect()
    };
    let all: Vec<(f64, f64)> = lines.iter().flat_map(|(_, samples)| points(samples)).collect();
    // Of all there is, not of what has this figure: the plots of a page are read one below the other.
    let end = old.iter().chain(new).map(|s| s.at_ms as f64 / 1e3).fold(1.0, f64::max);
    let most = all.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let axis = if figure.logarithmic { Axis::logarithmic(most) } else { Axis::linear(most) };
    let x = |at: f64| LEFT + at / end * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - axis.at(value) * (HEIGHT - TOP - BOTTOM);

    let mut out = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" aria-label=\"{}\">\n",
        figure.name
    );
    for tick in &axis.ticks {
        let y = y(*tick);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"value\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            (figure.write)(*tick)
        );
    }
    for at in seconds(end) {
        let _ = writeln!(
            out,
            "<text class=\"time\" x=\"{:.1}\" y=\"{:.0}\">{} s</text>",
            x(at),
            HEIGHT - 6.0,
            number(at)
        );
    }
    for (design, samples) in lines {
        let points = points(samples);
        let path: Vec<String> =
            points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        if let [only] = &path[..] {
            let (cx, cy) = only.split_once(',').unwrap_or_default();
            let _ = writeln!(out, "<circle class=\"{design}\" cx=\"{cx}\" cy=\"{cy}\" r=\"3\"/>");
        } else if !path.is_empty() {
            let _ = writeln!(out, "<polyline class=\"{design}\" points=\"{}\"/>", path.join(" "));
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Marks on the time axis: about eight, at round numbers.
fn seconds(end: f64) -> Vec<f64> {
    let step = round_up(end / 8.0);
    (0..).map(|i| f64::from(i) * step).take_while(|at| *at <= end * 0.97).collect()
}

/// The next of 1, 2, 5, 10, 20, …
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.max(1e-3).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|m| *m >= value).unwrap_or(power)
}

struct Axis {
    ticks: Vec<f64>,
    most: f64,
    /// Where a logarithmic one begins.
    least: Option<f64>,
}

impl Axis {
    fn linear(most: f64) -> Self {
        let step = round_up(most.max(1.0) / 4.0);
        let ticks: Vec<f64> = (0..=4).map(|i| f64::from(i) * step).collect();
        let top = ticks.iter().copied().find(|tick| *tick >= most).unwrap_or(step * 4.0);
        let ticks = ticks.into_iter().filter(|tick| *tick <= top).collect();
        Self { ticks, most: top, least: None }
    }

    fn logarithmic(most: f64) -> Self {
        let least = 0.1;
        let mut ticks = vec![least];
        while ticks.last().is_some_and(|last| *last < most) {
            ticks.push(ticks[ticks.len() - 1] * 10.0);
        }
        let top = ticks[ticks.len() - 1].max(least * 10.0);
        Self { ticks, most: top, least: Some(least) }
    }

    /// From 0 at the foot to 1 at the top.
    fn at(&self, value: f64) -> f64 {
        let part = match self.least {
            None => value / self.most,
            Some(least) => (value.max(least) / least).log10() / (self.most / least).log10(),
        };
        part.clamp(0.0, 1.0)
    }
}
