//! What came of a soak on a cluster: as JSON, as text and as a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use doctor::render::escape;
use serde::Serialize;

use super::fault::{ELSEWHERE, Kind};
use super::scope::{Ms, Part};

/// So many different things are told of each check; the rest is counted.
const TOLD: usize = 20;
const STYLE: &str = include_str!("../../render/page.css");

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub on: &'static str,
    pub seed: u64,
    pub minutes: f64,
    pub started_in_s: f64,
    pub faults: Vec<Injected>,
    pub work: BTreeMap<&'static str, Work>,
    pub checks: BTreeMap<&'static str, Check>,
    /// Kinds of faults that such a cluster cannot have, and why.
    pub elsewhere: Vec<(&'static str, &'static str)>,
    /// For how long the machine had no time for the soak.
    pub starved_ms: Ms,
    pub ledger: Vec<Event>,
    pub void: Option<String>,
    pub ok: bool,
}

/// A fault that was injected.
#[derive(Clone, Debug, Serialize)]
pub struct Injected {
    pub fault: Kind,
    pub what: String,
    pub at_ms: Ms,
    pub until_ms: Ms,
    pub recovered_by_ms: Ms,
    pub may_disturb: Vec<Part>,
    /// Why it could not be ended: what came after it says nothing.
    pub stayed: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Work {
    pub done: u64,
    /// Below this the soak shows nothing.
    pub minimum: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Check {
    pub about: &'static str,
    /// How often it was looked at.
    pub looked: u64,
    pub broken: Vec<Broken>,
    /// How many more there were.
    pub more: u64,
    /// What else is worth knowing.
    pub figures: BTreeMap<&'static str, f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Broken {
    pub at_ms: Ms,
    pub what: String,
    /// The fault that lasted then, or that was the last.
    pub during: Option<String>,
}

/// A line of the soak's ledger.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub at_ms: Ms,
    pub what: String,
}

impl Check {
    pub(super) fn note(&mut self, at_ms: Ms, what: String, during: Option<String>) -> bool {
        let is_new = !self.broken.iter().any(|broken| broken.what == what);
        if is_new && self.broken.len() < TOLD {
            self.broken.push(Broken { at_ms, what, during });
        } else {
            self.more += 1;
        }
        is_new
    }
}

impl Report {
    /// Says whether it holds, and whether it shows anything.
    pub(super) fn judge(mut self) -> Self {
        let mut void: Vec<String> = Vec::new();
        for (name, work) in &self.work {
            if work.done < work.minimum {
                void.push(format!("{name}: {} of at least {}", work.done, work.minimum));
            }
        }
        for (name, check) in &self.checks {
            if check.looked == 0 {
                void.push(format!("{name} was never looked at"));
            }
        }
        if self.faults.is_empty() {
            void.push("no fault was injected".to_owned());
        }
        for fault in &self.faults {
            void.extend(
                fault.stayed.iter().map(|why| format!("{} did not end: {why}", fault.what)),
            );
        }
        let most = self.minutes * 60_000.0 / 5.0;
        if self.starved_ms as f64 > most {
            void.push(format!("the machine had no time for it for {} s", self.starved_ms / 1000));
        }
        self.void = (!void.is_empty()).then(|| void.join("; "));
        self.ok = self.void.is_none() && self.checks.values().all(|check| check.broken.is_empty());
        self
    }

    /// The minute before the first thing that broke, or the last minute.
    pub fn last_minute(&self) -> Vec<&Event> {
        let broken = self.checks.values().flat_map(|check| &check.broken).map(|it| it.at_ms).min();
        let last = self.ledger.last().map(|event| event.at_ms);
        let until = broken.or(last).unwrap_or_default();
        self.ledger
            .iter()
            .filter(|it| it.at_ms + 60_000 >= until && it.at_ms <= until + 1000)
            .collect()
    }
}

/// For people.
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "soak on a cluster of {} nodes, {:.1} minutes, seed {}: {} faults\n",
        super::NODES,
        report.minutes,
        report.seed,
        report.faults.len()
    );
    for (name, check) in &report.checks {
        let is = if check.broken.is_empty() { "✓" } else { "✗" };
        let _ = writeln!(text, "  {is} {name:10} {} ({} looks)", check.about, check.looked);
        for Broken { at_ms, what, during } in &check.broken {
            let during = during.as_ref().map_or(String::new(), |it| format!(" [{it}]"));
            let _ = writeln!(text, "      {:.1} s: {what}{during}", *at_ms as f64 / 1000.0);
        }
        if check.more > 0 {
            let _ = writeln!(text, "      and {} more", check.more);
        }
    }
    for (name, Work { done, minimum }) in &report.work {
        let _ = writeln!(text, "  - {name:10} {done} (at least {minimum})");
    }
    for (what, why) in &report.elsewhere {
        let _ = writeln!(text, "  not here: {what}: {why}");
    }
    if let Some(void) = &report.void {
        let _ = writeln!(text, "  void: {void}");
    }
    if report.ok {
        text += "all of it holds\n";
        return text;
    }
    text += "the ledger of the last minute before that:\n";
    for Event { at_ms, what } in report.last_minute() {
        let _ = writeln!(text, "  {:7.1} s  {what}", *at_ms as f64 / 1000.0);
    }
    let _ = writeln!(text, "run it again with --on cluster --seed {}", report.seed);
    text
}

