//! Configuration: flags, then environment (`FAIRLEAD_*`), then one YAML file, then defaults.
//!
//! Every setting is one row of [`SETTINGS`]: its flag, its environment variable, its YAML key, its
//! help and its check all come from there. A configuration is read as a whole: every problem is
//! found and told at once, and nothing starts until there is none.

mod agents;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::guard::admission::FailurePolicy;
use clap::{Arg, ArgMatches, Args, Command};
use objects::kinds::Subnet;

pub(crate) use agents::Agents;

use crate::values;

mod sense;

pub(crate) use sense::Sense;
mod guard;

pub(crate) use guard::Guard;

/// Where the file is looked for when nobody names one.
const DEFAULT_FILE: &str = "/etc/fairlead/fairlead.yaml";
/// A configuration is a page, not a database; what is larger is the wrong file.
const LARGEST_FILE: u64 = 1 << 20;

/// What the daemons run with. Made only by [`Sources::resolve`], so it is valid.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) workers: usize,
    pub(crate) grace: Duration,
    pub(crate) slow: Duration,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) store: Store,
    pub(crate) fleet: Fleet,
    pub(crate) net: Net,
    pub(crate) sense: Sense,
    pub(crate) api: Api,
    pub(crate) admission: Admission,
    pub(crate) agents: Agents,
    pub(crate) guard: Guard,
    pub(crate) admin: Admin,
    pub(crate) log: Log,
}

/// Where objects live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// In the data directory.
    Embedded,
    /// In the API server of this pod, or of the current kubeconfig context.
    Kubernetes,
}

#[derive(Clone, Debug)]
pub(crate) struct Fleet {
    /// Kubeconfig files, in order; none takes none.
    pub(crate) kubeconfig: Vec<PathBuf>,
    /// The namespace of imported kubeconfigs, and the label selector of those made by others.
    pub(crate) namespace: String,
    pub(crate) secrets: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// Whether this agent serves the node's pod network, rather than leave that to others.
    pub(crate) serve: bool,
    pub(crate) socket: PathBuf,
    /// This node's name; the machine's where none is set.
    pub(crate) node: String,
    /// Where other nodes reach this one; none: those that it would itself use.
    pub(crate) addresses: Vec<IpAddr>,
    /// What the pool `default` is made of where there is none.
    pub(crate) subnets: Vec<Subnet>,
    pub(crate) mtu: Option<u32>,
    pub(crate) export_table: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) listen: SocketAddr,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) webhook: Webhook,
    pub(crate) listen: SocketAddr,
    /// For deny rules without a mode of their own: whether they refuse, rather than record.
    pub(crate) protect: bool,
    /// Namespaces that no rule looks into.
    pub(crate) exempt: Vec<String>,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) timeout: Duration,
    /// How API servers reach the webhook: through a Service of their cluster, or by a URL.
    pub(crate) service: Option<Service>,
    pub(crate) url: Option<values::HttpsUrl>,
    /// Clusters of the fleet to register at, beside that of the store.
    pub(crate) clusters: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// Whether the webhook is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// In a pod whose store is its cluster, or as soon as somebody says how it is reached.
    Auto,
    On,
    /// Not served, and no longer registered.
    Off,
}

#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) listen: SocketAddr,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) profiling: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Auto,
    Human,
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: values::default_data_dir(),
            workers: std::thread::available_parallelism().map_or(2, usize::from),
            grace: Duration::from_secs(10),
            slow: Duration::from_secs(10),
            memory_limit: None,
            store: Store::Embedded,
            fleet: Fleet {
                kubeconfig: values::default_kubeconfig(),
                namespace: "fairlead".to_owned(),
                secrets: "fairlead.dev/cluster".to_owned(),
            },
            net: Net {
                serve: true,
                socket: PathBuf::from(cni::spec::DEFAULT_SOCKET),
                node: values::machine_name(),
                addresses: Vec::new(),
                subnets: Vec::new(),
                mtu: None,
                export_table: Some(119),
            },
            sense: Sense::default(),
            api: Api {
                listen: SocketAddr::from(([127, 0, 0, 1], 7680)),
                tls_cert: None,
                tls_key: None,
            },
            admission: Admission {
                webhook: Webhook::Auto,
                listen: SocketAddr::from(([127, 0, 0, 1], 7683)),
                protect: false,
                exempt: ["kube-system", "kube-public", "kube-node-lease"].map(String::from).into(),
                failure_policy: FailurePolicy::Ignore,
                timeout: Duration::from_secs(10),
                service: None,
                url: None,
                clusters: Vec::new(),
            },
            agents: Agents::default(),
            guard: Guard::default(),
            admin: Admin {
                listen: SocketAddr::from(([127, 0, 0, 1], 7682)),
                tls_cert: None,
                tls_key: None,
                token_file: None,
                profiling: false,
            },
            log: Log { level: "info".to_owned(), format: LogFormat::Auto },
        }
    }
}

