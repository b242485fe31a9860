//! A page that stands alone: no scripts, nothing fetched, light or dark as the reader has it.

use std::fmt::Write as _;

use super::facts::facts;
use super::{flow, plot, words};
use crate::figures::{bytes, count, many};
use crate::report::{Evidence, Finding, PathCount, Report};

const STYLE: &str = include_str!("page.css");
const STACKS: usize = 12;
const EVENTS: usize = 200;

/// The report as one HTML file.
pub fn html(report: &Report) -> String {
    let verdict = words::verdict(report.findings.len());
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>fairlead doctor: {verdict}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    let _ = writeln!(out, "<header><p class=\"by\">fairlead doctor</p><h1>{verdict}</h1>");
    if let Some(worst) = report.findings.first() {
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escape(&worst.title));
    }
    out.push_str("</header>\n");
    waits(&mut out, report);
    if !report.timeline.is_empty() {
        let svg = plot::svg(&report.timeline).unwrap_or_default();
        let _ = writeln!(out, "<section><h2>Timeline</h2><div class=\"scroll\">{svg}</div>");
        events(&mut out, report);
        out.push_str("</section>\n");
    }
    for (n, finding) in (1..).zip(&report.findings) {
        one(&mut out, n, finding);
    }
    comparisons(&mut out, report);
    parked(&mut out, report);
    inputs(&mut out, report);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// Pictures of the worst findings: more of them would hide each other.
const PICTURES: usize = 5;

fn waits(out: &mut String, report: &Report) {
    let drawn = (1..).zip(&report.findings).filter_map(|(n, f)| Some((n, f, flow::svg(n, f)?)));
    let pictures: Vec<_> = drawn.take(PICTURES).collect();
    if pictures.is_empty() {
        return;
    }
    out.push_str("<section><h2>Who waits for whom</h2>\n");
    for (n, finding, svg) in pictures {
        let title = escape(&finding.title);
        let _ = writeln!(
            out,
            "<figure><figcaption><a href=\"#f{n}\"><span class=\"n\">{n}</span>{title}</a></figcaption>\
             <div class=\"scroll\">{svg}</div></figure>"
        );
    }
    out.push_str("<p class=\"key\">An arrow that is dashed is likely or possible, not certain.</p></section>\n");
}

fn one(out: &mut String, n: usize, finding: &Finding) {
    let severity = words::severity(finding.severity);
    let _ = writeln!(
        out,
        "<article class=\"{severity}\" id=\"f{n}\"><h2><span class=\"n\">{n}</span><span>{}</span></h2>\
         <p class=\"tags\"><span class=\"tag {severity}\">{severity}</span><span class=\"tag\">{}</span><span class=\"tag\">{}</span></p><dl>",
        escape(&finding.title),
        words::class(finding.class),
        words::level(finding.confidence.level)
    );
    for fact in facts(finding) {
        if fact.label == "waiting" {
            waiting(out, finding, &fact.lines);
            continue;
        }
        let class = if fact.label == "way out" { " class=\"remedy\"" } else { "" };
        let _ = write!(out, "<dt>{}</dt><dd{class}>", fact.label);
        for line in &fact.lines {
            let _ = write!(out, "<p>{}</p>", with_code(line.trim()));
        }
        out.push_str("</dd>\n");
    }
    out.push_str("</dl>\n");
    let stacks: Vec<&PathCount> = finding.waiters.by_path.iter().take(STACKS).collect();
    if !stacks.is_empty() {
        out.push_str("<h3>Stacks of those who wait</h3>\n");
        for path in stacks {
            stack(
                out,
                &format!("{} × {}", count(path.count), path.wants),
                &path.frames,
                path.evidence.as_ref(),
            );
        }
    }
    let held: Vec<_> = finding.holders.iter().filter(|h| !h.frames.is_empty()).collect();
    if !held.is_empty() {
        out.push_str("<h3>Stacks of those who may hold it</h3>\n");
        for holder in held {
            let who = match holder.goroutine {
                _ if holder.thread.is_some() => words::threads(holder),
                Some(id) => format!("goroutine {id}"),
                None => many(holder.count, "goroutine", "goroutines"),
            };
            stack(out, &who, &holder.frames, holder.evidence.as_ref());
        }
    }
    if !finding.evidence.is_empty() {
        let _ = writeln!(
            out,
            "<details class=\"evidence\"><summary>evidence: {}</summary>",
            many(finding.evidence.len() as u64, "line", "lines")
        );
        for evidence in &finding.evidence {
            let _ = writeln!(
                out,
                "<p><b>{}</b> <code>{}</code></p>",
                escape(&words::place(evidence)),
                escape(&evidence.text)
            );
        }
        out.push_str("</details>\n");
    }
    out.push_str("</article>\n");
}