/// One page that stands alone.
pub fn html(report: &Report) -> String {
    let verdict = match (&report.void, report.ok) {
        (Some(_), _) => "void",
        (None, true) => "all of it holds",
        (None, false) => "something does not hold",
    };
    let title = format!("Soak of {:.0} minutes, seed {}: {verdict}", report.minutes, report.seed);
    let title = escape(&title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>fairlead replay: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<header><p class=\"by\">fairlead replay soak</p>\
         <h1>{title}</h1><p class=\"lead\">{} faults on a real cluster of {} nodes.</p></header>\n",
        report.faults.len(),
        super::NODES
    );
    if let Some(void) = &report.void {
        let _ = writeln!(out, "<p class=\"void\">{}</p>", escape(void));
    }
    let class = if report.ok { "met" } else { "unmet" };
    let _ = writeln!(out, "<section class=\"{class}\"><h2>What must hold</h2><table>");
    out += "<tr><th>check</th><th>what</th><th>looks</th><th>broken</th><th>figures</th></tr>\n";
    for (name, check) in &report.checks {
        let mut broken = String::new();
        for Broken { at_ms, what, during } in &check.broken {
            let during = during.as_deref().unwrap_or_default();
            let _ = write!(
                broken,
                "{:.1} s: {} <em>{}</em><br>",
                *at_ms as f64 / 1000.0,
                escape(what),
                escape(during)
            );
        }
        if check.more > 0 {
            let _ = write!(broken, "and {} more", check.more);
        }
        let figures: Vec<String> =
            check.figures.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = writeln!(
            out,
            "<tr><td>{name}</td><td>{}</td><td class=\"num\">{}</td><td>{}</td><td>{}</td></tr>",
            escape(check.about),
            check.looked,
            if broken.is_empty() { "none" } else { &broken },
            escape(&figures.join(", "))
        );
    }
    out += "</table></section>\n<section><h2>What was done</h2><table><tr><th>work</th><th>done</th><th>at least</th></tr>\n";
    for (name, Work { done, minimum }) in &report.work {
        let _ = writeln!(
            out,
            "<tr><td>{name}</td><td class=\"num\">{done}</td><td class=\"num\">{minimum}</td></tr>"
        );
    }
    out += "</table></section>\n<section><h2>Faults</h2><table>\
            <tr><th>from</th><th>to</th><th>recovered by</th><th>fault</th><th>may disturb</th></tr>\n";
    for it in &report.faults {
        let seconds = |ms: Ms| ms as f64 / 1000.0;
        let parts: Vec<String> = it.may_disturb.iter().map(|part| format!("{part:?}")).collect();
        let parts = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
        let _ = writeln!(
            out,
            "<tr><td class=\"num\">{:.1} s</td><td class=\"num\">{:.1} s</td><td class=\"num\">{:.1} s</td>\
             <td>{}: {}</td><td>{}</td></tr>",
            seconds(it.at_ms),
            seconds(it.until_ms),
            seconds(it.recovered_by_ms),
            escape(&it.what),
            escape(it.fault.about()),
            escape(&parts)
        );
    }
    out += "</table></section>\n<section><h2>Not on such a cluster</h2><table>\n";
    for (what, why) in ELSEWHERE {
        let _ = writeln!(out, "<tr><td>{}</td><td>{}</td></tr>", escape(what), escape(why));
    }
    out += "</table></section>\n</main>\n</body>\n</html>\n";
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let check = Check { about: "nothing is lost", looked: 10, ..Check::default() };
        let fault = Injected {
            fault: Kind::KillEtcd,
            what: "kill-etcd".to_owned(),
            at_ms: 100_000,
            until_ms: 110_000,
            recovered_by_ms: 170_000,
            may_disturb: vec![Part::Api],
            stayed: None,
        };
        let event = |at_ms, what: &str| Event { at_ms, what: what.to_owned() };
        Report {
            on: "cluster",
            seed: 7,
            minutes: 5.0,
            started_in_s: 60.0,
            faults: vec![fault],
            work: BTreeMap::from([("writes", Work { done: 10, minimum: 10 })]),
            checks: BTreeMap::from([("history", check)]),
            elsewhere: ELSEWHERE.to_vec(),
            starved_ms: 0,
            ledger: vec![event(1000, "the load begins"), event(100_000, "kill-etcd begins")],
            void: None,
            ok: false,
        }
    }

    #[test]
    fn it_holds_when_nothing_is_broken_and_enough_was_done() {
        let report = report().judge();
        assert!(report.ok, "{report:?}");
        assert!(text(&report).contains("all of it holds"));
        assert!(html(&report).contains("all of it holds"));
    }

    #[test]
    fn what_broke_is_told_with_the_seed_and_the_ledger_of_that_minute() {
        let mut report = report();
        let check = report.checks.get_mut("history").unwrap();
        assert!(check.note(105_000, "a <write> is lost".to_owned(), Some("kill-etcd".to_owned())));
        assert!(!check.note(106_000, "a <write> is lost".to_owned(), None), "it is told once");
        let report = report.judge();
        assert!(!report.ok && report.void.is_none());
        let told = text(&report);
        for part in ["a <write> is lost", "[kill-etcd]", "kill-etcd begins", "--seed 7"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!told.contains("the load begins"), "{told}");
        assert!(html(&report).contains("a &lt;write&gt; is lost"));
    }

    #[test]
    fn a_run_that_did_too_little_is_void() {
        let mut idle = report();
        idle.work.insert("writes", Work { done: 9, minimum: 10 });
        let mut blind = report();
        blind.checks.insert("packets", Check::default());
        let mut calm = report();
        calm.faults.clear();
        let mut starved = report();
        starved.starved_ms = 100_000;
        let mut stayed = report();
        stayed.faults[0].stayed = Some("etcd does not run".to_owned());
        for report in [idle, blind, calm, starved, stayed] {
            let report = report.judge();
            assert!(report.void.is_some() && !report.ok, "{report:?}");
        }
    }
}
