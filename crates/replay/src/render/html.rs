//! A page that stands alone: no scripts, nothing fetched, light or dark as the reader has it.

use std::fmt::Write as _;

use doctor::render::escape;

use super::plot::{self, Figure};
use super::{limit, mib, number, time, value};
use crate::incident::Incident;
use crate::outcome::{Outcome, Side};

const STYLE: &str = include_str!("page.css");

/// The outcomes as one HTML file.
pub fn html(outcomes: &[Outcome]) -> String {
    let met = outcomes.iter().filter(|outcome| outcome.ok).count();
    let title = match outcomes {
        [one] => format!("{}: {}", one.incident, verdict(one)),
        all => format!("{met} of {} incidents are non-events", all.len()),
    };
    let title = escape(&title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>fairlead replay: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header><p class=\"by\">fairlead replay</p><h1>{title}</h1>\
         <p class=\"key\"><span class=\"old\">the old design</span><span class=\"new\">Fairlead</span></p></header>\n"
    );
    for outcome in outcomes {
        one(&mut out, outcome);
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn verdict(outcome: &Outcome) -> &'static str {
    match (&outcome.void, outcome.ok) {
        (Some(_), _) => "void",
        (None, true) => "a non-event",
        (None, false) => "not met",
    }
}

fn one(out: &mut String, outcome: &Outcome) {
    let about = Incident::named(&outcome.incident).map_or("", |incident| incident.about);
    let class = if outcome.ok { "met" } else { "unmet" };
    let _ = writeln!(
        out,
        "<section class=\"{class}\"><h2>{}: {}</h2><p class=\"lead\">{}</p>",
        escape(&outcome.incident),
        verdict(outcome),
        escape(about)
    );
    if let Some(why) = &outcome.void {
        let _ = writeln!(out, "<p class=\"void\">{}</p>", escape(why));
    }
    named(out, outcome);
    plots(out, outcome);
    out.push_str("<h3>What must hold</h3><table class=\"must\">\n");
    for requirement in &outcome.requirements {
        let (class, mark) = if requirement.ok { ("yes", "✓") } else { ("no", "✗") };
        let _ = writeln!(
            out,
            "<tr class=\"{class}\"><td class=\"mark\">{mark}</td><td>{}</td><td class=\"num\">{}</td><td class=\"quiet\">{}</td></tr>",
            escape(&requirement.name),
            escape(&value(requirement)),
            escape(&limit(requirement))
        );
    }
    out.push_str("</table>\n");
    both(out, outcome);
    parameters(out, outcome);
    out.push_str("</section>\n");
}

fn named(out: &mut String, outcome: &Outcome) {
    for (design, side) in [("The old design", &outcome.old), ("Fairlead", &outcome.new)] {
        if let Some(named) = &side.ended.named {
            let _ = writeln!(
                out,
                "<p class=\"named\">{design} named it after <b>{}</b>: <code>{}</code> in <code>{}</code></p>",
                time(Some(named.after_ms)),
                escape(&named.what),
                escape(&named.step)
            );
        }
        if let Some(stopped) = &side.ended.stopped {
            let _ = writeln!(
                out,
                "<p class=\"stopped\">{design} was stopped {}, with {} in flight.</p>",
                escape(stopped),
                number(side.ended.in_flight as f64)
            );
        }
    }
}

fn plots(out: &mut String, outcome: &Outcome) {
    let figures = [
        Figure { name: &outcome.level, write: number, of: |s| Some(s.level), logarithmic: false },
        Figure {
            name: "in flight",
            write: number,
            of: |s| Some(s.in_flight as f64),
            logarithmic: false,
        },
        Figure {
            name: "latency: p99 of what was answered; where nothing was, what the oldest has waited",
            write: |ms| time(Some(ms)),
            of: |s| s.p99_ms.or(Some(s.oldest_ms)).filter(|ms| *ms > 0.0),
            logarithmic: true,
        },
        Figure {
            name: "memory",
            write: |mib| format!("{} MiB", number(mib)),
            of: |s| Some(s.memory_bytes as f64 / f64::from(1 << 20)),
            logarithmic: false,
        },
    ];
    for figure in figures {
        let svg = plot::svg(&figure, &outcome.old.timeline, &outcome.new.timeline);
        let name = escape(figure.name);
        let _ = writeln!(out, "<figure><figcaption>{name}</figcaption>{svg}</figure>");
    }
}

fn both(out: &mut String, outcome: &Outcome) {
    out.push_str(
        "<h3>Both designs</h3><table class=\"both\"><tr><th></th><th>old design</th><th>Fairlead</th></tr>\n",
    );
    let mut row = |name: &str, of: &dyn Fn(&Side) -> String| {
        let (old, new) = (of(&outcome.old), of(&outcome.new));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
            escape(name),
            escape(&old),
            escape(&new)
        );
    };
    row("answered", &|side| number(side.ended.answered as f64));
    row("refused", &|side| number(side.ended.refused as f64));
    row("failed", &|side| number(side.ended.failed as f64));
    row("most in flight", &|side| number(side.ended.most_in_flight as f64));
    row("p50", &|side| time(side.ended.p50_ms));
    row("p99", &|side| time(side.ended.p99_ms));
    row("peak memory", &|side| mib(side.ended.peak_memory_bytes));
    let names: std::collections::BTreeSet<&String> = [&outcome.old, &outcome.new]
        .into_iter()
        .flat_map(|side| side.ended.figures.keys())
        .collect();
    for name in names {
        row(name, &|side| side.ended.figures.get(name).map_or("–".to_owned(), |v| number(*v)));
    }
    out.push_str("</table>\n");
    for (design, side) in [("old", &outcome.old), ("new", &outcome.new)] {
        for note in &side.ended.notes {
            let _ = writeln!(out, "<p class=\"quiet\">{design}: {}</p>", escape(note));
        }
    }
}

fn parameters(out: &mut String, outcome: &Outcome) {
    out.push_str("<h3>Parameters</h3><table class=\"parameters\">\n");
    let own = [
        ("seed".to_owned(), outcome.seed.to_string()),
        ("scale".to_owned(), outcome.scale.to_string()),
        ("version".to_owned(), outcome.version.clone()),
    ];
    let given = outcome.parameters.iter().map(|(name, value)| {
        (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    });
    for (name, value) in own.into_iter().chain(given) {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"num\">{}</td></tr>",
            escape(&name),
            escape(&value)
        );
    }
    let _ = writeln!(
        out,
        "</table><p class=\"quiet\">again: <code>fairlead replay {} --scale {} --seed {}</code></p>",
        escape(&outcome.incident),
        outcome.scale,
        outcome.seed
    );
}
