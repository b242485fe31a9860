//! What is looked at all the time, from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::Value;

use super::alarms::Named;
use super::client::Answer;
use super::counters::{self, Made};
use super::history::Read;
use super::inject::in_node;
use super::leaders::{self, Claim, Fences};
use super::packets::{OPEN, Probe};
use super::resources::{self, Sample};
use super::scope::{Ms, Part, now};
use super::stage::{NAMESPACE, is_ready, node_of};
use super::work::value_of;
use super::{NODES, Run, addresses, audit};

/// A pod is ready so soon after it was seen first, on a busy machine.
const STARTED: Ms = 120_000;
/// As long as everything may take to be as it should, when all is over.
const PATIENCE: Ms = 120_000;

/// As long as the tries that are under way may take, and as a pod takes to see that it has nobody to try.
const TRIED: Duration = Duration::from_secs(12);

/// Reads what pods tried, as they write it.
pub(super) fn packets(run: &Run<'_>) {
    let mut logs = ProbeLogs::default();
    let mut turn = 0;
    while !run.is_over() {
        if turn % 3 == 0 {
            run.stage.look_for_controllers();
            let _ = run.stage.tell_targets();
        }
        turn += 1;
        logs.read(run);
        run.sleep(1000);
    }
    // What is counted at the end is what was tried until now.
    run.stage.stop_probing();
    std::thread::sleep(TRIED);
    logs.read(run);
}

/// How far the log of each node's probing pod was read, and half a line.
#[derive(Default)]
struct ProbeLogs(BTreeMap<u32, (u64, String)>);

impl ProbeLogs {
    fn read(&mut self, run: &Run<'_>) {
        for node in 1..=NODES {
            let (at, rest) = self.0.entry(node).or_default();
            let lines = new_lines(&run.stage.probe_log(node), at, rest);
            for probe in lines.iter().filter_map(|it| Probe::parse(it)) {
                note_made(run, &probe);
                if probe.began < run.began {
                    continue;
                }
                let broken = run.packets.lock().see(&probe, &run.scope.lock());
                run.looked("packets");
                run.did("probes");
                run.broken("packets", broken);
            }
        }
    }
}

fn note_made(run: &Run<'_>, probe: &Probe) {
    if probe.port != OPEN {
        return;
    }
    let agents = [
        Part::Agent(probe.from),
        Part::Agent(probe.to),
        Part::Packets(probe.from),
        Part::Packets(probe.to),
    ];
    let unseen = run.scope.lock().excuses(&agents, probe.began, probe.ended);
    let mut made = run.made.lock();
    let made = made.entry((probe.from, probe.to)).or_default();
    made.begun += 1;
    made.answered += u64::from(probe.connected);
    made.unseen += u64::from(probe.connected && unseen);
}

/// The whole lines that were added to a file.
fn new_lines(file: &std::path::Path, at: &mut u64, rest: &mut String) -> Vec<String> {
    let mut text = Vec::new();
    let Ok(mut file) = File::open(file) else { return Vec::new() };
    if file.seek(SeekFrom::Start(*at)).is_err() || file.read_to_end(&mut text).is_err() {
        return Vec::new();
    }
    *at += text.len() as u64;
    rest.push_str(&String::from_utf8_lossy(&text));
    let Some(end) = rest.rfind('\n') else { return Vec::new() };
    let whole: String = rest.drain(..=end).collect();
    whole.lines().map(str::to_owned).collect()
}

/// One process whose figures are read.
struct Asked {
    who: String,
    address: String,
    parts: Vec<Part>,
}

