//! For a terminal: the two designs side by side, then what must hold.

use std::fmt::Write as _;

use super::{limit, mib, number, time, value};
use crate::outcome::{Outcome, Sample, Side};
use crate::plan::Design;

/// The whole outcome.
pub fn text(outcome: &Outcome) -> String {
    let Outcome { incident, seed, scale, old, new, .. } = outcome;
    let mut out = format!("{incident}  seed {seed}  scale {scale}\n");
    let parameters = outcome.parameters.iter().map(|(name, value)| match value.as_str() {
        Some(text) => format!("{name} {text}"),
        None => format!("{name} {value}"),
    });
    let _ = writeln!(out, "{}\n", parameters.collect::<Vec<_>>().join(", "));
    let mut row = |name: &str, of: &dyn Fn(&Side) -> String| {
        let _ = writeln!(out, "  {name:<22}{:<30}{}", of(old), of(new));
    };
    row("", &|side| if std::ptr::eq(side, old) { "old design" } else { "Fairlead" }.to_owned());
    row("answered", &|side| number(side.ended.answered as f64));
    row("refused", &|side| number(side.ended.refused as f64));
    row("failed", &|side| number(side.ended.failed as f64));
    row("in flight at the end", &|side| number(side.ended.in_flight as f64));
    row("most in flight", &|side| number(side.ended.most_in_flight as f64));
    row("p50, p99, longest", &|side| {
        let ended = &side.ended;
        let times = [ended.p50_ms, ended.p99_ms, ended.max_ms].map(time);
        times.join(", ")
    });
    row("peak memory", &|side| mib(side.ended.peak_memory_bytes));
    row(&outcome.level, &|side| side.timeline.last().map_or("–".to_owned(), |s| number(s.level)));
    let shared = old.ended.figures.keys().filter(|name| new.ended.figures.contains_key(*name));
    for name in shared {
        row(name, &|side| side.ended.figures.get(name).map_or("–".to_owned(), |v| number(*v)));
    }
    row("stopped", &|side| side.ended.stopped.clone().unwrap_or_else(|| "no".to_owned()));
    row("took", &|side| time(Some(side.ended.seconds * 1e3)));
    for (design, side) in [("the old design", old), ("Fairlead", new)] {
        if let Some(named) = &side.ended.named {
            let after = time(Some(named.after_ms));
            let _ = writeln!(
                out,
                "\n  {design} named it after {after}: {} in {}",
                named.what, named.step
            );
        }
        for note in &side.ended.notes {
            let _ = writeln!(out, "  {design}: {note}");
        }
    }
    out.push('\n');
    for requirement in &outcome.requirements {
        let mark = if requirement.ok { "✓" } else { "✗" };
        let (value, limit) = (value(requirement), limit(requirement));
        let _ = writeln!(out, "  {mark} {:<48}{value:<18}{limit}", requirement.name);
    }
    let _ = match &outcome.void {
        Some(why) => writeln!(out, "\n{incident}: void: {why}"),
        None if outcome.ok => writeln!(out, "\n{incident}: a non-event"),
        None => writeln!(out, "\n{incident}: NOT MET"),
    };
    out
}

/// One design's line while it runs.
pub fn progress(design: Design, sample: &Sample, level: &str) -> String {
    format!(
        "{} {:>6.1} s  in flight {:<7} answered {:<8} refused {:<7} failed {:<6} p99 {:<9} oldest {:<9} memory {:<9} {level} {}",
        design.name(),
        sample.at_ms as f64 / 1e3,
        sample.in_flight,
        sample.answered,
        sample.refused,
        sample.failed,
        time(sample.p99_ms),
        time(Some(sample.oldest_ms)),
        mib(sample.memory_bytes),
        number(sample.level),
    )
}
