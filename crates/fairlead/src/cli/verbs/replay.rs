use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use replay::plan::{self, Design, Plan};
use replay::{INCIDENTS, Incident, Outcome, Sample, render};
use serde::Serialize;

use crate::output::{self, Failure, Format, NO, Output, Verdict};
use crate::values;

/// Replay the incidents that Fairlead was built for, with the old design and with this one
///
/// Each runs twice on this machine, with the same load from the same seed: first a small model of the
/// old design, written from its public report, then Fairlead's real code over its real edges, with the
/// fault at the same place. What must hold is checked and printed with its figures.
///
/// Examples:
///   fairlead replay list
///   fairlead replay cni-burst --scale 0.2
///   fairlead replay all -o json --html replay.html
///   fairlead replay soak --minutes 10 --seed 7
///   fairlead replay soak --on cluster --minutes 120 --html soak.html
///   fairlead replay growth --only nodes
///
/// Exit codes: 0 all that must hold holds, 1 something does not, 2 could not run it here.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What there is to replay, and what each needs
    List(List),
    /// Every incident that can be run here
    All(Run),
    /// One writer is stuck under a flood of reports, joins and reviews
    ControllerStall(Run),
    /// Clusters that refuse, hang, are slow or rotate credentials, under readers at full speed
    ClusterSync(Run),
    /// A node gets 100 pods at once, and one set-up hangs in the kernel (root)
    CniBurst(Run),
    /// A CRD lands after the first reconcile (kube-apiserver)
    LateCrd(Run),
    /// A Secret and a node land after the first reconcile (kube-apiserver)
    LateNode(Run),
    /// Everything together for minutes or hours, with faults that a seed chooses and what must hold looked at
    ///
    /// On parts: the jobs in this process, each with faults of its own. On a cluster: three nodes with
    /// kubelet, containerd and a control plane in namespaces of this machine, Fairlead installed on them,
    /// users and pods at work, a fault about every minute, and checks from outside. That needs root and
    /// KUBEBUILDER_ASSETS, and takes minutes to start.
    ///
    /// Examples:
    ///   fairlead replay soak --minutes 10 --seed 7
    ///   fairlead replay soak --on cluster --minutes 120 --html soak.html --json soak.json
    ///   fairlead replay soak --on cluster --minutes 5 --only reboot,hung-disk
    ///
    /// Exit codes: 0 all that must hold holds, 1 something does not or the run shows too little, 2 could
    /// not run it here.
    #[command(verbatim_doc_comment)]
    Soak(Soak),
    /// How the cost of one change and of standing grows: at a size, and at two, four and eight times that
    ///
    /// Fairlead's own code is run at each size in a process of its own, and what one change costs is
    /// measured in CPU time, what standing costs in memory. The power of the size by which it grows must be
    /// what it should be: 0 for most changes, 1 for memory. It takes some minutes and needs nothing.
    ///
    /// Examples:
    ///   fairlead replay growth
    ///   fairlead replay growth --only nodes,rules -o json
    ///
    /// Exit codes: 0 all of it holds, 1 something grows faster than it may, 2 could not measure it.
    #[command(verbatim_doc_comment)]
    Growth(Growth),
    /// One design of one incident, in a process of its own
    #[command(hide = true)]
    Side(Side),
    /// `up`, with writers that can be held
    #[command(hide = true)]
    Server(Box<super::up::Args>),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// How much of the report's load; 1 is all of it
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    scale: f64,
    /// Decides all that is left to chance, for both designs alike
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// When the old design is stopped [default: as the incident needs]
    #[arg(long, value_name = "TIME", value_parser = time)]
    limit: Option<Duration>,
    /// The most memory, in MiB, that either design may take before it is stopped
    #[arg(long, value_name = "MIB", default_value_t = plan::MEMORY >> 20)]
    memory: u64,
    /// Write one self-contained page with the timelines to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The CNI plugin [default: fairlead-cni beside this program]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Soak {
    /// How long the load lasts
    #[arg(long, value_name = "MINUTES", default_value = "5", value_parser = minutes)]
    minutes: Duration,
    /// Decides which faults come when, and to whom [default: another one each time]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// What is soaked: the jobs as parts of this process, or a cluster of three nodes
    #[arg(long, value_name = "STAGE", default_value = "parts")]
    on: Stage,
    /// Only these, separated by commas: jobs on parts (net, fleet, lease, guard, mesh), faults on a cluster
    /// (such as kill-agent)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Write the report as one page to this file (on a cluster)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the logs of all controllers and agents in this directory (on a cluster)
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
    /// The CNI plugin [default: fairlead-cni beside this program]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Be the daemon of the soak's node, with its files here
    #[arg(long, value_name = "DIRECTORY", hide = true)]
    node: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Growth {
    /// Only these, separated by commas: pods, nodes, clusters, rules, conversations, watchers
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure one size of one of them in this process
    #[arg(long, value_name = "NUMBER", hide = true)]
    size: Option<usize>,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Stage {
    Parts,
    Cluster,
}

#[derive(Debug, clap::Args)]
struct Side {
    #[arg(value_parser = incident)]
    incident: &'static Incident,
    #[arg(value_parser = design)]
    design: Design,
}

fn scale(text: &str) -> Result<f64, String> {
    let valid = |scale: &f64| *scale > 0.0 && *scale <= 100.0;
    text.parse().ok().filter(valid).ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    values::duration(text).ok_or_else(|| "expected a time such as 5s or 2m".to_owned())
}

fn minutes(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|n: f64| Duration::try_from_secs_f64(n * 60.0).ok());
    let valid = replay::soak::SHORTEST..=Duration::from_hours(24 * 7);
    let time = time.filter(|time| valid.contains(time));
    time.ok_or_else(|| "expected a number of minutes from 0.35 on, at most a week".to_owned())
}