fn processes(run: &Run<'_>) -> Vec<Asked> {
    let nodes = 1..=NODES;
    let anywhere =
        || nodes.clone().flat_map(|it| [Part::Pods(it), Part::Agent(it), Part::Packets(it)]);
    let controllers = run.stage.controllers().into_iter().map(|(node, controller)| {
        let mut parts =
            vec![Part::Controller(node), Part::Leading, Part::Api, Part::Reviews, Part::Second];
        parts.extend(anywhere());
        Asked {
            who: format!("controller on node {node}"),
            address: controller.address.to_string(),
            parts,
        }
    });
    let agents = nodes.clone().map(|node| Asked {
        who: format!("agent on node {node}"),
        address: run.stage.cluster.node_address(node),
        parts: vec![
            Part::Agent(node),
            Part::Pods(node),
            Part::Packets(node),
            Part::Api,
            Part::Leading,
        ],
    });
    controllers.chain(agents).collect()
}

/// The sum of a metric over its labels.
pub(super) fn metric(text: &str, name: &str) -> Option<f64> {
    let values: Vec<f64> = series(text, name).map(|(_, value)| value).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// The labels and values of a metric.
fn series<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        let is_it = labels.is_empty() || labels.starts_with('{');
        is_it.then_some((labels, value.parse().ok()?))
    })
}

/// What a process has named as late or stuck, by its kind.
fn named(text: &str) -> Named {
    let metrics = ["fairlead_operations_late_total", "fairlead_watchdog_stalls_total"];
    let all = metrics.into_iter().flat_map(|name| series(text, name));
    let value =
        |labels: &str| labels.split('"').nth(1).unwrap_or("a part of the process").to_owned();
    let mut named = Named::new();
    all.for_each(|(labels, count)| *named.entry(value(labels)).or_default() += count as u64);
    named
}

/// Asks every process what it leads and what it has named.
pub(super) fn figures(run: &Run<'_>) {
    let mut whole = now();
    while !run.is_over() {
        for asked in processes(run) {
            let Answer::Said(200, text) = run.stage.admin(&asked.address, "/metrics") else {
                continue;
            };
            let at = now();
            if let Some(leads) = metric(&text, "fairlead_leader") {
                let terms = metric(&text, "fairlead_leader_terms_total").unwrap_or_default() as u64;
                run.looked("leader");
                run.claims.lock().push(Claim {
                    who: asked.who.clone(),
                    at,
                    leads: leads > 0.0,
                    terms,
                });
            }
            let scope = run.scope.lock();
            let alarm = run.alarms.lock().see(&asked.who, at, named(&text), &asked.parts, &scope);
            drop(scope);
            run.looked("alarms");
            run.broken("alarms", alarm);
        }
        // These go through all that there was.
        if now() < whole + 20_000 {
            run.sleep(1500);
            continue;
        }
        whole = now();
        let two = leaders::two_at_once(&run.claims.lock());
        two.into_iter().for_each(|two| run.broken("leader", Some(two)));
        let mut history = run.history.lock().broken();
        history.truncate(20);
        run.looked("history");
        history.into_iter().for_each(|it| run.broken("history", Some(it)));
        run.sleep(1500);
    }
}

/// Addresses, blocks, fences, pods.
pub(super) fn objects(run: &Run<'_>) {
    let mut fences = Fences::default();
    let mut first_seen: BTreeMap<String, Ms> = BTreeMap::new();
    let mut started: BTreeSet<String> = BTreeSet::new();
    while !run.is_over() {
        let mut routes = Vec::new();
        for node in 1..=NODES {
            if let Ok(printed) = in_node(run.stage, node, "ip -o -4 route", &[]) {
                routes.extend(addresses::pod_routes(&printed).into_iter().map(|it| (node, it)));
            }
        }
        if !routes.is_empty() {
            run.looked("addresses");
            addresses::twice(&routes).into_iter().for_each(|it| run.broken("addresses", Some(it)));
        }
        if let Ok(blocks) = run.stage.cluster.get("/apis/fairlead.dev/v1alpha1/addressblocks") {
            let blocks: Vec<(String, String)> = items(&blocks)
                .filter_map(|it| Some((text(it, "/metadata/name")?, text(it, "/spec/ipv4")?)))
                .collect();
            run.looked("addresses");
            addresses::overlapping(&blocks)
                .into_iter()
                .for_each(|it| run.broken("addresses", Some(it)));
        }
        for path in
            ["/apis/fairlead.dev/v1alpha1/addresspools", "/apis/fairlead.dev/v1alpha1/groups"]
        {
            let Ok(list) = run.stage.cluster.get(path) else { continue };
            for object in items(&list) {
                fence(run, &mut fences, object);
            }
        }
        if let Ok(pods) = run.stage.cluster.pods(NAMESPACE, "app=churn") {
            started_in_time(run, &pods, &mut first_seen, &mut started);
        }
        run.sleep(4000);
    }
}