/// Who waits, as bars: the shares are the message.
fn waiting(out: &mut String, finding: &Finding, lines: &[String]) {
    let waiters = &finding.waiters;
    let _ = write!(out, "<dt>waiting</dt><dd><p>{}</p>", escape(lines.first().map_or("", |l| l)));
    if !waiters.by_entry.is_empty() {
        out.push_str("<table class=\"bars\">");
        for entry in waiters.by_entry.iter().take(STACKS) {
            let share = 100.0 * entry.count as f64 / waiters.total.max(1) as f64;
            let _ = write!(
                out,
                "<tr><td class=\"num\">{}</td><td class=\"kind\">{}</td><td title=\"{}\">{}</td><td class=\"bar\"><svg viewBox=\"0 0 100 12\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"{:.1}\" height=\"12\"/></svg></td></tr>",
                count(entry.count),
                words::entry(entry.kind),
                escape(&entry.function),
                escape(&entry.name),
                share.min(100.0)
            );
        }
        out.push_str("</table>");
    }
    out.push_str("</dd>\n");
}

fn stack(out: &mut String, summary: &str, frames: &[String], evidence: Option<&Evidence>) {
    let place = evidence.map_or_else(String::new, |e| {
        format!(" <span class=\"quiet\">{}</span>", escape(&words::place(e)))
    });
    let top = frames.first().map_or_else(String::new, |f| format!(" <code>{}</code>", escape(f)));
    let _ = write!(
        out,
        "<details class=\"stack\"><summary>{}{top}{place}</summary><ol>",
        escape(summary)
    );
    for frame in frames {
        let _ = write!(out, "<li><code>{}</code></li>", escape(frame));
    }
    out.push_str("</ol></details>\n");
}

fn events(out: &mut String, report: &Report) {
    let open = if report.timeline.len() <= 14 { " open" } else { "" };
    let _ = writeln!(
        out,
        "<details class=\"events\"{open}><summary>{}</summary><table>",
        many(report.timeline.len() as u64, "event", "events")
    );
    for event in report.timeline.iter().take(EVENTS) {
        let at = event
            .at
            .map_or_else(String::new, |at| format!("{at:.3}").replace('T', " ").replace('Z', ""));
        let times =
            if event.count > 1 { format!("{} ×", count(event.count)) } else { String::new() };
        let kind = words::event(event.kind);
        let _ = writeln!(
            out,
            "<tr class=\"{kind}\"><td class=\"num\">{at}</td><td><span class=\"dot\"></span>{kind}</td><td>{}</td><td class=\"num\">{times}</td></tr>",
            escape(&event.text)
        );
    }
    out.push_str("</table></details>\n");
}

fn comparisons(out: &mut String, report: &Report) {
    if report.comparisons.is_empty() {
        return;
    }
    out.push_str("<section><h2>Two dumps: who moved, who did not</h2>\n");
    for two in &report.comparisons {
        let moved =
            if two.by_goroutine { format!("{} moved, ", count(two.moved)) } else { String::new() };
        let _ = writeln!(
            out,
            "<p>{} → {}: <b>{} did not move</b>, {moved}{} came, {} went</p>",
            escape(&two.first),
            escape(&two.second),
            count(two.stuck),
            count(two.arrived),
            count(two.left)
        );
        for path in two.stuck_paths.iter().take(STACKS) {
            stack(
                out,
                &format!("{} × did not move", count(path.count)),
                &path.frames,
                path.evidence.as_ref(),
            );
        }
    }
    out.push_str("</section>\n");
}

fn parked(out: &mut String, report: &Report) {
    if report.parked.is_empty() {
        return;
    }
    out.push_str("<section><h2>What else is parked</h2>\n");
    for path in report.parked.iter().take(STACKS) {
        stack(
            out,
            &format!("{} × {}", count(path.count), path.wants),
            &path.frames,
            path.evidence.as_ref(),
        );
    }
    out.push_str("</section>\n");
}

fn inputs(out: &mut String, report: &Report) {
    out.push_str("<section><h2>What was read</h2><table class=\"inputs\">\n");
    for input in &report.inputs {
        let taken = if input.taken_for.is_empty() {
            "not read".to_owned()
        } else {
            input.taken_for.join("; ")
        };
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"num\">{}</td><td><p>{}</p>",
            escape(&input.name),
            if input.size > 0 { bytes(input.size as f64) } else { String::new() },
            escape(&taken)
        );
        if !input.read.is_empty() {
            let _ = write!(out, "<p class=\"quiet\">{}</p>", escape(&input.read.join(", ")));
        }
        for refusal in &input.refused {
            let place = refusal.line.map_or_else(String::new, |line| format!("line {line}: "));
            let _ = write!(out, "<p class=\"refused\">{place}{}</p>", escape(&refusal.why));
        }
        out.push_str("</td></tr>\n");
    }
    out.push_str("</table>");
    for note in &report.notes {
        let _ = write!(out, "<p class=\"quiet\">{}</p>", escape(&note.text));
    }
    out.push_str("</section>\n");
}

/// Escaped, with what stands between backticks as code.
fn with_code(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split('`').enumerate() {
        let part = escape(part);
        if i % 2 == 1 {
            let _ = write!(out, "<code>{part}</code>");
        } else {
            out.push_str(&part);
        }
    }
    out
}

/// Text that is text in any place of a page: between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