/// One setting: the single place that knows its names, its meaning and its bounds.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    metavar: &'static str,
    help: &'static str,
    /// Completes "expected …".
    allowed: &'static str,
    take: fn(&mut Config, &str) -> Option<()>,
    show: fn(&Config) -> String,
}

pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        key: "data",
        metavar: "DIR",
        help: "Where state and evidence are kept; one process at a time",
        allowed: "a directory",
        take: |c, v| values::path(v).map(|v| c.data = v),
        show: |c| c.data.display().to_string(),
    },
    Setting {
        key: "workers",
        metavar: "N",
        help: "Threads of the main runtime",
        allowed: "a whole number from 1 to 1024",
        take: |c, v| values::number(v, 1, 1024).map(|v| c.workers = v),
        show: |c| c.workers.to_string(),
    },
    Setting {
        key: "grace",
        metavar: "TIME",
        help: "How long work may take to finish at shutdown",
        allowed: "a time from 0s to 10m, such as 500ms, 10s, 2m",
        take: |c, v| values::time(v, "0s", "10m").map(|v| c.grace = v),
        show: |c| values::show_time(c.grace),
    },
    Setting {
        key: "slow",
        metavar: "TIME",
        help: "Work older than this is late: it is named in the log and marked in /debug/inflight",
        allowed: "a time from 100ms to 1h, such as 500ms, 10s, 2m",
        take: |c, v| values::time(v, "100ms", "1h").map(|v| c.slow = v),
        show: |c| values::show_time(c.slow),
    },
    Setting {
        key: "memory.limit",
        metavar: "SIZE",
        help: "Memory to stay within; `auto` takes the cgroup's limit, or the machine's memory",
        allowed: "auto, or a size of at least 64MiB, such as 512MiB, 2GiB",
        take: |c, v| values::size_or_auto(v, 64 << 20).map(|v| c.memory_limit = v),
        show: |c| c.memory_limit.map_or_else(|| "auto".to_owned(), |b| b.to_string()),
    },
    Setting {
        key: "store",
        metavar: "ENGINE",
        help: "Where objects live: in the data directory, or in the API server of this pod (else of the current kubeconfig context)",
        allowed: "embedded or kubernetes",
        take: |c, v| {
            c.store = match v {
                "embedded" => Store::Embedded,
                "kubernetes" => Store::Kubernetes,
                _ => return None,
            };
            Some(())
        },
        show: |c| {
            match c.store {
                Store::Embedded => "embedded",
                Store::Kubernetes => "kubernetes",
            }
            .to_owned()
        },
    },
    Setting {
        key: "fleet.kubeconfig",
        metavar: "FILES",
        help: "Kubeconfig files whose contexts are clusters of the fleet, separated by colons; `none` takes none",
        allowed: "none, or files separated by colons",
        take: |c, v| values::paths(v).map(|v| c.fleet.kubeconfig = v),
        show: |c| values::show_paths(&c.fleet.kubeconfig),
    },
    Setting {
        key: "fleet.namespace",
        metavar: "NAME",
        help: "Namespace of the store in which the kubeconfigs of imported clusters are kept",
        allowed: "the name of a namespace: at most 63 of a-z, 0-9 and -",
        take: |c, v| values::label(v).map(|v| c.fleet.namespace = v),
        show: |c| c.fleet.namespace.clone(),
    },
    Setting {
        key: "fleet.secrets",
        metavar: "SELECTOR",
        help: "Label selector of Secrets in the store that hold a kubeconfig (those of Cluster API are found without it)",
        allowed: "a label selector, such as fairlead.dev/cluster or env=prod",
        take: |c, v| (!v.is_empty()).then(|| c.fleet.secrets = v.to_owned()),
        show: |c| c.fleet.secrets.clone(),
    },
    Setting {
        key: "net.serve",
        metavar: "WHETHER",
        help: "Serve this node's pod network; `off` leaves pods to another CNI plugin, and the agent only observes",
        allowed: "on or off",
        take: |c, v| {
            c.net.serve = match v {
                "on" | "true" => true,
                "off" | "false" => false,
                _ => return None,
            };
            Some(())
        },
        show: |c| if c.net.serve { "on" } else { "off" }.to_owned(),
    },
    Setting {
        key: "net.socket",
        metavar: "FILE",
        help: "Socket of the agent, on which container runtimes and `fairlead net` ask it",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.net.socket = v),
        show: |c| c.net.socket.display().to_string(),
    },
    Setting {
        key: "net.node",
        metavar: "NAME",
        help: "This node's name, as Kubernetes has it",
        allowed: "a name of a-z, 0-9, - and .",
        take: |c, v| values::node(v).map(|v| c.net.node = v),
        show: |c| c.net.node.clone(),
    },
    Setting {
        key: "net.addresses",
        metavar: "LIST",
        help: "Addresses at which other nodes reach this one, separated by commas; `auto` takes those that it would send from",
        allowed: "auto, or addresses separated by commas",
        take: |c, v| values::addresses(v).map(|v| c.net.addresses = v),
        show: |c| values::show_addresses(&c.net.addresses),
    },
    Setting {
        key: "net.subnets",
        metavar: "LIST",
        help: "Subnets of the pool `default`, made where there is no pool of that name: separated by commas, the two of a dual stack joined by +",
        allowed: "none, or subnets such as 10.64.0.0/16 or 10.64.0.0/16+fd64::/112",
        take: |c, v| values::subnets(v).map(|v| c.net.subnets = v),
        show: |c| values::show_subnets(&c.net.subnets),
    },
    Setting {
        key: "net.mtu",
        metavar: "BYTES",
        help: "MTU of pods' interfaces; `auto` takes that of the node's uplink",
        allowed: "auto, or a whole number from 576 to 65535",
        take: |c, v| {
            let mtu = (v != "auto")
                .then(|| values::number(v, 576, 65535))
                .map_or(Some(None), |n| n.map(Some))?;
            c.net.mtu = mtu.and_then(|mtu| u32::try_from(mtu).ok());
            Some(())
        },
        show: |c| c.net.mtu.map_or_else(|| "auto".to_owned(), |mtu| mtu.to_string()),
    },
    Setting {
        key: "net.export-table",
        metavar: "TABLE",
        help: "Routing table in which this node's blocks are put for BIRD and the like; `none` puts them nowhere",
        allowed: "none, or a number from 1 to 4294967295 that is not 253, 254 or 255",
        take: |c, v| values::table(v).map(|v| c.net.export_table = v),
        show: |c| c.net.export_table.map_or_else(|| "none".to_owned(), |table| table.to_string()),
    },
    sense::CONTROLLERS,
    sense::TOKEN_FILE,
    sense::TRACK,
    Setting {
        key: "api.listen",
        metavar: "ADDR",
        help: "The API that the command line and programs speak to; beyond loopback only with TLS",
        allowed: "an address and port, such as 127.0.0.1:7680 or [::1]:7680",
        take: |c, v| v.parse().ok().map(|v| c.api.listen = v),
        show: |c| c.api.listen.to_string(),
    },
    Setting {
        key: "api.tls-cert",
        metavar: "FILE",
        help: "Certificate chain (PEM) for the API",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.api.tls_cert = Some(v)),
        show: |c| values::show_path(c.api.tls_cert.as_deref()),
    },
    Setting {
        key: "api.tls-key",
        metavar: "FILE",
        help: "Private key (PEM) for the API; readable by its owner only",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.api.tls_key = Some(v)),
        show: |c| values::show_path(c.api.tls_key.as_deref()),
    },
    Setting {
        key: "admission.webhook",
        metavar: "WHETHER",
        help: "Serve the admission webhook: `auto` does in a pod whose store is its cluster, or when admission.service or admission.url is set; `off` also takes back the registration in the store's cluster",
        allowed: "auto, on or off",
        take: |c, v| {
            c.admission.webhook = match v {
                "auto" => Webhook::Auto,
                "on" | "true" => Webhook::On,
                "off" | "false" => Webhook::Off,
                _ => return None,
            };
            Some(())
        },
        show: |c| {
            match c.admission.webhook {
                Webhook::Auto => "auto",
                Webhook::On => "on",
                Webhook::Off => "off",
            }
            .to_owned()
        },
    },
    Setting {
        key: "admission.listen",
        metavar: "ADDR",
        help: "The admission webhook, always with TLS",
        allowed: "an address and port, such as 0.0.0.0:7683 or [::]:7683",
        take: |c, v| v.parse().ok().map(|v| c.admission.listen = v),
        show: |c| c.admission.listen.to_string(),
    },
    Setting {
        key: "admission.service",
        metavar: "NAMESPACE/NAME",
        help: "The Service by which the API server of the store's cluster reaches the webhook; registers it there",
        allowed: "none, or a namespace and a name, with a port other than 443 after a colon: fairlead/webhook, fairlead/webhook:7683",
        take: |c, v| {
            if v == "none" {
                c.admission.service = None;
                return Some(());
            }
            let (namespace, rest) = v.split_once('/')?;
            let (name, port) = match rest.split_once(':') {
                Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0)?),
                None => (rest, 443),
            };
            let (namespace, name) = (values::label(namespace)?, values::label(name)?);
            c.admission.service = Some(Service { namespace, name, port });
            Some(())
        },
        show: |c| {
            c.admission.service.as_ref().map_or_else(
                || "none".to_owned(),
                |Service { namespace, name, port }| format!("{namespace}/{name}:{port}"),
            )
        },
    },
    Setting {
        key: "admission.url",
        metavar: "URL",
        help: "Where API servers reach the webhook from outside; registers it in the store's cluster and in admission.clusters",
        allowed: "none, or https, a host and a port, such as https://fairlead.example.com:7683",
        take: |c, v| {
            c.admission.url = if v == "none" { None } else { Some(values::https_url(v)?) };
            Some(())
        },
        show: |c| {
            c.admission.url.as_ref().map_or_else(|| "none".to_owned(), |url| url.base.clone())
        },
    },
    Setting {
        key: "admission.clusters",
        metavar: "NAMES",
        help: "Clusters of the fleet whose API servers are to ask the webhook, by admission.url; `none` is none",
        allowed: "none, or names of clusters separated by commas",
        take: |c, v| {
            values::words(v, |name| (!name.contains('/')).then(|| name.to_owned()))
                .map(|v| c.admission.clusters = v)
        },
        show: |c| values::show_words(&c.admission.clusters),
    },
    Setting {
        key: "admission.mode",
        metavar: "MODE",
        help: "What deny rules without a mode of their own do: `monitor` records, `protect` refuses",
        allowed: "monitor or protect",
        take: |c, v| {
            c.admission.protect = match v {
                "monitor" => false,
                "protect" => true,
                _ => return None,
            };
            Some(())
        },
        show: |c| if c.admission.protect { "protect" } else { "monitor" }.to_owned(),
    },
    Setting {
        key: "admission.exempt",
        metavar: "NAMESPACES",
        help: "Namespaces that no rule looks into, separated by commas; `none` is none. That of admission.service always is one",
        allowed: "none, or names of namespaces separated by commas",
        take: |c, v| values::words(v, values::label).map(|v| c.admission.exempt = v),
        show: |c| values::show_words(&c.admission.exempt),
    },
    Setting {
        key: "admission.failure-policy",
        metavar: "POLICY",
        help: "What an API server does when the webhook does not answer: `ignore` admits, `fail` refuses",
        allowed: "ignore or fail",
        take: |c, v| {
            c.admission.failure_policy = match v {
                "ignore" | "Ignore" => FailurePolicy::Ignore,
                "fail" | "Fail" => FailurePolicy::Fail,
                _ => return None,
            };
            Some(())
        },
        show: |c| c.admission.failure_policy.name().to_lowercase(),
    },
    Setting {
        key: "admission.timeout",
        metavar: "TIME",
        help: "How long an API server waits for the webhook",
        allowed: "whole seconds from 1s to 30s",
        take: |c, v| {
            let time = values::time(v, "1s", "30s").filter(|time| time.subsec_nanos() == 0)?;
            c.admission.timeout = time;
            Some(())
        },
        show: |c| values::show_time(c.admission.timeout),
    },
    agents::LISTEN,
    agents::CERTIFICATE,
    guard::CLUSTER,
    guard::MODE,
    Setting {
        key: "admin.listen",
        metavar: "ADDR",
        help: "Health, metrics and debug endpoints; beyond loopback only with TLS and a token",
        allowed: "an address and port, such as 127.0.0.1:7682 or [::1]:7682",
        take: |c, v| v.parse().ok().map(|v| c.admin.listen = v),
        show: |c| c.admin.listen.to_string(),
    },
    Setting {
        key: "admin.tls-cert",
        metavar: "FILE",
        help: "Certificate chain (PEM) for the admin endpoints",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.admin.tls_cert = Some(v)),
        show: |c| values::show_path(c.admin.tls_cert.as_deref()),
    },
    Setting {
        key: "admin.tls-key",
        metavar: "FILE",
        help: "Private key (PEM) for the admin endpoints; readable by its owner only",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.admin.tls_key = Some(v)),
        show: |c| values::show_path(c.admin.tls_key.as_deref()),
    },
    Setting {
        key: "admin.token-file",
        metavar: "FILE",
        help: "Bearer token for the admin endpoints (/livez and /readyz need none)",
        allowed: "a file",
        take: |c, v| values::path(v).map(|v| c.admin.token_file = Some(v)),
        show: |c| values::show_path(c.admin.token_file.as_deref()),
    },
    Setting {
        key: "admin.profiling",
        metavar: "BOOL",
        help: "Serve CPU and heap profiles under /debug/pprof/",
        allowed: "true or false",
        take: |c, v| v.parse().ok().map(|v| c.admin.profiling = v),
        show: |c| c.admin.profiling.to_string(),
    },
    Setting {
        key: "log.level",
        metavar: "LEVEL",
        help: "What is logged; changeable while running",
        allowed: "a level (error, warn, info, debug, trace) or directives such as info,fleet=debug",
        take: |c, v| values::log_level(v).map(|v| c.log.level = v),
        show: |c| c.log.level.clone(),
    },
    Setting {
        key: "log.format",
        metavar: "FORMAT",
        help: "How it is logged; `auto` is human on a terminal, JSON otherwise",
        allowed: "auto, human or json",
        take: |c, v| {
            c.log.format = match v {
                "auto" => LogFormat::Auto,
                "human" => LogFormat::Human,
                "json" => LogFormat::Json,
                _ => return None,
            };
            Some(())
        },
        show: |c| {
            match c.log.format {
                LogFormat::Auto => "auto",
                LogFormat::Human => "human",
                LogFormat::Json => "json",
            }
            .to_owned()
        },
    },
];

