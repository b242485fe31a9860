//! The timeline as SVG: a lane for each kind of event, time from left to right.
//!
//! A stall begins within seconds and is noticed after days, so a gap takes room by its logarithm;
//! where that matters, the gap is labelled.

use std::fmt::Write as _;

use super::html::escape;
use super::words;
use crate::figures::{count, seconds};
use crate::report::{EventKind, TimelineEvent};

const WIDTH: f64 = 1120.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const LANE: f64 = 30.0;
const TOP: f64 = 14.0;
const LANES: [EventKind; 8] = [
    EventKind::Onset,
    EventKind::Anomaly,
    EventKind::Loop,
    EventKind::Leader,
    EventKind::Restart,
    EventKind::Memory,
    EventKind::Dump,
    EventKind::Metric,
];
/// Labels nearer to each other than this would overlap.
const APART: f64 = 92.0;

/// Nothing where nothing has a time.
pub(super) fn svg(events: &[TimelineEvent]) -> Option<String> {
    let mut times: Vec<i64> = events
        .iter()
        .flat_map(|e| [e.at, e.until])
        .flatten()
        .map(jiff::Timestamp::as_millisecond)
        .collect();
    times.sort_unstable();
    times.dedup();
    let first = *times.first()?;
    let scale = Scale::new(&times);
    let lanes: Vec<EventKind> = LANES
        .into_iter()
        .filter(|kind| events.iter().any(|e| e.kind == *kind && e.at.is_some()))
        .collect();
    let floor = TOP + lanes.len() as f64 * LANE;
    let height = floor + 46.0;
    let mut out = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"timeline\">\n"
    );
    for (row, kind) in lanes.iter().enumerate() {
        let y = TOP + row as f64 * LANE + LANE / 2.0;
        let _ = writeln!(
            out,
            "<line class=\"lane\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.0}\" y2=\"{y:.0}\"/><text class=\"name\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 10.0,
            y + 4.0,
            words::event(*kind)
        );
    }
    axis(&mut out, &times, &scale, floor, first);
    for event in events {
        let Some(at) = event.at else { continue };
        let row = lanes.iter().position(|k| *k == event.kind).unwrap_or(0);
        let y = TOP + row as f64 * LANE + LANE / 2.0;
        let x = scale.x(at.as_millisecond());
        let class = words::event(event.kind);
        let times = if event.count > 1 {
            format!(", {} times", count(event.count))
        } else {
            String::new()
        };
        let title = escape(&format!("{at:.3} {}{times}", event.text));
        let _ = write!(out, "<g class=\"{class}\"><title>{title}</title>");
        if let Some(until) = event.until {
            let end = scale.x(until.as_millisecond()).max(x + 2.0);
            let _ = write!(
                out,
                "<line class=\"span\" x1=\"{x:.1}\" x2=\"{end:.1}\" y1=\"{y:.0}\" y2=\"{y:.0}\"/>"
            );
        }
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.0}\" r=\"5\"/></g>");
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// Times, and where each lies.
struct Scale {
    at: Vec<(i64, f64)>,
}

impl Scale {
    fn new(times: &[i64]) -> Self {
        let mut at = Vec::with_capacity(times.len());
        let mut x = 0.0;
        let mut last = times.first().copied().unwrap_or(0);
        for time in times {
            x += gap(time - last);
            last = *time;
            at.push((*time, x));
        }
        let total = if x > 0.0 { x } else { 1.0 };
        for (_, x) in &mut at {
            *x = LEFT + *x / total * (WIDTH - LEFT - RIGHT);
        }
        Self { at }
    }

    fn x(&self, time: i64) -> f64 {
        let found = self.at.partition_point(|(t, _)| *t < time);
        self.at.get(found).map_or(LEFT, |(_, x)| *x)
    }
}

fn gap(millis: i64) -> f64 {
    if millis <= 0 {
        0.0
    } else {
        (1.0 + millis as f64 / 500.0).ln()
    }
}

/// Times under the lanes, and how long the gaps are that look shorter than they were.
fn axis(out: &mut String, times: &[i64], scale: &Scale, floor: f64, first: i64) {
    let mut free = f64::MIN;
    let mut day = 0;
    for time in times {
        let x = scale.x(*time);
        if x < free || x > WIDTH - RIGHT + 1.0 {
            continue;
        }
        let Ok(at) = jiff::Timestamp::from_millisecond(*time) else {
            continue;
        };
        let text = at.to_string();
        let (date, clock) = text.split_once('T').unwrap_or((&text, ""));
        let clock: String = clock.trim_end_matches('Z').chars().take(8).collect();
        let anchor = if x > WIDTH - RIGHT - 40.0 {
            "end"
        } else if x < LEFT + 40.0 {
            "start"
        } else {
            "middle"
        };
        let _ = writeln!(
            out,
            "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.0}\"/><text class=\"time\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{:.0}\">{clock}</text>",
            floor + 4.0,
            floor + 18.0
        );
        let this_day = time.div_euclid(86_400_000);
        if *time == first || this_day != day {
            let _ = writeln!(
                out,
                "<text class=\"time date\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{:.0}\">{date}</text>",
                floor + 34.0
            );
        }
        day = this_day;
        free = x + APART;
    }
    for pair in times.windows(2) {
        let long = pair[1] - pair[0];
        let (from, to) = (scale.x(pair[0]), scale.x(pair[1]));
        if long >= 3_600_000 && to - from > 60.0 {
            let text = seconds(long as f64 / 1000.0);
            let _ = writeln!(
                out,
                "<rect class=\"gap\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.0}\"/><text class=\"time gap\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.0}\">{text} later</text>",
                to - from,
                floor - TOP,
                (from + to) / 2.0,
                TOP - 3.0
            );
        }
    }
}