fn incident(name: &str) -> Result<&'static Incident, String> {
    Incident::named(name).ok_or_else(|| "no such incident".to_owned())
}

fn design(name: &str) -> Result<Design, String> {
    let found = Design::BOTH.into_iter().find(|design| design.name() == name);
    found.ok_or_else(|| "expected old or new".to_owned())
}

pub(crate) fn run(args: &Args) -> Verdict {
    match &args.what {
        What::List(List { output }) => list(*output),
        What::All(run) => all(run),
        What::ControllerStall(run) => one(run, "controller-stall"),
        What::ClusterSync(run) => one(run, "cluster-sync"),
        What::CniBurst(run) => one(run, "cni-burst"),
        What::LateCrd(run) => one(run, "late-crd"),
        What::LateNode(run) => one(run, "late-node"),
        What::Soak(args) => soak(args),
        What::Growth(args) => growth(args),
        What::Side(Side { incident, design }) => replay::side(incident, *design),
        What::Server(args) => {
            replay::obey();
            super::up::run(args)
        }
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    needs: Vec<&'static str>,
    /// What is missing here.
    missing: Vec<String>,
}

fn list(output: Output) -> Verdict {
    let plugin = plugin(None)?;
    let listed: Vec<Listed> = INCIDENTS
        .iter()
        .map(|incident| Listed {
            name: incident.name,
            about: incident.about,
            needs: incident.needs.iter().map(|need| need.name()).collect(),
            missing: incident.needs.iter().filter_map(|need| need.missing(&plugin)).collect(),
        })
        .collect();
    output.print(&listed, || {
        let rows = listed.iter().map(|listed| {
            let here = if listed.missing.is_empty() { "yes" } else { "no" };
            [listed.name, listed.about, &listed.needs.join(", "), here].map(str::to_owned)
        });
        output::table(["NAME", "ABOUT", "NEEDS", "HERE"], rows)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn one(run: &Run, name: &str) -> Verdict {
    let incident = Incident::named(name).ok_or_else(|| Failure(format!("no incident {name}")))?;
    let outcome = replayed(run, incident)?;
    run.output.print(&outcome, || render::text(&outcome))?;
    page(run, std::slice::from_ref(&outcome))?;
    Ok(ExitCode::from(if outcome.ok { 0 } else { NO }))
}

/// One that cannot be run here does not keep the others from being run; but then not all was shown.
fn all(run: &Run) -> Verdict {
    let (mut outcomes, mut missing) = (Vec::new(), Vec::new());
    for incident in INCIDENTS {
        match replayed(run, incident) {
            Ok(outcome) => {
                if run.output.output == Format::Table {
                    output::line(&render::text(&outcome))?;
                }
                outcomes.push(outcome);
            }
            Err(Failure(why)) => missing.push(why),
        }
    }
    if run.output.output != Format::Table {
        run.output.print(&outcomes, String::new)?;
    }
    page(run, &outcomes)?;
    if !missing.is_empty() {
        return Err(Failure(missing.join("\nerror: ")));
    }
    Ok(ExitCode::from(if outcomes.iter().all(|outcome| outcome.ok) { 0 } else { NO }))
}

fn soak(args: &Soak) -> Verdict {
    if let Some(dir) = &args.node {
        replay::soak::node(dir);
    }
    match args.on {
        Stage::Parts => soak_parts(args),
        Stage::Cluster => soak_cluster(args),
    }
}

fn soak_parts(args: &Soak) -> Verdict {
    if args.html.is_some() || args.logs.is_some() {
        return Err(Failure("--html and --logs are for --on cluster; use -o json here".to_owned()));
    }
    let only = named(&args.only, &replay::soak::Job::ALL, replay::soak::Job::name)?;
    let program = std::env::current_exe()?;
    let scratch = Scratch::new()?;
    let plan = replay::soak::Soak {
        seed: args.seed.unwrap_or_else(replay::soak::any_seed),
        time: args.minutes,
        only,
        dir: scratch.0.clone(),
        plugin: plugin(args.plugin.clone())?,
    };
    eprintln!("soak: seed {}", plan.seed);
    let node = || {
        let mut command = Command::new(&program);
        command.args(["replay", "soak", "--node"]);
        command
    };
    let mut progress = crate::cli::terminal::Progress::new();
    let soaked = replay::soak::soak(&plan, &node, &mut |line| progress.show(|| line.to_owned()));
    drop(progress);
    let report = soaked.map_err(|cannot| Failure(format!("{cannot} (seed {})", plan.seed)))?;
    write_json(args, &report)?;
    args.output.print(&report, || replay::soak::text(&report))?;
    Ok(ExitCode::from(if report.ok { 0 } else { NO }))
}

fn soak_cluster(args: &Soak) -> Verdict {
    use replay::soak::cluster;
    let only = named(&args.only, &cluster::Kind::ALL, cluster::Kind::name)?;
    if args.minutes < cluster::SHORTEST {
        return Err(Failure("a soak on a cluster takes a minute at least: --minutes 1".to_owned()));
    }
    let scratch = Scratch::new()?;
    let plan = cluster::Plan {
        seed: args.seed.unwrap_or_else(replay::soak::any_seed),
        time: args.minutes,
        only,
        dir: scratch.0.clone(),
        plugin: plugin(args.plugin.clone())?,
        program: std::env::current_exe()?,
        logs: args.logs.clone(),
    };
    eprintln!("soak on a cluster: seed {}", plan.seed);
    let mut shown = Lines::new();
    let soaked = cluster::soak(&plan, &mut |told| match told {
        cluster::Told::Progress(line) => shown.show(line),
        cluster::Told::Event(line) => shown.event(line),
    });
    drop(shown);
    let report = soaked.map_err(|cannot| Failure(format!("{cannot} (seed {})", plan.seed)))?;
    write_json(args, &report)?;
    if let Some(path) = &args.html {
        write(path, &cluster::html(&report))?;
    }
    args.output.print(&report, || cluster::text(&report))?;
    Ok(ExitCode::from(if report.ok { 0 } else { NO }))
}

fn growth(args: &Growth) -> Verdict {
    use replay::growth::{self, Dimension};
    let only = named(&args.only, &Dimension::ALL, Dimension::name)?;
    if let Some(size) = args.size {
        let [dimension] = only[..] else {
            return Err(Failure("--size is of one dimension: name it with --only".to_owned()));
        };
        let scratch = Scratch::new()?;
        let costs = growth::measure(dimension, size, &scratch.0);
        let costs = costs.map_err(|cannot| Failure(cannot.to_string()))?;
        output::line(&serde_json::to_string(&costs).map_err(|e| Failure(e.to_string()))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe()?;
    let one = |dimension: Dimension, size: usize| {
        let mut command = Command::new(&program);
        let size = size.to_string();
        command.args(["replay", "growth", "--only", dimension.name(), "--size", &size]);
        command
    };
    let dimensions = if only.is_empty() { Dimension::ALL.to_vec() } else { only };
    let mut shown = Lines::new();
    let grown = growth::grow(&dimensions, &one, &mut |line| shown.show(line));
    drop(shown);
    let report = grown.map_err(|cannot| Failure(cannot.to_string()))?;
    args.output.print(&report, || growth::text(&report))?;
    Ok(ExitCode::from(if report.ok { 0 } else { NO }))
}

/// Those of `all` that are named.
fn named<T: Copy>(
    names: &[String],
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<Vec<T>, Failure> {
    let find = |wanted: &String| {
        let found = all.iter().copied().find(|one| name(*one) == wanted);
        found.ok_or_else(|| {
            let there: Vec<_> = all.iter().map(|one| name(*one)).collect();
            Failure(format!("--only {wanted}: there is no such; there are {}", there.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn write_json(args: &Soak, report: &impl Serialize) -> Result<(), Failure> {
    let Some(path) = &args.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure(e.to_string()))?;
    write(path, &text)
}

fn write(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|e| Failure(format!("{} cannot be written: {e}", path.display())))
}

/// Progress of hours: a line that is redrawn on a terminal; elsewhere a line now and then.
struct Lines {
    terminal: bool,
    due: Instant,
}

impl Lines {
    const NOW_AND_THEN: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), due: Instant::now() }
    }

    /// Stays above the line of progress.
    fn event(&self, line: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{line}");
    }

    fn show(&mut self, line: &str) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        if self.terminal {
            self.due = now + Duration::from_millis(300);
            let width =
                crate::cli::terminal::size().map_or(160, |(columns, _)| usize::from(columns));
            let line: String = line.chars().take(width.saturating_sub(1)).collect();
            eprint!("\r\x1b[K{line}");
        } else {
            self.due = now + Self::NOW_AND_THEN;
            eprintln!("{line}");
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if self.terminal {
            eprintln!();
        }
    }
}

fn page(run: &Run, outcomes: &[Outcome]) -> Result<(), Failure> {
    let Some(path) = &run.html else { return Ok(()) };
    write(path, &render::html(outcomes))
}

fn replayed(run: &Run, incident: &'static Incident) -> Result<Outcome, Failure> {
    let program = std::env::current_exe()?;
    let dir = Scratch::new()?;
    let plan = Plan {
        seed: run.seed,
        scale: run.scale,
        limit: run.limit,
        memory: run.memory << 20,
        dir: dir.0.clone(),
        plugin: plugin(run.plugin.clone())?,
        program: program.clone(),
    };
    let side = |design: Design| {
        let mut command = Command::new(&program);
        command.args(["replay", "side", incident.name, design.name()]);
        command
    };
    let mut shown = Shown::new(incident);
    replay::run(incident, &plan, &side, &mut |design, sample| shown.tell(design, sample))
        .map_err(|cannot| Failure(cannot.to_string()))
}

fn plugin(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    match given {
        Some(given) => Ok(given),
        None => Ok(std::env::current_exe()?.with_file_name("fairlead-cni")),
    }
}

/// A directory that is gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let dir = std::env::temp_dir().join(format!("fairlead-replay-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|e| Failure(format!("{} cannot be made: {e}", dir.display())))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Progress on stderr: a line for each design, redrawn on a terminal; elsewhere now and then a line.
struct Shown {
    incident: &'static Incident,
    terminal: bool,
    last: Option<(Design, Instant)>,
}

impl Shown {
    /// Where nobody watches every line stays.
    const NOW_AND_THEN: Duration = Duration::from_secs(5);

    fn new(incident: &'static Incident) -> Self {
        Self { incident, terminal: std::io::stderr().is_terminal(), last: None }
    }

    fn tell(&mut self, design: Design, sample: Option<&Sample>) {
        let now = Instant::now();
        let same = self.last.filter(|(last, _)| *last == design);
        if !self.terminal && same.is_some_and(|(_, at)| now < at + Self::NOW_AND_THEN) {
            return;
        }
        // The line of the design before stays where it is.
        if self.terminal && same.is_none() && self.last.is_some() {
            eprintln!();
        }
        self.last = Some((design, now));
        let line = match sample {
            Some(sample) => render::progress(design, sample, self.incident.level),
            None => format!("{}   setting the stage …", design.name()),
        };
        if self.terminal {
            let width =
                crate::cli::terminal::size().map_or(160, |(columns, _)| usize::from(columns));
            let line: String = line.chars().take(width.saturating_sub(1)).collect();
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{}: {line}", self.incident.name);
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if self.terminal && self.last.is_some() {
            eprintln!();
        }
    }
}
