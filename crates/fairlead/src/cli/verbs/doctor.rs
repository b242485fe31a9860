use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use doctor::live::LiveOptions;
use doctor::render::{self, Style};
use doctor::{Options, Progress};

use crate::cli::values;
use crate::output::{Failure, Verdict};

/// Say what is stuck in a Go daemon, or in Fairlead: who waits, who holds, and the way out
///
/// Reads goroutine dumps in every form (pprof protobuf, debug=1, debug=2, a SIGQUIT in a log,
/// `go tool pprof -text` and `-traces`), mutex and block profiles, logs, Prometheus metrics and
/// Fairlead's own /debug pages; as files, directories, archives or `-`, mixed. Each is recognised
/// by its content. An address is asked live: two dumps some seconds apart, read-only.
///
/// It refuses rather than guesses: where the evidence cannot carry a holder, it says what to
/// collect next.
///
/// Examples:
///   curl -s 'http://daemon:6060/debug/pprof/goroutine?debug=2' | fairlead doctor -
///   fairlead doctor dump-1.txt dump-2.txt controller.log metrics.txt
///   fairlead doctor http://daemon:6060
///   fairlead doctor support-bundle.tar.gz -o html > report.html
///
/// Exit codes: 0 no stall found, 1 found, 2 could not read.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Files, directories, archives, `-` for standard input, or http(s) addresses
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,
    /// How to print; json is a contract, html is one self-contained page
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// Between the two dumps of a live process
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pause: Duration,
    /// For one answer of a live process
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    timeout: Duration,
    /// Take any certificate of a live process
    #[arg(long)]
    insecure: bool,
    /// File with a bearer token for a live process
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
    Markdown,
    Html,
}

fn time(text: &str) -> Result<Duration, String> {
    values::duration(text).ok_or_else(|| "expected a time such as 500ms, 5s, 2m".to_owned())
}

pub(crate) fn run(args: &Args) -> Verdict {
    let live = LiveOptions {
        pause: args.pause,
        timeout: args.timeout,
        insecure: args.insecure,
        token_file: args.token_file.clone(),
    };
    let options = Options { now: Some(jiff::Timestamp::now()), live };
    let mut shown = Shown::new();
    let (report, outcome) =
        doctor::examine_inputs(&args.inputs, &options, &mut |progress| shown.tell(&progress));
    shown.clear();
    let text = match args.output {
        Format::Text => render::text(&report, style()),
        Format::Json => render::json(&report),
        Format::Markdown => render::markdown(&report),
        Format::Html => render::html(&report),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure(format!("the report cannot be written: {e}")))
        }
        _ => Ok(ExitCode::from(outcome.exit_code())),
    }
}

fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let width = terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0));
    Style { colour, width }
}

/// Progress on a terminal, once reading takes long enough to wonder.
struct Shown {
    began: Instant,
    last: Option<Instant>,
    terminal: bool,
}

impl Shown {
    fn new() -> Self {
        Self { began: Instant::now(), last: None, terminal: std::io::stderr().is_terminal() }
    }

    fn tell(&mut self, progress: &Progress<'_>) {
        let now = Instant::now();
        let due = self
            .last
            .map_or(self.began + Duration::from_secs(1), |last| last + Duration::from_millis(200));
        if !self.terminal || now < due {
            return;
        }
        self.last = Some(now);
        let mib = progress.read >> 20;
        let of = progress.size.map_or(String::new(), |size| format!(" of {}", size >> 20));
        eprint!("\r\x1b[Kreading {}: {mib}{of} MiB", progress.input);
    }

    fn clear(&self) {
        if self.last.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
