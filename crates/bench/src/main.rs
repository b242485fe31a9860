//! `make bench`: every benchmark, several times, and one table of them in Markdown and in JSON.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use bench::{Line, OUT, Summary, Table};

/// Package and benchmark.
const BENCHMARKS: [(&str, &str); 21] = [
    ("stallproof", "stallproof"),
    ("objects", "store"),
    ("access", "audit"),
    ("doctor", "large"),
    ("fleet", "fleet"),
    ("mesh", "plan"),
    ("admission", "admission"),
    ("admission", "images"),
    ("admission", "running"),
    ("traffic", "conversations"),
    ("edge", "identity"),
    ("edge", "webhook"),
    ("edge", "agents"),
    ("cni", "cni"),
    ("fairlead", "flood"),
    ("net", "egress"),
    ("net", "overlay"),
    ("wireguard", "tunnel"),
    ("wireguard", "failover"),
    ("fairlead", "console"),
    ("node", "enforcement"),
];

const USAGE: &str = "\
Runs every benchmark and writes one table of ratios, bench.md and bench.json.

Usage: bench [--runs N] [--out DIR] [PACKAGE...]

  --runs N     how often each is run; the spread of their ratios is shown (default 5)
  --out DIR    where the table goes (default target/bench)
  PACKAGE...   only these";

/// Rivals that are crates, so that their versions are told.
const CRATES: [&str; 5] = ["dashmap", "papaya", "imbl", "redb", "parking_lot"];

struct Wanted {
    runs: usize,
    out: PathBuf,
    packages: Vec<String>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let Some(wanted) = parse(env::args().skip(1))? else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(&wanted.out)?;
    let kept = wanted.out.canonicalize()?.join("runs.jsonl");
    let _ = fs::remove_file(&kept);
    let chosen = |package: &str| {
        wanted.packages.is_empty() || wanted.packages.iter().any(|only| only == package)
    };
    let measured = || fs::read_to_string(&kept).unwrap_or_default().lines().count();
    let names: Vec<_> = BENCHMARKS
        .into_iter()
        .filter(|(package, _)| chosen(package))
        .map(|(_, name)| name)
        .collect();
    // All of it first: what does not build is known before anything is measured, and progress is seen.
    let built = cargo_bench(&names).arg("--no-run").status()?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let mut failed = Vec::new();
    for name in names {
        for run in 1..=wanted.runs {
            let (began, before) = (Instant::now(), measured());
            eprintln!("{name}, run {run} of {} …", wanted.runs);
            // A limit that does not hold is told by the table; what gave none could not run.
            cargo_bench(&[name]).arg("--quiet").env(OUT, &kept).status()?;
            if measured() == before {
                failed.push(name);
                break;
            }
            eprintln!("{name}, run {run}: {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    let lines = fs::read_to_string(&kept).unwrap_or_default();
    let tables = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Table>, _>>()?;
    let summary = Summary { with: versions(), ..Summary::of(&tables) };
    fs::write(wanted.out.join("bench.md"), summary.markdown())?;
    fs::write(wanted.out.join("bench.json"), serde_json::to_vec_pretty(&summary)?)?;
    eprintln!("written to {}/bench.{{md,json}}", wanted.out.display());
    for name in &failed {
        eprintln!("{name} could not be measured");
    }
    for (line, held) in summary.broken() {
        let Line { bench, what, runs, .. } = line;
        eprintln!("does not hold: {bench}: {what}: {} ({} of {runs} runs)", held.says, held.runs);
    }
    let well = failed.is_empty() && summary.broken().next().is_none();
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Of the workspace, not of a package: what all of them stand on is built once.
fn cargo_bench(names: &[&str]) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["bench", "--workspace"]);
    for name in names {
        cargo.args(["--bench", name]);
    }
    // What `cargo run` says of this package would have build scripts run, and all that stands on
    // them built, again.
    for (name, _) in env::vars_os() {
        let is_ours = |of: &str| name.to_str().is_some_and(|name| name.starts_with(of));
        if is_ours("CARGO_PKG_") || is_ours("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// None if it is the usage that is wanted.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Wanted>, String> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let mut wanted = Wanted { runs: 5, out: target.join("bench"), packages: Vec::new() };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value; see --help"));
        match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--runs" => {
                let runs = value()?;
                wanted.runs = runs.parse().map_err(|_| format!("{runs:?} is no number of runs"))?;
            }
            "--out" => wanted.out = value()?.into(),
            package if BENCHMARKS.iter().any(|(name, _)| *name == package) => {
                wanted.packages.push(arg);
            }
            _ => return Err(format!("{arg:?} has no benchmark; see --help")),
        }
    }
    Ok(Some(wanted))
}

/// What was measured with.
fn versions() -> Vec<(String, String)> {
    let said = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let mut all = vec![("cores".to_owned(), cores.to_string())];
    let mut add = |name: &str, version: Option<String>| {
        all.extend(version.map(|version| (name.to_owned(), version)));
    };
    add("kernel", said("uname", &["-r"]));
    add("compiler", said("rustc", &["--version"]));
    let debian = ["-W", "-f", "${Version}", "containernetworking-plugins"];
    add("containernetworking-plugins (ptp, bridge, host-local)", said("dpkg-query", &debian));
    let lock = fs::read_to_string(Path::new("Cargo.lock")).unwrap_or_default();
    for name in CRATES {
        let after = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1);
        add(name, after.and_then(|rest| rest.split('"').next()).map(str::to_owned));
    }
    all
}
