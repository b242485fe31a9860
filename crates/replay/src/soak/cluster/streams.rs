//! What is open for long: a watch of what is written, as the console has it, and a shell in a pod.
//!
//! - A watch is told every acknowledged write within [`TOLD`], and while it stands never an older value after
//!   a newer one.
//! - A shell says back what is typed within [`ECHOED`].
//!
//! Both end when the token ends that they were opened with, and are opened anew: at another controller.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::sync::mpsc::error::TryRecvError;

use super::history::Write;
use super::scope::{Ms, Part, Scope, now};
use super::stage::NAMESPACE;
use super::work::value_of;
use super::{NODES, Run};

const TOLD: Ms = 12_000;
const ECHOED: Ms = 10_000;
/// Between two lines that are typed.
const TYPED: Ms = 1000;

/// What one watch was told, since it was opened at the controller of a node.
#[derive(Debug)]
struct Watch {
    node: u32,
    opened: Ms,
    /// Whether it was told the whole list.
    listed: bool,
    values: BTreeMap<String, u64>,
}

impl Watch {
    fn new(node: u32, opened: Ms) -> Self {
        Self { node, opened, listed: false, values: BTreeMap::new() }
    }

    /// Takes in an event; says what is wrong with it.
    fn told(&mut self, event: &str, data: &Value) -> Option<String> {
        match event {
            "restarted" => {
                self.listed = true;
                let items = data["items"].as_array().into_iter().flatten();
                let older: Vec<String> = items.filter_map(|it| self.value(it)).collect();
                older.into_iter().next()
            }
            "applied" => self.value(data),
            _ => None,
        }
    }

    fn value(&mut self, object: &Value) -> Option<String> {
        let register = object.pointer("/metadata/name")?.as_str()?;
        let value = value_of(object)?;
        let before = self.values.insert(register.to_owned(), value).unwrap_or_default();
        (before > value).then(|| {
            format!("the watch at node {} told {before} of {register} and then {value}", self.node)
        })
    }

    /// The first acknowledged write that it should have been told and was not.
    fn missed(&self, writes: &[Write], scope: &Scope, at: Ms) -> Option<String> {
        if !self.listed || at < self.opened + TOLD {
            return None;
        }
        let parts = [Part::Controller(self.node), Part::Api, Part::Packets(self.node)];
        let missed = writes.iter().find(|write| {
            let known = self.values.get(&write.register).copied().unwrap_or_default();
            let due = |acknowledged: Ms| {
                acknowledged + TOLD < at
                    && !scope.excuses(&parts, acknowledged.max(self.opened), at)
            };
            known < write.value && write.acknowledged.is_some_and(due)
        })?;
        Some(format!(
            "the watch at node {} of {} was not told {} of {}, acknowledged at {:?}",
            self.node, self.opened, missed.value, missed.register, missed.acknowledged
        ))
    }
}

/// Opens a watch of all registers, again and again.
pub(super) fn watches(run: &Run<'_>) {
    let mut node = 1;
    while !run.is_over() {
        node = node % NODES + 1;
        let path = format!(
            "/api/v1/clusters/{}/resources/configmaps?namespace={NAMESPACE}&labels=soak%3Dregister",
            run.stage.name
        );
        let Ok(mut lines) = run.stage.lines(node, &path) else {
            run.sleep(1000);
            continue;
        };
        let (mut watch, mut event, mut checked) = (Watch::new(node, now()), String::new(), now());
        while !run.is_over() {
            match lines.try_recv() {
                Ok(line) => {
                    if let Some(name) = line.strip_prefix("event:") {
                        name.trim().clone_into(&mut event);
                    }
                    let data = line.strip_prefix("data:").map(serde_json::from_str::<Value>);
                    if let Some(Ok(data)) = data {
                        run.did("watched");
                        run.broken("watches", watch.told(&event, &data));
                    }
                    continue;
                }
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {}
            }
            if now() > checked + 3000 {
                checked = now();
                run.looked("watches");
                let missed = watch.missed(&run.history.lock().writes, &run.scope.lock(), checked);
                let is_missed = missed.is_some();
                run.broken("watches", missed);
                if is_missed {
                    break;
                }
            }
            run.sleep(100);
        }
        run.sleep(500);
    }
}

