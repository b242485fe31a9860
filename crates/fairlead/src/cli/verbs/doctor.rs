use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use doctor::live::{Fetch, Live};
use doctor::render::{self, Style};
use doctor::{Options, Progress};

use crate::cli::admin_token::admin_token;
use crate::cli::client::{ServerFlags, Target};
use crate::cli::http::{Origin, Trust};
use crate::cli::runtime::block_on;
use crate::cli::terminal;
use crate::config::{ConfigFlags, Sources};
use crate::output::{Failure, Verdict};
use crate::values;

mod pod;

use pod::{ForwardedPod, PodProcess};

/// More than this is no dump, and would not fit into memory beside its analysis.
const LARGEST: usize = 1 << 30;

/// Find what is stuck in a daemon, who holds it, and the way out
///
/// Reads goroutine dumps in every form (pprof protobuf, debug=1, debug=2, a SIGQUIT in a log,
/// `go tool pprof -text` and `-traces`), thread dumps of Java (jstack, jcmd), Python (py-spy,
/// faulthandler) and native programs (gdb, eu-stack), mutex and block profiles, logs, Prometheus
/// metrics and Fairlead's own /debug pages; as files, directories, archives or `-`, mixed. Each is
/// recognised by its content. An address, or a pod of a cluster that Fairlead knows, is asked live:
/// two dumps some seconds apart, read-only.
///
/// It refuses rather than guesses: where the evidence cannot carry a holder, it says what to
/// collect next.
///
/// Examples:
///   curl -s 'http://daemon:6060/debug/pprof/goroutine?debug=2' | fairlead doctor -
///   fairlead doctor dump-1.txt dump-2.txt controller.log metrics.txt
///   jcmd PID Thread.print -l | fairlead doctor -
///   fairlead doctor http://daemon:6060
///   fairlead doctor pod/web-0 -n shop --cluster eu
///   fairlead doctor support-bundle.tar.gz -o html > report.html
///
/// Exit codes: 0 no stall found, 1 found, 2 could not read.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Files, directories, archives, `-` for standard input, http(s) addresses, or KIND/NAME of a pod
    /// or a workload
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,
    /// How to print; json is a contract, html is one self-contained page
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    /// How long to wait between the two dumps of a live process
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pause: Duration,
    /// How long one answer of a live process may take, connecting included
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    timeout: Duration,
    /// Accept any certificate of a live process
    #[arg(long)]
    insecure: bool,
    /// File with a bearer token for a live process [default: for the admin port of this machine's
    /// Fairlead, its own]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Cluster of the pod [default: the only one]
    #[arg(long, value_name = "CLUSTER", help_heading = "Pods")]
    cluster: Option<String>,
    /// Namespace of the pod [default: default]
    #[arg(short, long, value_name = "NAMESPACE", help_heading = "Pods")]
    namespace: Option<String>,
    /// Port of the pod that serves profiles or metrics [default: it is looked for]
    #[arg(long, value_name = "PORT", help_heading = "Pods")]
    port: Option<u16>,
    /// Address of Fairlead's API
    #[arg(
        long,
        env = "FAIRLEAD_SERVER",
        value_name = "URL",
        default_value = "http://127.0.0.1:7680",
        help_heading = "Pods"
    )]
    server: String,
    /// File with the token for Fairlead's API [default: `token` in the data directory]
    #[arg(long, env = "FAIRLEAD_TOKEN_FILE", value_name = "FILE", help_heading = "Pods")]
    server_token_file: Option<PathBuf>,
    /// Certificate authority (PEM) of Fairlead's API [default: the public ones]
    #[arg(long, env = "FAIRLEAD_CA_FILE", value_name = "FILE", help_heading = "Pods")]
    ca_file: Option<PathBuf>,
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

impl Args {
    /// The cluster and the namespace that pods are in.
    fn target(&self) -> Target {
        let (token, ca) = (self.server_token_file.clone(), self.ca_file.clone());
        let server = ServerFlags::new(self.server.clone(), token, ca);
        Target::new(self.cluster.clone(), self.namespace.clone(), server)
    }
}

