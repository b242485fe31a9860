//! `fairlead support`: one archive with everything that helps to find a fault.
//!
//! ```text
//! this machine   admin endpoints, evidence on disk, settings, the process, its log ─┐
//! a cluster      objects, events, logs; in each pod of ours the same as above ──────┴─► masks ─► tar.gz
//! ```
//!
//! Each source is bounded in time and in size. A source that fails costs only itself and is named in
//! `missing.txt`. Secrets are taken out before anything is written ([`mask`]).

mod archive;
mod cluster;
mod local;
mod mask;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::verbs::config::load;
use crate::config::{Config, ConfigFlags};
use crate::output::{Failure, Verdict};

use archive::{Archive, Written};
use mask::Masks;

/// Write one archive with everything that helps to find a fault
///
/// Of this machine: what is in flight, stalls, locks, stacks and metrics of the running process,
/// the evidence that it saved, its settings and the last lines of its log. With --cluster, of an
/// installation in Kubernetes: pods, events, logs, nodes and objects of Fairlead, and from within
/// each of its pods the same as of this machine. Secrets are masked, objects of the kind Secret are
/// never read; missing.txt in the archive says what could not be had, and why.
///
/// `fairlead doctor ARCHIVE` reads it.
///
/// Examples:
///   fairlead support
///   fairlead support --cluster -n fairlead -f fairlead.tar.gz
///   fairlead doctor fairlead.tar.gz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The archive to write, `-` for standard output [default: fairlead-support-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A log file of Fairlead, of which the end is taken [default: where the process writes, or the journal]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    cluster: cluster::Installation,
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let (config, settings) = match load(&args.flags) {
        Ok(resolved) => {
            let rows = serde_json::to_value(resolved.rows()).unwrap_or_default();
            (resolved.config, Ok(rows))
        }
        // What is wrong with the settings is worth knowing too.
        Err(Failure(why)) => (Config::default(), Err(why)),
    };
    let path = args.file.clone().unwrap_or_else(|| {
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        PathBuf::from(format!("fairlead-support-{now}.tar.gz"))
    });
    let archive = Archive::create(&path, Masks::new(local::secrets(&config))?)?;
    let written = fill(args, &config, settings, archive).inspect_err(|_| {
        // Half an archive is none.
        if path != Path::new("-") {
            let _ = std::fs::remove_file(&path);
        }
    })?;
    report(&path, &written);
    Ok(ExitCode::SUCCESS)
}

fn fill(
    args: &Args,
    config: &Config,
    settings: Result<serde_json::Value, String>,
    mut archive: Archive,
) -> Result<Written, Failure> {
    if args.cluster.is_chosen() {
        cluster::collect(&args.cluster, &mut archive)?;
    } else {
        local::collect(config, settings, args.log.as_deref(), &mut archive)?;
    }
    archive.finish()
}

/// Prints on stderr what was written: stdout may be the archive.
fn report(path: &Path, written: &Written) {
    let Written { files, bytes, missing } = written;
    let shown = if path == Path::new("-") { "the archive".into() } else { path.to_string_lossy() };
    eprintln!("{shown}: {files} files, {} kB before packing; secrets are masked", bytes / 1000);
    const SHOWN: usize = 8;
    for (name, why) in missing.iter().take(SHOWN) {
        eprintln!("  without {name}: {why}");
    }
    if missing.len() > SHOWN {
        eprintln!("  and {} more, see missing.txt in it", missing.len() - SHOWN);
    }
    if path != Path::new("-") {
        eprintln!("`fairlead doctor {shown}` says what is stuck");
    }
}