impl Setting {
    fn flag(&self) -> String {
        self.key.replace('.', "-")
    }

    fn env(&self) -> String {
        format!("FAIRLEAD_{}", self.key.replace(['.', '-'], "_").to_uppercase())
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Env(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Env(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// One thing wrong with a configuration, in a sentence for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Problem {
    pub(crate) key: String,
    pub(crate) origin: String,
    pub(crate) message: String,
}

impl Problem {
    fn new(key: &str, origin: &Origin, message: String) -> Self {
        Self { key: key.to_owned(), origin: origin.to_string(), message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.origin, self.message)
        } else {
            write!(f, "{} (from {}): {}", self.key, self.origin, self.message)
        }
    }
}

/// A valid configuration and where each value came from.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) config: Config,
    origins: BTreeMap<&'static str, Origin>,
}

/// One row of `fairlead config show`.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) from: String,
}

impl Resolved {
    /// Another default for a setting that nobody set.
    pub(crate) fn unless_set(&mut self, key: &str, change: impl FnOnce(&mut Config)) {
        if !self.origins.contains_key(key) {
            change(&mut self.config);
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        SETTINGS
            .iter()
            .map(|s| Row {
                key: s.key,
                value: (s.show)(&self.config),
                from: self.origins.get(s.key).unwrap_or(&Origin::Default).to_string(),
            })
            .collect()
    }
}

/// The flags of every verb that runs with a configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFlags {
    file: Option<PathBuf>,
    given: Vec<(&'static str, String)>,
}

impl Args for ConfigFlags {
    fn augment_args(cmd: Command) -> Command {
        let file = Arg::new("config").long("config").value_name("FILE").help(format!(
            "YAML file with settings [env: FAIRLEAD_CONFIG] [default: {DEFAULT_FILE}, if it is there]"
        ));
        SETTINGS.iter().fold(cmd.arg(file), |cmd, s| {
            let shown = (s.show)(&Config::default());
            let default = if shown == "-" { String::new() } else { format!(" [default: {shown}]") };
            cmd.arg(Arg::new(s.key).long(s.flag()).value_name(s.metavar).help(format!(
                "{} [env: {}]{default}",
                s.help,
                s.env()
            )))
        })
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

impl clap::FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let text = |id: &str| matches.get_one::<String>(id).cloned();
        Ok(Self {
            file: text("config").map(PathBuf::from),
            given: SETTINGS.iter().filter_map(|s| Some((s.key, text(s.key)?))).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Everything a configuration is read from. The environment is passed in so that tests can make one.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) flags: &'a ConfigFlags,
    pub(crate) env: BTreeMap<String, String>,
}

impl<'a> Sources<'a> {
    pub(crate) fn of_this_process(flags: &'a ConfigFlags) -> Self {
        // A name or value that is not text cannot be one of ours.
        let env = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .filter(|(k, _)| k.starts_with("FAIRLEAD_"))
            .collect();
        Self { flags, env }
    }

    /// Reads all sources and checks the whole. `Err` holds every problem there is.
    pub(crate) fn resolve(&self) -> Result<Resolved, Vec<Problem>> {
        let mut draft = Draft::default();
        // Lowest precedence first: each layer overwrites the one before.
        draft.take_file(self.file());
        for s in SETTINGS {
            if let Some(value) = self.env.get(&s.env()) {
                draft.take(s.key, value, Origin::Env(s.env()));
            }
        }
        for (key, value) in &self.flags.given {
            draft.take(key, value, Origin::Flag(key.replace('.', "-")));
        }
        draft.check_whole();
        if draft.problems.is_empty() { Ok(draft.resolved) } else { Err(draft.problems) }
    }

    /// The file to read, and whether somebody asked for it (then it must be there).
    fn file(&self) -> (PathBuf, bool) {
        let named = self.flags.file.clone().or_else(|| {
            self.env.get("FAIRLEAD_CONFIG").filter(|v| !v.is_empty()).map(PathBuf::from)
        });
        named.map_or_else(|| (PathBuf::from(DEFAULT_FILE), false), |path| (path, true))
    }
}

/// A configuration in the making.
#[derive(Default)]
struct Draft {
    resolved: Resolved,
    problems: Vec<Problem>,
}

impl Draft {
    fn take(&mut self, key: &str, value: &str, origin: Origin) {
        let Some(setting) = SETTINGS.iter().find(|s| s.key == key) else {
            let names = SETTINGS.iter().map(|s| s.key);
            let hint = values::nearest(key, names)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            self.problems.push(Problem::new(key, &origin, format!("no such setting{hint}")));
            return;
        };
        if (setting.take)(&mut self.resolved.config, value.trim()).is_none() {
            let message = format!("expected {}, found {value:?}", setting.allowed);
            self.problems.push(Problem::new(key, &origin, message));
        }
        self.resolved.origins.insert(setting.key, origin);
    }

    fn take_file(&mut self, (path, required): (PathBuf, bool)) {
        let origin = Origin::File(path.clone());
        match read_file(&path) {
            Ok(settings) => {
                for (key, value) in settings {
                    match value {
                        Ok(value) => self.take(&key, &value, origin.clone()),
                        Err(message) => self.problems.push(Problem::new(&key, &origin, message)),
                    }
                }
            }
            Err(FileError::Missing) if !required => {}
            Err(error) => self.problems.push(Problem::new("", &origin, error.to_string())),
        }
    }

    /// What no setting can check alone.
    fn check_whole(&mut self) {
        let Config { admin, admission, api, store, .. } = &self.resolved.config;
        let mut wrong = Vec::new();
        for (keys, listen, cert, key) in [
            (
                ["admin.listen", "admin.tls-cert", "admin.tls-key"],
                admin.listen,
                &admin.tls_cert,
                &admin.tls_key,
            ),
            (
                ["api.listen", "api.tls-cert", "api.tls-key"],
                api.listen,
                &api.tls_cert,
                &api.tls_key,
            ),
        ] {
            let [at, cert_at, key_at] = keys;
            match (cert, key) {
                (Some(_), None) => wrong.push((cert_at, format!("needs {key_at} beside it"))),
                (None, Some(_)) => wrong.push((key_at, format!("needs {cert_at} beside it"))),
                (None, None) if !listen.ip().is_loopback() => wrong.push((
                    at,
                    format!("an address beyond loopback needs TLS: set {cert_at} and {key_at}"),
                )),
                _ => {}
            }
        }
        if !admin.listen.ip().is_loopback() && admin.token_file.is_none() {
            wrong.push((
                "admin.listen",
                "an address beyond loopback needs a bearer token: set admin.token-file".to_owned(),
            ));
        }
        if admission.service.is_some() && admission.url.is_some() {
            let message = "is one way to reach the webhook and admission.url another; set one";
            wrong.push(("admission.service", message.to_owned()));
        }
        if admission.service.is_some() && *store == Store::Embedded {
            let message = "needs store=kubernetes: the Service is one of the store's cluster; set \
                           admission.url for others";
            wrong.push(("admission.service", message.to_owned()));
        }
        if !admission.clusters.is_empty() && admission.url.is_none() {
            let message = "needs admission.url: their API servers are elsewhere";
            wrong.push(("admission.clusters", message.to_owned()));
        }
        for (key, message) in wrong {
            let origin = self.resolved.origins.get(key).unwrap_or(&Origin::Default).clone();
            self.problems.push(Problem::new(key, &origin, message));
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("no such file")]
    Missing,
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("larger than a configuration can be ({LARGEST_FILE} bytes); is this the right file?")]
    TooLarge,
    #[error("not valid YAML: {0}")]
    NotYaml(String),
    #[error("expected settings such as `admin: {{listen: 127.0.0.1:7682}}` at the top level")]
    NotSettings,
}

/// The file's settings by dotted key. A value that cannot be a setting carries its own problem.
type FileSettings = Vec<(String, Result<String, String>)>;

fn read_file(path: &Path) -> Result<FileSettings, FileError> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => FileError::Missing,
        _ => FileError::Unreadable(e),
    })?;
    if meta.len() > LARGEST_FILE {
        return Err(FileError::TooLarge);
    }
    let text = std::fs::read_to_string(path).map_err(FileError::Unreadable)?;
    parse_file(&text)
}

fn parse_file(text: &str) -> Result<FileSettings, FileError> {
    let tree: serde_json::Value =
        serde_saphyr::from_str(text).map_err(|e| FileError::NotYaml(e.to_string()))?;
    let mut settings = Vec::new();
    match tree {
        serde_json::Value::Null => {}
        serde_json::Value::Object(map) => flatten("", map, &mut settings),
        _ => return Err(FileError::NotSettings),
    }
    Ok(settings)
}

fn flatten(
    prefix: &str,
    map: serde_json::Map<String, serde_json::Value>,
    settings: &mut FileSettings,
) {
    use serde_json::Value;
    for (name, value) in map {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        let value = match value {
            Value::Object(inner) => {
                flatten(&key, inner, settings);
                continue;
            }
            Value::String(text) => Ok(text),
            Value::Bool(yes) => Ok(yes.to_string()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Null => Err("expected a value, found nothing".to_owned()),
            Value::Array(_) => Err("expected one value, found a list".to_owned()),
        };
        settings.push((key, value));
    }
}

#[cfg(test)]
mod tests;
