//! A finding as a picture: on the left who waits, folded into groups with their counts; in the middle
//! what they wait for; on the right who holds it and what that one waits for. A deadlock leads back to
//! the middle. The picture has the same size for twenty waiters and for two hundred thousand.

use std::fmt::Write as _;

use super::html::escape;
use super::words;
use crate::figures::{count, many};
use crate::report::{EntryKind, FaultClass, Finding, Level};

/// Groups of waiters drawn by themselves; the others are one group.
const GROUPS: usize = 6;
/// Steps of a deadlock that are drawn.
const STEPS: usize = 5;
/// Holders drawn of a lock whose holder is not certain.
const HOLDERS: usize = 3;

const WIDTH: f64 = 1120.0;
/// A group: its height, and where its bar begins and may end.
const ROW: f64 = 46.0;
const BAR: (f64, f64) = (112.0, 342.0);
/// The resource in the middle.
const MIDDLE: (f64, f64, f64) = (430.0, 290.0, 104.0);
/// A step on the right.
const RIGHT: (f64, f64, f64) = (796.0, 310.0, 62.0);
const GAP: f64 = 30.0;

/// The picture of finding number `n`; `None`: nobody waits in it.
pub(super) fn svg(n: usize, finding: &Finding) -> Option<String> {
    if finding.waiters.is_empty() {
        return None;
    }
    let groups = groups(finding);
    let steps = steps(finding);
    let left = groups.len() as f64 * ROW;
    let right = steps.len() as f64 * (RIGHT.2 + GAP) - GAP;
    let back = if finding.cycle.is_empty() { 0.0 } else { 34.0 };
    let height = left.max(right).max(MIDDLE.2) + 24.0 + back;
    let centre = (height - back) / 2.0;
    let class = family(finding.class);
    let mut out = format!(
        "<svg class=\"flow {class}\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">\n\
         <defs><marker id=\"tip{n}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\"/></marker></defs>\n",
        escape(&described(finding))
    );
    draw_groups(&mut out, &groups, finding.waiters.total, centre);
    draw_resource(&mut out, finding, centre);
    draw_steps(&mut out, n, finding, &steps, (centre, height));
    out.push_str("</svg>\n");
    Some(out)
}

/// The picture in words.
fn described(finding: &Finding) -> String {
    let waiting = format!("{} wait for {}", count(finding.waiters.total), finding.resource.name);
    match finding.holders.first() {
        Some(holder) => format!("{waiting}, held by {}", holder.frame),
        None => waiting,
    }
}

/// Classes that look alike: the same colour, beside which the words stand.
fn family(class: FaultClass) -> &'static str {
    match class {
        FaultClass::LockOrderInversion
        | FaultClass::RecursiveReadLock
        | FaultClass::SelfDeadlock
        | FaultClass::Deadlock => "ring",
        FaultClass::HeldAcrossIo
        | FaultClass::HeldAcrossLock
        | FaultClass::HeldAcrossChannel
        | FaultClass::HeldAcrossWork
        | FaultClass::StuckIo => "across",
        FaultClass::LostUnlock | FaultClass::Leak => "lost",
        FaultClass::ExhaustedPool | FaultClass::SlowConsumer | FaultClass::SilentProducer => "pool",
        _ => "busy",
    }
}

struct Group {
    count: u64,
    name: String,
    kind: &'static str,
}

/// The largest groups of waiters, and the others as one.
fn groups(finding: &Finding) -> Vec<Group> {
    let waiters = &finding.waiters;
    let shown = if waiters.by_entry.len() > GROUPS { GROUPS - 1 } else { GROUPS };
    let mut groups: Vec<Group> = waiters
        .by_entry
        .iter()
        .take(shown)
        .map(|e| Group { count: e.count, name: e.name.clone(), kind: words::entry(e.kind) })
        .collect();
    let told: u64 = groups.iter().map(|g| g.count).sum();
    let rest = waiters.total.saturating_sub(told);
    if rest > 0 {
        let kinds = waiters.by_entry.len().saturating_sub(groups.len());
        let name = match (groups.is_empty(), kinds) {
            (true, _) => "waiting".to_owned(),
            (false, 0) => "others".to_owned(),
            (false, n) => many(n as u64, "other kind", "other kinds"),
        };
        groups.push(Group { count: rest, name, kind: "" });
    }
    groups
}

/// A box on the right: who, where, and what they wait for.
struct Step {
    who: String,
    frame: String,
    then: String,
    /// Whether the arrow to it is certain.
    certain: bool,
    is_lock: bool,
}