fn fence(run: &Run<'_>, fences: &mut Fences, object: &Value) {
    let annotation =
        object.pointer("/metadata/annotations").and_then(|all| all["fairlead.dev/fence"].as_str());
    let term = annotation.and_then(|token| token.rsplit('/').next()?.parse().ok());
    let version = text(object, "/metadata/resourceVersion").and_then(|it| it.parse().ok());
    let (Some(term), Some(version), Some(name)) = (term, version, text(object, "/metadata/name"))
    else {
        return;
    };
    let kind = text(object, "/kind").unwrap_or_else(|| "object".to_owned());
    run.looked("fence");
    run.broken("fence", fences.see(&format!("{kind} {name}"), version, term));
}

fn started_in_time(
    run: &Run<'_>,
    pods: &[Value],
    first_seen: &mut BTreeMap<String, Ms>,
    started: &mut BTreeSet<String>,
) {
    let at = now();
    for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
        let Some(uid) = text(pod, "/metadata/uid") else { continue };
        let since = *first_seen.entry(uid.clone()).or_insert(at);
        if is_ready(pod) {
            if started.insert(uid) {
                run.did("pods");
            }
            continue;
        }
        let mut parts = vec![Part::Api];
        parts.extend(
            node_of(pod).map_or_else(
                || (1..=NODES).map(Part::Pods).collect(),
                |node| vec![Part::Pods(node)],
            ),
        );
        run.looked("pods");
        // One that was ready once and is not any more was disturbed, and is looked at by packets.
        if !started.contains(&uid) && at - since > STARTED && !run.excuses(&parts, at - STARTED) {
            let name = text(pod, "/metadata/name").unwrap_or_default();
            run.broken(
                "pods",
                Some(format!("{name} on node {:?} is not ready since {since}", node_of(pod))),
            );
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn text(object: &Value, path: &str) -> Option<String> {
    object.pointer(path)?.as_str().map(str::to_owned)
}

/// Name, process, start, memory in KiB, threads, descriptors, disk in KiB; a line for each process.
const PROCESSES: &str = r#"
for pid in $(pgrep -f '^/usr/local/bin/fairlead (agent|controller)'); do
    role=$(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -d' ' -f2)
    stat=$(<"/proc/$pid/stat") || continue
    set -- ${stat##*) }
    memory=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")
    threads=$(sed -n 's/^Threads:[^0-9]*//p' "/proc/$pid/status")
    files=$(ls "/proc/$pid/fd" | wc -l)
    disk=$(du -sk "/proc/$pid/root/var/lib/fairlead" 2>/dev/null | cut -f1)
    echo "$role $pid ${20} ${memory:-0} ${threads:-0} $files ${disk:-0}"
done
true
"#;

/// Memory, descriptors, threads and disk of every process of ours.
pub(super) fn processes_are_flat(run: &Run<'_>) {
    while !run.is_over() {
        for node in 1..=NODES {
            let Ok(printed) = in_node(run.stage, node, PROCESSES, &[]) else { continue };
            let at = now();
            for line in printed.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [role, pid, start, numbers @ ..] = &words[..] else { continue };
                let numbers: Vec<u64> = numbers.iter().filter_map(|it| it.parse().ok()).collect();
                let [memory, threads, descriptors, disk] = numbers[..] else { continue };
                let sample =
                    Sample { at, memory: memory << 10, descriptors, threads, disk: disk << 10 };
                let who = format!("{role} on node {node}, process {pid} of {start}");
                run.lives.lock().entry(who).or_default().push(sample);
                run.looked("flat");
            }
        }
        run.sleep(5000);
    }
}

// --- when the load has ended ------------------------------------------------------------------------

/// Waits for `look` to find nothing wrong; what it still finds then is broken.
fn settle(run: &Run<'_>, check: &'static str, look: impl Fn() -> Vec<String>) {
    let until = now() + PATIENCE;
    loop {
        let found = look();
        run.looked(check);
        if found.is_empty() {
            return;
        }
        if now() > until {
            found.into_iter().take(20).for_each(|it| run.broken(check, Some(it)));
            return;
        }
        std::thread::sleep(Duration::from_secs(2));
    }
}

pub(super) fn finish(run: &Run<'_>) {
    acknowledged_is_there(run);
    audit_is_complete(run);
    counters_are_exact(run);
    let mut judged = 0;
    for (who, samples) in run.lives.lock().iter() {
        if let Some(grown) = resources::grown(who, samples) {
            judged += 1;
            grown.into_iter().for_each(|it| run.broken("flat", Some(it)));
        }
    }
    run.figure("flat", "lives judged", f64::from(judged));
    run.figure("flat", "lives", run.lives.lock().len() as f64);
    let peak = run.lives.lock().values().flatten().map(|it| it.memory).max().unwrap_or_default();
    run.figure("flat", "peak MiB", (peak >> 20) as f64);
}

/// The last read of every register, at the API server itself.
fn acknowledged_is_there(run: &Run<'_>) {
    settle(run, "history", || {
        let from = now();
        let path = "/api/v1/namespaces/soak/configmaps?labelSelector=soak%3Dregister";
        let answer = run.stage.kube(("GET", path), None, Duration::from_secs(15));
        let Some(list) = answer.ok() else { return vec![answer.told()] };
        let values: BTreeMap<String, u64> = items(&list)
            .filter_map(|it| Some((text(it, "/metadata/name")?, value_of(it)?)))
            .collect();
        let registers = audit::written(&run.history.lock());
        let mut history = run.history.lock();
        for register in registers.into_keys() {
            let value = values.get(&register).copied().unwrap_or_default();
            history.reads.push(Read {
                client: "the last one".to_owned(),
                register,
                value,
                from,
                until: now(),
            });
        }
        Vec::new()
    });
    let broken = run.history.lock().broken();
    broken.into_iter().take(20).for_each(|it| run.broken("history", Some(it)));
    let history = run.history.lock();
    run.figure("history", "writes", history.writes.len() as f64);
    run.figure("history", "acknowledged", history.acknowledged() as f64);
    run.figure("history", "reads", history.reads.len() as f64);
}

fn audit_is_complete(run: &Run<'_>) {
    let written = audit::written(&run.history.lock());
    let figures = std::cell::Cell::new((0, 0));
    settle(run, "audit", || match audited(run) {
        Ok((told, open)) => {
            figures.set((told.values().sum(), open));
            audit::incomplete(&written, &told, open)
        }
        Err(why) => vec![why],
    });
    let (entries, open): (u64, u64) = figures.get();
    run.figure("audit", "entries", entries as f64);
    run.figure("audit", "without an outcome", open as f64);
}

/// By register: how many entries of the audit tell of a success, of all replicas together. And how many
/// entries have no outcome.
fn audited(run: &Run<'_>) -> Result<(BTreeMap<String, u64>, u64), String> {
    let (mut told, mut open): (BTreeMap<String, u64>, u64) = (BTreeMap::new(), 0);
    // Where replicas' clocks and files disagree by milliseconds, a page may begin with what ended the one before.
    let mut seen = BTreeSet::new();
    let mut older = String::new();
    loop {
        let path = format!("/api/v1/audit?user=soak&limit=1000{older}");
        let answer = run.stage.ask(1, ("GET", &path), None, Duration::from_secs(15));
        let page = answer.ok().ok_or_else(|| answer.told())?;
        if page["missing"].as_array().is_some_and(|it| !it.is_empty()) {
            return Err(format!("replicas are missing: {}", page["missing"]));
        }
        let entries = page["entries"].as_array().cloned().unwrap_or_default();
        let new = entries.iter().filter(|it| seen.insert(it["id"].to_string()));
        for outcome in new.filter_map(|it| it["outcome"].as_str()) {
            open += u64::from(["begun", "unknown"].contains(&outcome));
            if let Some(register) = audit::register_of(outcome) {
                *told.entry(register.to_owned()).or_default() += 1;
            }
        }
        match entries.last().and_then(|it| it["id"].as_str()) {
            Some(last) if page["complete"] != true => older = format!("&olderThan={last}"),
            _ => return Ok((told, open)),
        }
    }
}

fn counters_are_exact(run: &Run<'_>) {
    let made: BTreeMap<(u32, u32), Made> = run.made.lock().clone();
    let counted = std::cell::Cell::new(0);
    settle(run, "counters", || {
        let path =
            format!("/api/v1/guard/conversations?namespace={NAMESPACE}&port={OPEN}&limit=1000");
        let answer = run.stage.ask(1, ("GET", &path), None, Duration::from_secs(10));
        let Some(page) = answer.ok() else { return vec![answer.told()] };
        let mut all: BTreeMap<(String, String), u64> = BTreeMap::new();
        for line in page["conversations"].as_array().into_iter().flatten() {
            let end = |end: &str| line[end]["name"].as_str().unwrap_or_default().to_owned();
            *all.entry((end("client"), end("server"))).or_default() +=
                line["sessions"].as_u64().unwrap_or_default();
        }
        let name = |node: u32| format!("{NAMESPACE}/probe-{node}");
        counted.set(0);
        let wrong = made.iter().filter_map(|((from, to), made)| {
            let count = all.get(&(name(*from), name(*to))).copied().unwrap_or_default();
            counted.set(counted.get() + count);
            counters::wrong(&format!("node {from} to node {to}"), *made, count)
        });
        wrong.collect()
    });
    let sum = |of: fn(&Made) -> u64| made.values().map(of).sum::<u64>() as f64;
    run.figure("counters", "counted", counted.get() as f64);
    run.figure("counters", "answered", sum(|it| it.answered));
    run.figure("counters", "begun", sum(|it| it.begun));
    run.figure("counters", "lies taken and not believed", run.stage.lies.load(Relaxed) as f64);
    run.figure("counters", "while an agent was away", sum(|it| it.unseen));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_added_up_over_its_labels_and_not_over_other_names() {
        let text = "# HELP x_total y\nx_total{kind=\"a\"} 2\nx_total{kind=\"b\"} 3\nx_total_more 7\nleader 1\n";
        assert_eq!(metric(text, "x_total"), Some(5.0));
        assert_eq!(metric(text, "leader"), Some(1.0));
        assert_eq!(metric(text, "nothing"), None);
        let text =
            "fairlead_operations_late_total{kind=\"add\"} 2\nfairlead_watchdog_stalls_total 1\n";
        let kinds = [("add".to_owned(), 2), ("a part of the process".to_owned(), 1)];
        assert_eq!(named(text), Named::from(kinds));
    }

    #[test]
    fn half_a_line_waits_for_its_other_half() {
        let file = std::env::temp_dir().join(format!("fairlead-soak-lines-{}", std::process::id()));
        std::fs::write(&file, "one\ntw").unwrap();
        let (mut at, mut rest) = (0, String::new());
        assert_eq!(new_lines(&file, &mut at, &mut rest), ["one"]);
        std::fs::write(&file, "one\ntwo\n").unwrap();
        assert_eq!(new_lines(&file, &mut at, &mut rest), ["two"]);
        std::fs::remove_file(&file).unwrap();
    }
}