/// Why a line that was typed is not well, if it is not.
fn unechoed(typed: Ms, at: Ms, parts: &[Part], scope: &Scope) -> Option<String> {
    (at > typed + ECHOED && !scope.excuses(parts, typed, at))
        .then(|| format!("a shell said nothing back to what was typed at {typed} until {at}"))
}

/// Opens a shell in a pod of each node in turn, and types.
pub(super) fn shells(run: &Run<'_>) {
    let mut turn: u32 = 0;
    while !run.is_over() {
        turn += 1;
        let (node, pod) = (turn % NODES + 1, turn / 2 % NODES + 1);
        let parts = [
            Part::Controller(node),
            Part::Api,
            Part::Pods(pod),
            Part::Packets(node),
            Part::Packets(pod),
            Part::Between(node.min(pod), node.max(pod)),
            Part::Between(1, node.max(2)),
            Part::Between(1, pod.max(2)),
        ];
        let Ok((keys, mut said)) = run.stage.shell(node, &format!("probe-{pod}")) else {
            run.sleep(1000);
            continue;
        };
        'open: for number in 0..60 {
            let line = format!("line {turn} {number}");
            let typed = now();
            if run.is_over() || keys.try_send(line.clone()).is_err() {
                break;
            }
            loop {
                match said.try_recv() {
                    Ok(back) if back == line => break,
                    Ok(_) => continue,
                    Err(TryRecvError::Disconnected) => break 'open,
                    Err(TryRecvError::Empty) => run.sleep(50),
                }
                let late = unechoed(typed, now(), &parts, &run.scope.lock());
                let is_late = late.is_some() || now() > typed + 3 * ECHOED;
                run.broken("shells", late);
                if is_late || run.is_over() {
                    break 'open;
                }
            }
            run.did("typed");
            run.looked("shells");
            run.sleep(TYPED);
        }
        run.sleep(500);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(value: u64, acknowledged: Ms) -> Write {
        let acknowledged = Some(acknowledged);
        Write { register: "r".to_owned(), value, from: 0, acknowledged }
    }

    fn object(value: u64) -> Value {
        json!({ "metadata": { "name": "r" }, "data": { "value": value.to_string() } })
    }

    #[test]
    fn a_write_that_a_watch_was_not_told_is_found() {
        let (mut watch, mut scope) = (Watch::new(1, 1000), Scope::default());
        let writes = [write(1, 2000), write(2, 20_000)];
        assert_eq!(watch.missed(&writes, &scope, 90_000), None, "it was not told the list");
        assert_eq!(watch.told("restarted", &json!({ "items": [object(1)] })), None);
        assert_eq!(watch.missed(&writes, &scope, 21_000), None, "it may take a while");
        assert!(watch.missed(&writes, &scope, 40_000).is_some());
        scope.open(&[Part::Controller(2)], 25_000);
        assert!(watch.missed(&writes, &scope, 40_000).is_some(), "another one's");
        scope.open(&[Part::Controller(1)], 25_000);
        assert_eq!(watch.missed(&writes, &scope, 40_000), None);
        assert_eq!(watch.told("applied", &object(2)), None);
        assert_eq!(watch.missed(&writes, &Scope::default(), 40_000), None);
    }

    #[test]
    fn a_watch_that_goes_back_in_time_is_found() {
        let mut watch = Watch::new(1, 0);
        assert_eq!(watch.told("applied", &object(2)), None);
        assert_eq!(watch.told("interrupted", &json!({ "why": "it is away" })), None);
        assert!(watch.told("restarted", &json!({ "items": [object(1)] })).is_some());
    }

    #[test]
    fn a_silent_shell_is_found_unless_a_fault_explains_it() {
        let (parts, mut scope) = ([Part::Controller(1)], Scope::default());
        assert_eq!(unechoed(1000, 5000, &parts, &scope), None);
        assert!(unechoed(1000, 12_000, &parts, &scope).is_some());
        scope.open(&parts, 3000);
        assert_eq!(unechoed(1000, 12_000, &parts, &scope), None);
    }
}