fn steps(finding: &Finding) -> Vec<Step> {
    if !finding.cycle.is_empty() {
        let shown = finding.cycle.len().min(STEPS);
        let certain = finding.confidence.level == Level::Certain;
        let mut steps = Vec::new();
        for (i, step) in finding.cycle.iter().take(shown).enumerate() {
            let who = match (&step.thread, step.goroutine) {
                (Some(name), _) => format!("thread \"{name}\""),
                (None, Some(id)) => format!("goroutine {id}"),
                (None, None) => "a goroutine".to_owned(),
            };
            if i > 0 {
                let who = step.holds.clone();
                steps.push(Step {
                    who,
                    frame: String::new(),
                    then: String::new(),
                    certain,
                    is_lock: true,
                });
            }
            let then = format!("waits for {}", step.waits_for);
            steps.push(Step { who, frame: step.frame.clone(), then, certain, is_lock: false });
        }
        return steps;
    }
    let threads = finding.waiters.by_entry.iter().any(|e| e.kind == EntryKind::Thread);
    finding
        .holders
        .iter()
        .take(HOLDERS)
        .map(|holder| Step {
            who: match (&holder.thread, holder.goroutine) {
                (Some(_), _) => words::threads(holder),
                (None, Some(id)) => format!("goroutine {id}"),
                (None, None) if threads => many(holder.count, "thread", "threads"),
                (None, None) => many(holder.count, "goroutine", "goroutines"),
            },
            frame: holder.frame.clone(),
            then: holder
                .blocked_on
                .as_ref()
                .map_or_else(|| "runs, or may run".to_owned(), |on| format!("waits for {on}")),
            certain: holder.confidence.level == Level::Certain,
            is_lock: false,
        })
        .collect()
}

fn draw_groups(out: &mut String, groups: &[Group], total: u64, centre: f64) {
    let top = centre - groups.len() as f64 * ROW / 2.0;
    for (i, group) in groups.iter().enumerate() {
        let y = top + i as f64 * ROW;
        let share = group.count as f64 / total.max(1) as f64;
        let bar = ((BAR.1 - BAR.0) * share).clamp(3.0, BAR.1 - BAR.0);
        let middle = y + ROW / 2.0;
        let label = match group.kind {
            "" => group.name.clone(),
            kind => format!("{kind} {}", group.name),
        };
        let wide = 1.5 + 12.0 * share;
        let (to, bend) = (MIDDLE.0 - 8.0, 70.0);
        let _ = writeln!(
            out,
            "<g class=\"group\"><title>{} × {}</title>\
             <path class=\"pipe\" d=\"M{from:.0} {middle:.0}C{:.0} {middle:.0} {:.0} {centre:.0} {to:.0} {centre:.0}\" stroke-width=\"{wide:.1}\"/>\
             <text class=\"count\" x=\"100\" y=\"{:.0}\">{}</text>\
             <text class=\"name\" x=\"{}\" y=\"{:.0}\">{}</text>\
             <rect class=\"share\" x=\"{}\" y=\"{:.0}\" width=\"{bar:.1}\" height=\"7\" rx=\"3\"/></g>",
            count(group.count),
            escape(&label),
            BAR.1 + 10.0 + bend,
            to - bend,
            middle + 7.0,
            count(group.count),
            BAR.0,
            middle - 2.0,
            escape(&fit(&label, 31)),
            BAR.0,
            middle + 6.0,
            from = BAR.1 + 10.0,
        );
    }
}

fn draw_resource(out: &mut String, finding: &Finding, centre: f64) {
    let (x, width, height) = MIDDLE;
    let (y, middle) = (centre - height / 2.0, x + width / 2.0);
    let waiting = format!("{} waiting", count(finding.waiters.total));
    let _ = writeln!(
        out,
        "<g class=\"resource\"><title>{}</title><rect class=\"box\" x=\"{x}\" y=\"{y:.0}\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\
         <rect class=\"head\" x=\"{x}\" y=\"{y:.0}\" width=\"{width}\" height=\"28\" rx=\"8\"/>\
         <text class=\"class\" x=\"{middle:.0}\" y=\"{:.0}\">{}</text>\
         <text class=\"title\" x=\"{middle:.0}\" y=\"{:.0}\">{}</text>\
         <text class=\"count\" x=\"{middle:.0}\" y=\"{:.0}\">{waiting}</text></g>",
        escape(&finding.resource.name),
        y + 19.0,
        escape(&fit(words::class(finding.class), 40)),
        y + 56.0,
        escape(&fit(&finding.resource.name, 32)),
        y + 86.0,
    );
}