pub(crate) fn run(args: &Args) -> Verdict {
    let process = Process { args };
    let mut progress = terminal::Progress::new();
    // A file of this name comes first: nobody is to be surprised by a cluster.
    let is_object = |input: &String| pod::is_object(input) && !std::path::Path::new(input).exists();
    let objects: Vec<&String> = args.inputs.iter().filter(|input| is_object(input)).collect();
    if objects.len() > 1 {
        return Err(Failure("one pod at a time: ask each by itself".to_owned()));
    }
    let forwarded = objects.first().map(|object| ForwardedPod::open(args, object)).transpose()?;
    let mut inputs = args.inputs.clone();
    if let Some(pod) = &forwarded {
        let mut tell = |url: &str| progress.show(|| format!("looking for profiles: {url}"));
        let address = pod.search(&process, &mut tell).ok_or_else(|| pod.nothing())?;
        inputs.iter_mut().filter(|input| is_object(input)).for_each(|i| i.clone_from(&address));
    }
    let through_pod =
        forwarded.as_ref().map(|pod| PodProcess { pod, process: &process, timeout: None });
    let fetch: &dyn Fetch = through_pod.as_ref().map_or(&process, |pod| pod);
    let live = Some(Live { pause: args.pause, fetch });
    let options = Options { now: Some(jiff::Timestamp::now()), live };
    let mut show = |reading: Progress<'_>| {
        progress.show(|| {
            if reading.read == 0 && reading.input.starts_with("http") {
                return format!("asking {}", reading.input);
            }
            let of = reading.size.map_or(String::new(), |size| format!(" of {}", size >> 20));
            format!("reading {}: {}{of} MiB", reading.input, reading.read >> 20)
        });
    };
    let (report, outcome) = doctor::examine_inputs(&inputs, &options, &mut show);
    drop(progress);
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

/// Asks a live process as the flags say.
#[derive(Debug)]
struct Process<'a> {
    args: &'a Args,
}

impl Fetch for Process<'_> {
    fn get(&self, url: &str) -> Result<(u16, Vec<u8>), String> {
        self.fetch(url, self.args.timeout)
    }
}

impl Process<'_> {
    fn fetch(&self, url: &str, timeout: Duration) -> Result<(u16, Vec<u8>), String> {
        let token = match &self.args.token_file {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .map_err(|e| format!("the token file {}: {e}", path.display()))?,
            ),
            None => None,
        };
        let url: http::Uri = url.parse().map_err(|e| format!("{url} is no address: {e}"))?;
        let token = token.or_else(|| own_token(&url));
        let trust = if self.args.insecure { Trust::Anything } else { Trust::Public };
        let origin = Origin::of(&url, trust, timeout.min(Duration::from_secs(10)))
            .map_err(|e| e.to_string())?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let token = token.as_deref().map(str::trim);
        let answer = block_on(async {
            let answer = origin.get(path, token, timeout, LARGEST).await;
            answer.map_err(|e| Failure(e.to_string()))
        });
        answer.map(|(status, body)| (status.as_u16(), body)).map_err(|Failure(why)| why)
    }
}

/// The token for a Fairlead on this machine, at the admin port of its configuration. No other process is shown
/// it.
fn own_token(url: &http::Uri) -> Option<String> {
    let host: std::net::IpAddr = url.host()?.trim_matches(['[', ']']).parse().ok()?;
    let config = Sources::of_this_process(&ConfigFlags::default()).resolve().ok()?.config;
    let is_ours = host.is_loopback() && url.port_u16() == Some(config.admin.listen.port());
    is_ours.then(|| admin_token(&config)).flatten()
}

fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let width = terminal::size().map_or(100, |(width, _)| usize::from(width));
    Style { colour, width }
}

#[cfg(test)]
mod tests;
