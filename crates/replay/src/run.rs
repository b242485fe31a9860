//! Runs an incident: each design in a process of its own, the old one first, so that what one does to
//! its memory and its threads is its own, and what is stuck can be ended.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::incident::Incident;
use crate::outcome::{Ended, Outcome, Requirement, Sample, Side, thin};
use crate::plan::{Design, LONGEST, Plan};
use crate::record::{Limits, Line, Recorder};

/// It could not be run; the sentence says what is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotRun(pub String);

/// A design's own sampler speaks several times a second; one that is silent for this long has lost it.
const SILENCE: Duration = Duration::from_secs(60);

/// Runs both designs. `side` is how this program is run again for one of them: a command to which
/// nothing is added. Who is told hears of no sample while the stage is set.
pub fn run(
    incident: &'static Incident,
    plan: &Plan,
    side: &dyn Fn(Design) -> Command,
    tell: &mut dyn FnMut(Design, Option<&Sample>),
) -> Result<Outcome, CannotRun> {
    let missing = incident.needs.iter().filter_map(|need| need.missing(&plan.plugin));
    let missing: Vec<String> = missing.collect();
    if !missing.is_empty() {
        return Err(CannotRun(format!("{} cannot be run: {}", incident.name, missing.join("; "))));
    }
    let mut of = |design| one(incident, design, plan, side(design), &mut |s| tell(design, s));
    let (old, new) = (of(Design::Old)?, of(Design::New)?);
    Ok(judge(incident, plan, old, new))
}

fn judge(incident: &Incident, plan: &Plan, old: Side, new: Side) -> Outcome {
    let requirements = (incident.requirements)(plan, &new.ended);
    let void = (incident.void)(plan, &old.ended, &new.ended);
    let ok = is_ok(&requirements, void.as_ref());
    Outcome {
        incident: incident.name.to_owned(),
        seed: plan.seed,
        scale: plan.scale,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        parameters: (incident.parameters)(plan),
        level: incident.level.to_owned(),
        old,
        new,
        requirements,
        void,
        ok,
    }
}

fn is_ok(requirements: &[Requirement], void: Option<&String>) -> bool {
    void.is_none() && !requirements.is_empty() && requirements.iter().all(|r| r.ok)
}

fn limits(incident: &Incident, design: Design, plan: &Plan) -> Limits {
    let time = match design {
        Design::Old => plan.limit.unwrap_or_else(|| (incident.limit)(plan)),
        Design::New => LONGEST,
    };
    Limits { time, memory: plan.memory }
}

fn one(
    incident: &Incident,
    design: Design,
    plan: &Plan,
    mut command: Command,
    tell: &mut dyn FnMut(Option<&Sample>),
) -> Result<Side, CannotRun> {
    let cannot = |why: &str| {
        CannotRun(format!(
            "{}: the {} design could not be run: {why}",
            incident.name,
            design.name()
        ))
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot(&error.to_string()))?;
    let given = serde_json::to_vec(plan).map_err(|error| cannot(&error.to_string()))?;
    let written = child.stdin.take().map(|mut stdin| std::io::Write::write_all(&mut stdin, &given));
    let stderr = child.stderr.take().map(last_words);
    let lines = child.stdout.take().map(lines).filter(|_| matches!(written, Some(Ok(()))));
    let heard = lines.map_or(Err(None), |lines| listen(&lines, SILENCE, tell));
    end(&mut child);
    let words = stderr.and_then(|words| words.join().ok()).unwrap_or_default();
    heard.map_err(|why| match why {
        Some(why) => cannot(&why),
        None if words.trim().is_empty() => cannot("it ended without a word"),
        None => cannot(words.trim()),
    })
}

/// What it said until its end; or why it could not, if it said that.
fn listen(
    lines: &Receiver<Line>,
    silence: Duration,
    tell: &mut dyn FnMut(Option<&Sample>),
) -> Result<Side, Option<String>> {
    let mut timeline = Vec::new();
    loop {
        match lines.recv_timeout(silence) {
            Ok(Line::Staging) => tell(None),
            Ok(Line::Sample(sample)) => {
                tell(Some(&sample));
                timeline.push(sample);
            }
            Ok(Line::Ended(ended)) => return Ok(Side { ended: *ended, timeline: thin(timeline) }),
            Ok(Line::Cannot(why)) => return Err(Some(why)),
            Err(RecvTimeoutError::Disconnected) => return Err(None),
            Err(RecvTimeoutError::Timeout) => return Ok(lost(timeline)),
        }
    }
}

/// Its sampler was the last to go.
fn lost(timeline: Vec<Sample>) -> Side {
    let last = timeline.last().copied().unwrap_or_default();
    let ended = Ended {
        stopped: Some("when it had not said anything for too long".to_owned()),
        seconds: last.at_ms as f64 / 1000.0,
        answered: last.answered,
        refused: last.refused,
        failed: last.failed,
        in_flight: last.in_flight,
        ..Ended::default()
    };
    Side { ended, timeline: thin(timeline) }
}

fn lines(stdout: ChildStdout) -> Receiver<Line> {
    // Some minutes of samples: who listens does nothing else.
    let (send, receive) = sync_channel(1024);
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

/// The end of what it had to say beside its lines.
fn last_words(mut stderr: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    const MOST: usize = 4 << 10;
    std::thread::spawn(move || {
        let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(read) = stderr.read(&mut piece) {
            if read == 0 {
                break;
            }
            kept.extend_from_slice(&piece[..read]);
            let over = kept.len().saturating_sub(MOST);
            kept.drain(..over);
        }
        String::from_utf8_lossy(&kept).into_owned()
    })
}

fn end(child: &mut Child) {
    // It ends by itself after its last line; one that does not is ended.
    let until = Instant::now() + Duration::from_secs(5);
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The whole of a design's process: reads its plan from stdin, runs, says how it went, and does not
/// come back.
pub fn side(incident: &'static Incident, design: Design) -> ! {
    let mut given = String::new();
    let read = std::io::stdin().read_to_string(&mut given).map_err(|error| error.to_string());
    let plan: Result<Plan, String> =
        read.and_then(|_| serde_json::from_str(&given).map_err(|error| error.to_string()));
    let mut plan = plan.unwrap_or_else(|why| cannot(&why));
    plan.dir.push(design.name());
    if let Err(error) = std::fs::create_dir_all(&plan.dir) {
        cannot(&error.to_string());
    }
    let recorder = Recorder::new();
    recorder.sampling(limits(incident, design, &plan));
    match incident.run(design, &plan, &recorder) {
        Ok(()) => recorder.end(None),
        Err(error) => cannot(&stallproof::sentence(&*error)),
    }
}

fn cannot(why: &str) -> ! {
    let _ = Line::Cannot(why.to_owned()).say();
    std::process::exit(2);
}

#[cfg(test)]
mod tests;