fn draw_steps(
    out: &mut String,
    n: usize,
    finding: &Finding,
    steps: &[Step],
    (centre, height): (f64, f64),
) {
    let (x, width, tall) = RIGHT;
    let from = MIDDLE.0 + MIDDLE.1;
    if steps.is_empty() {
        let why = "nobody is named";
        let _ = writeln!(
            out,
            "<text class=\"nobody\" x=\"{:.0}\" y=\"{:.0}\">{why}: see below</text>",
            from + 24.0,
            centre + 5.0
        );
        return;
    }
    let ring = !finding.cycle.is_empty();
    let full = steps.len() as f64 * (tall + GAP) - GAP;
    let top = centre - full / 2.0;
    for (i, step) in steps.iter().enumerate() {
        let y = top + i as f64 * (tall + GAP);
        let middle = y + tall / 2.0;
        let sure = if step.certain { "" } else { " unsure" };
        if i == 0 || !ring {
            let bend = (x - from) / 2.0;
            let _ = writeln!(
                out,
                "<path class=\"arrow{sure}\" d=\"M{from:.0} {centre:.0}C{:.0} {centre:.0} {:.0} {middle:.0} {x:.0} {middle:.0}\" marker-end=\"url(#tip{n})\"/>",
                from + bend,
                x - bend
            );
            if i == 0 {
                let _ = writeln!(
                    out,
                    "<text class=\"verb\" x=\"{:.0}\" y=\"{:.0}\">held by</text>",
                    (from + x) / 2.0,
                    (centre + middle) / 2.0 - 9.0
                );
            }
        } else {
            let down = x + width / 2.0;
            let verb = if step.is_lock { "waits for" } else { "held by" };
            let _ = writeln!(
                out,
                "<path class=\"arrow{sure}\" d=\"M{down:.0} {:.0}V{y:.0}\" marker-end=\"url(#tip{n})\"/>\
                 <text class=\"verb side\" x=\"{:.0}\" y=\"{:.0}\">{verb}</text>",
                y - GAP,
                down + 9.0,
                y - GAP / 2.0 + 4.0,
            );
        }
        draw_step(out, step, y);
    }
    if ring {
        // The last one waits for the lock in the middle.
        let last = top + full;
        let (down, low) = (x + width / 2.0, height - 12.0);
        let middle = MIDDLE.0 + MIDDLE.1 / 2.0;
        let bottom = centre + MIDDLE.2 / 2.0;
        let _ = writeln!(
            out,
            "<path class=\"arrow\" d=\"M{down:.0} {last:.0}V{low:.0}H{middle:.0}V{bottom:.0}\" marker-end=\"url(#tip{n})\"/>\
             <text class=\"verb\" x=\"{:.0}\" y=\"{:.0}\">waits for: the ring closes</text>",
            (down + middle) / 2.0,
            low - 6.0,
        );
    }
}

fn draw_step(out: &mut String, step: &Step, y: f64) {
    let (x, width, tall) = RIGHT;
    let middle = x + width / 2.0;
    let class = if step.is_lock { "lock" } else { "who" };
    let radius = if step.is_lock { 6.0 } else { tall / 2.0 };
    let lines = [&step.who, &step.frame, &step.then];
    let shown: Vec<&&String> = lines.iter().filter(|line| !line.is_empty()).collect();
    let first = y + tall / 2.0 - (shown.len() as f64 - 1.0) * 8.5 + 4.5;
    let _ = write!(
        out,
        "<g class=\"{class}\"><title>{}</title><rect x=\"{x}\" y=\"{y:.0}\" width=\"{width}\" height=\"{tall}\" rx=\"{radius:.0}\"/>",
        escape(&shown.iter().map(|l| l.as_str()).collect::<Vec<_>>().join(", "))
    );
    for (i, line) in shown.iter().enumerate() {
        let class = if i == 0 { "first" } else { "small" };
        let _ = write!(
            out,
            "<text class=\"{class}\" x=\"{middle:.0}\" y=\"{:.0}\">{}</text>",
            first + i as f64 * 17.0,
            escape(&fit(line, 42))
        );
    }
    out.push_str("</g>\n");
}

/// A long name loses its middle: its end says most, its beginning what it is.
fn fit(label: &str, fits: usize) -> String {
    let length = label.chars().count();
    if length <= fits {
        return label.to_owned();
    }
    let head = fits / 3;
    let at = |n: usize| label.char_indices().nth(n).map_or(label.len(), |(at, _)| at);
    format!("{}…{}", &label[..at(head)], &label[at(length - (fits - head - 1))..])
}
