//! Every setting, section by section: its help, its key, the word for its value in help, its format, and
//! below that its field with its type and its default.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use ::fleet::resources::usage_history::PrometheusService;
use ::net::wiring::InterfaceNaming;
use admission::FailurePolicy;
use ipnet::IpNet;
use node::enforcement::{FailMode, NewPods};
use objects::kinds::{GroupMode, Subnet};
use pki::agents::LIFETIME;
use policy::program::Denial;
use wireguard::{Encryption, Implementation};

use super::formats::{
    addresses, bool, cluster, directory, file, files, host, host_and_port, image, log_level,
    namespace, networks, number, on_or_off, one_of, optional_file, plain, prometheus, registry,
    size, subnets, text, time, user, words,
};
use super::setting::{Setting, settings};
use super::{
    HttpsUrl, ListenAddress, LogFormat, Service, ServiceAccount, Store, Switch, TlsSource, listen,
};
use crate::values;

/// All of them, in the order in which they are told.
pub(super) fn settings() -> &'static [Setting] {
    static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
        let sections = [
            Config::settings(),
            Fleet::settings(),
            Net::settings(),
            Sense::settings(),
            Policy::settings(),
            Mesh::settings(),
            Api::settings(),
            Audit::settings(),
            Admission::settings(),
            Agents::settings(),
            Guard::settings(),
            Notify::settings(),
            Admin::settings(),
            Log::settings(),
        ];
        sections.into_iter().flatten().collect()
    });
    &SETTINGS
}

settings! {
    /// What the daemons run with. Only [`super::Sources`] makes one that somebody set, so it is valid.
    struct Config in (config) {
        /// Where state and evidence are kept; one process at a time
        #[setting("data", "DIR", directory())]
        data: PathBuf = values::default_data_dir(),

        /// Threads of the main runtime
        #[setting("workers", "N", number(1..=1024))]
        workers: usize = std::thread::available_parallelism().map_or(2, usize::from),

        /// How long work may take to finish at shutdown
        #[setting("grace", "TIME", time("0s", "10m"))]
        grace: Duration = Duration::from_secs(10),

        /// How long to go on answering after a signal, not ready and no longer leading, until load
        /// balancers have noticed; before grace
        #[setting("shutdown.delay", "TIME", time("0s", "10m"))]
        shutdown_delay: Duration = Duration::ZERO,

        /// Work older than this is late: it is named in the log and marked in /debug/inflight
        #[setting("slow", "TIME", time("100ms", "1h"))]
        slow: Duration = Duration::from_secs(10),

        /// Memory to stay within; `auto` takes the cgroup's limit, or the machine's memory
        #[setting("memory.limit", "SIZE", size(64 << 20).or("auto"))]
        memory_limit: Option<u64> = None,

        /// Where objects live: in the data directory, or in the API server of this pod (else of the
        /// current kubeconfig context)
        #[setting("store", "ENGINE", Store::format())]
        store: Store = Store::Embedded,

        /// Which clusters there are.
        fleet: Fleet = Fleet::default(),
        /// The agent's pod network.
        net: Net = Net::default(),
        /// What the agent observes.
        sense: Sense = Sense::default(),
        /// What the agent does about policies.
        policy: Policy = Policy::default(),
        /// What the agent does for meshes.
        mesh: Mesh = Mesh::default(),
        /// The API.
        api: Api = Api::default(),
        /// The audit.
        audit: Audit = Audit::default(),
        /// The admission webhook.
        admission: Admission = Admission::default(),
        /// The controller's listener for agents.
        agents: Agents = Agents::default(),
        /// What the controller makes of the agents' reports.
        guard: Guard = Guard::default(),
        /// Who is told of events.
        notify: Notify = Notify::default(),
        /// Health, metrics and debug endpoints.
        admin: Admin = Admin::default(),
        /// The log.
        log: Log = Log::default(),
    }
}

settings! {
    /// Which clusters there are.
    struct Fleet in (config.fleet) {
        /// Kubeconfig files whose contexts are clusters of the fleet, separated by colons; `none` takes
        /// none
        #[setting("fleet.kubeconfig", "FILES", files())]
        kubeconfig: Vec<PathBuf> = values::default_kubeconfig(),

        /// Namespace of the store in which the kubeconfigs of imported clusters are kept
        #[setting("fleet.namespace", "NAME", namespace())]
        namespace: String = "fairlead".to_owned(),

        /// Label selector of Secrets in the store that hold a kubeconfig (those of Cluster API are found
        /// without it); `none` reads no Secrets
        #[setting("fleet.secrets", "SELECTOR", text(
            "a label selector, such as fairlead.dev/cluster or env=prod",
            |text| (!text.is_empty()).then(|| text.to_owned())
        ).or("none"))]
        secrets: Option<String> = Some("fairlead.dev/cluster".to_owned()),

        /// Namespace in which those Secrets are looked for, fleet.namespace unless said; `all` looks in
        /// every one: whoever may write a Secret somewhere then offers clusters
        #[setting("fleet.secrets-namespace", "NAME", namespace().or("all"))]
        secrets_namespace: Option<String> = Some("fairlead".to_owned()),

        /// Whether clusters that are imported, or that Secrets name, may be at loopback, link-local and
        /// metadata addresses: `auto` allows it where the API is on loopback; clusters of fleet.kubeconfig
        /// always may
        #[setting("fleet.local-imports", "WHETHER", one_of([
            ("auto", None), ("allow", Some(true)), ("refuse", Some(false))
        ]))]
        local_imports: Option<bool> = None,
        /// Clusters on which users act under their own names (`fairlead:USER`), beside imported ones that
        /// say so; `none` is none. Fairlead's account there needs the right to impersonate
        #[setting("fleet.impersonate", "NAMES", words(
            "names of clusters separated by commas", cluster
        ))]
        impersonate: Vec<String> = Vec::new(),

        /// Service of the Prometheus that clusters have, for what was used before now; it is asked through
        /// each cluster's API server. `none` asks nobody
        #[setting("fleet.prometheus", "SERVICE", prometheus().or("none"))]
        prometheus: Option<PrometheusService> = None,
    }
}

settings! {
    /// The agent's pod network.
    struct Net in (config.net) {
        /// Serve this node's pod network; `off` leaves pods to another CNI plugin: the agent observes, and
        /// with net.egress lets them use Egresses
        #[setting("net.serve", "WHETHER", on_or_off())]
        serve: bool = true,

        /// Socket of the agent, on which container runtimes and `fairlead net` ask it
        #[setting("net.socket", "FILE", file())]
        socket: PathBuf = PathBuf::from(cni::spec::DEFAULT_SOCKET),

        /// This node's name, as Kubernetes has it
        #[setting("net.node", "NAME", text("a name of a-z, 0-9, - and .", values::node))]
        node: String = values::machine_name(),

        /// Addresses at which other nodes reach this one, separated by commas; `auto` takes those that it
        /// would send from
        #[setting("net.addresses", "LIST", addresses())]
        addresses: Vec<IpAddr> = Vec::new(),

        /// Subnets of the pool `default`, made where there is no pool of that name: separated by commas,
        /// the two of a dual stack joined by +
        #[setting("net.subnets", "LIST", subnets())]
        subnets: Vec<Subnet> = Vec::new(),

        /// Whether the pool `default`, where the agent makes it, is masqueraded: pods reach what does not
        /// route their addresses, with the node's
        #[setting("net.masquerade", "WHETHER", on_or_off())]
        masquerade: bool = false,

        /// By what name pods' interfaces go at the node's side: our own, or the one that Calico gives to the
        /// pod, for those who look for it by that. Pods that run keep theirs
        #[setting("net.interface-names", "WHOSE", one_of([
            ("fairlead", InterfaceNaming::Fairlead),
            ("calico", InterfaceNaming::Calico),
        ]))]
        interface_names: InterfaceNaming = InterfaceNaming::Fairlead,

        /// MTU of pods' interfaces; `auto` takes that of the node's uplink
        #[setting("net.mtu", "BYTES", number(576..=65535).or("auto"))]
        mtu: Option<u32> = None,

        /// UDP port of the overlay (pools with `overlay: auto` or `vxlan`), the same on all nodes
        #[setting("net.vxlan-port", "PORT", number(1..=65535))]
        vxlan_port: u16 = 4789,

        /// Whether packets between pods of different nodes, and between pods and other nodes, are encrypted
        /// (WireGuard, UDP port mesh.port): `preferred` sends them in clear to nodes that have not
        /// connected, `required` sends them nothing; needs store=kubernetes
        #[setting("net.encryption", "WHETHER", one_of([
            ("none", None),
            ("preferred", Some(Encryption::Preferred)),
            ("required", Some(Encryption::Required)),
        ]))]
        encryption: Option<Encryption> = None,

        /// Whether pods of this node may use Egresses; needs store=kubernetes, and net.pod-networks where
        /// net.serve is off
        #[setting("net.egress", "WHETHER", on_or_off())]
        egress: bool = false,

        /// Where another CNI plugin takes pods' addresses from, on all nodes: networks separated by commas,
        /// such as 10.244.0.0/16; for net.egress where net.serve is off
        #[setting("net.pod-networks", "LIST", networks())]
        pod_networks: Vec<IpNet> = Vec::new(),

        /// UDP port of the tunnels to egress pods, the same on all nodes and in all egress pods
        #[setting("net.egress-port", "PORT", number(1..=65535))]
        egress_port: u16 = 4788,

        /// Image of the pods that controllers make for Egresses; `none` makes none
        #[setting("net.egress-image", "IMAGE", text("the name of an image", image).or("none"))]
        egress_image: Option<String> = None,

        /// Routing table in which this node's blocks are put for BIRD and the like; `none` puts them
        /// nowhere
        #[setting("net.export-table", "TABLE", number(1..=u32::MAX).only(
            "a number from 1 to 4294967295 that is not 253, 254 or 255",
            |table| !matches!(table, 253..=255)
        ).or("none"))]
        export_table: Option<u32> = Some(119),

        /// How long the agent may be away (while it is replaced) before its node is not ready; 0s for not
        /// at all
        #[setting("net.grace", "TIME", time("0s", "10m"))]
        grace: Duration = cni::ready::DEFAULT_GRACE,
    }
}

settings! {
    /// What the agent observes, and to whom it reports.
    struct Sense in (config.sense) {
        /// Where the agent reports who talks to whom: names or addresses of controllers with the port for
        /// agents, separated by commas; `none` observes nothing
        #[setting("guard.controllers", "LIST", words(
            "hosts with ports separated by commas, such as fairlead.example.com:7681", host_and_port
        ))]
        controllers: Vec<String> = Vec::new(),

        /// Token that enrols this node the first time (`fairlead agents token`); not needed afterwards,
        /// nor for a controller on loopback
        #[setting("guard.token-file", "FILE", optional_file())]
        token_file: Option<PathBuf> = None,

        /// Token of this pod's service account, for the audience fairlead-agents and bound to the pod,
        /// with which this node enrols; read again at each use. No `fairlead agents token` is needed then
        #[setting("guard.identity-token-file", "FILE", optional_file())]
        identity_token_file: Option<PathBuf> = None,

        /// Authority (PEM) by which a controller is known before guard.identity-token-file is shown to it;
        /// without it the ConfigMap fairlead-agents-ca in fleet.namespace is read, with store=kubernetes
        #[setting("guard.ca-file", "FILE", optional_file())]
        ca_file: Option<PathBuf> = None,

        /// Have the kernel track connections: `auto` does, with an nftables table of its own that no
        /// packet passes; `off` sees only what other rules have it track
        #[setting("guard.track", "WHETHER", one_of([("auto", true), ("off", false)]))]
        track: bool = true,

        /// How applications are told: by the first `bytes` of connections, with an nftables table of its own,
        /// where guard.track is auto; or by what their `port` is for. Names alone leave the node, never bytes
        #[setting("guard.applications", "HOW", one_of([("bytes", true), ("port", false)]))]
        first_bytes: bool = true,

        /// Whether `up` observes this machine's own connections: auto does so as root, and changes nothing
        /// of its network
        #[setting("guard.observe", "WHETHER", Switch::format())]
        observe: Switch = Switch::Auto,
    }
}

settings! {
    /// The WireGuard interface of the agent's node, for meshes and for net.encryption.
    struct Mesh in (config.mesh) {
        /// Carry packets of meshes with `dataPlane: wireguard` through this node's own WireGuard interface;
        /// needs store=kubernetes
        #[setting("mesh.wireguard", "WHETHER", on_or_off())]
        wireguard: bool = false,

        /// Name of that interface
        #[setting("mesh.interface", "NAME", text(
            "a name of 1 to 15 letters, digits, - and _", values::interface
        ))]
        interface: String = "flwg0".to_owned(),

        /// UDP port at which other nodes reach it. Kilo has 51820
        #[setting("mesh.port", "PORT", number(1..=65535))]
        port: u16 = 51821,

        /// Its MTU: that of the network less 80 bytes, or less 60 where no peer is reached by IPv6; with
        /// net.encryption at most that of the uplink less 80
        #[setting("mesh.mtu", "BYTES", number(1280..=65535))]
        mtu: u32 = 1420,

        /// Who encrypts: the kernel where it has WireGuard (`auto`), or always the one of the two
        #[setting("mesh.implementation", "WHICH", one_of([
            ("auto", None),
            ("kernel", Some(Implementation::Kernel)),
            ("userspace", Some(Implementation::Userspace)),
        ]))]
        implementation: Option<Implementation> = None,

        /// How old this node's key may be before it is replaced, without a lost connection
        #[setting("mesh.key-lifetime", "TIME", time("1h", "8760h").or("none"))]
        key_lifetime: Option<Duration> = None,

        /// File of keys that the nodes of all clusters share beside their own, one a line as `wg genpsk`
        /// prints it, each with the time from which on it is used (docs/mesh.md)
        #[setting("mesh.preshared-keys", "FILE", optional_file())]
        preshared_keys: Option<PathBuf> = None,
    }
}

settings! {
    /// What the agent does about policies.
    struct Policy in (config.policy) {
        /// Enforce policies on this node (the nftables table fairlead-guard), from the first packet of
        /// each pod on
        #[setting("policy.enforce", "WHETHER", on_or_off())]
        enforce: bool = false,

        /// What a pod may do before its policies have arrived: `isolate` denies what a policy may deny,
        /// `wait` also holds its start up for them for two seconds at most, `open` denies nothing
        #[setting("policy.new-pods", "HOW", one_of([
            ("isolate", NewPods::Isolate), ("wait", NewPods::Wait), ("open", NewPods::Open)
        ]))]
        new_pods: NewPods = NewPods::Isolate,

        /// What holds on a node that has never had policies from a controller: `open` denies nothing,
        /// `closed` denies everything to pods but what their node sends
        #[setting("policy.fail-mode", "MODE", one_of([
            ("open", FailMode::Open), ("closed", FailMode::Closed)
        ]))]
        fail_mode: FailMode = FailMode::Open,

        /// How NetworkPolicies deny on this node: `drop` says nothing to the sender, `reject` answers
        /// with a TCP reset or ICMP "administratively prohibited"
        #[setting("policy.deny-network-policies", "HOW", one_of([
            ("drop", Denial::Drop), ("reject", Denial::Reject)
        ]))]
        deny_network_policies: Denial = Denial::Drop,

        /// How ClusterNetworkPolicies deny on this node
        #[setting("policy.deny-cluster-policies", "HOW", one_of([
            ("drop", Denial::Drop), ("reject", Denial::Reject)
        ]))]
        deny_cluster_policies: Denial = Denial::Drop,

        /// How guard's rules and the label for quarantine deny on this node
        #[setting("policy.deny-guard", "HOW", one_of([
            ("drop", Denial::Drop), ("reject", Denial::Reject)
        ]))]
        deny_guard: Denial = Denial::Drop,
    }
}

settings! {
    /// The API.
    struct Api in (config.api) {
        /// The API that the command line and programs speak to; beyond loopback only with TLS
        #[setting("api.listen", "ADDR", plain(listen::EXPECTED))]
        listen: ListenAddress = ListenAddress::loopback(7680),

        /// Certificate of the API: `files` takes api.tls-cert and api.tls-key (none of them: no TLS);
        /// `auto` takes one of an authority of its own, which is published in the ConfigMap fairlead-ca
        /// and in ca.crt in the data directory
        #[setting("api.tls", "SOURCE", TlsSource::format())]
        tls: TlsSource = TlsSource::Files,

        /// Certificate chain (PEM) for the API
        #[setting("api.tls-cert", "FILE", optional_file())]
        tls_cert: Option<PathBuf> = None,

        /// Private key (PEM) for the API; readable by its owner only
        #[setting("api.tls-key", "FILE", optional_file())]
        tls_key: Option<PathBuf> = None,

        /// Names and addresses by which clients reach the API, for its certificate with api.tls=auto,
        /// beside those of the Service and of loopback; separated by commas
        #[setting("api.names", "LIST", words(
            "names and addresses separated by commas, such as fairlead.example.com", host
        ))]
        names: Vec<String> = Vec::new(),
    }
}

settings! {
    /// The audit.
    struct Audit in (config.audit) {
        /// Record what shells in containers show, as asciicasts beside the audit, 16 MiB each at most; what
        /// is typed is recorded as far as the shell echoes it
        #[setting("audit.record-shells", "WHETHER", on_or_off())]
        record_shells: bool = false,

        /// How much recordings of shells may take together; the oldest are deleted for new ones
        #[setting("audit.recordings-size", "SIZE", size(64 << 20))]
        recordings_size: u64 = 1 << 30,
    }
}

settings! {
    /// The admission webhook.
    struct Admission in (config.admission) {
        /// Serve the admission webhook: `auto` does in a pod whose store is its cluster, or when
        /// admission.service or admission.url is set; `off` also takes back the registration in the
        /// store's cluster
        #[setting("admission.webhook", "WHETHER", Switch::format())]
        webhook: Switch = Switch::Auto,

        /// The admission webhook, always with TLS
        #[setting("admission.listen", "ADDR", plain(listen::EXPECTED))]
        listen: ListenAddress = ListenAddress::loopback(7683),

        /// The Service by which the API server of the store's cluster reaches the webhook; registers it
        /// there
        #[setting("admission.service", "NAMESPACE/NAME", Service::format().or("none"))]
        service: Option<Service> = None,

        /// Where API servers reach the webhook from outside; registers it in the store's cluster and in
        /// admission.clusters
        #[setting("admission.url", "URL", HttpsUrl::format().or("none"))]
        url: Option<HttpsUrl> = None,

        /// Clusters of the fleet whose API servers are to ask the webhook, by admission.url; `none` is none
        #[setting("admission.clusters", "NAMES", words(
            "names of clusters separated by commas", cluster
        ))]
        clusters: Vec<String> = Vec::new(),

        /// File of authorities (PEM): the webhook takes reviews only of API servers that show a certificate
        /// of one of them; anybody's, unless it is set
        #[setting("admission.client-ca", "FILE", optional_file())]
        client_ca: Option<PathBuf> = None,

        /// What deny rules without a mode of their own do: `monitor` records, `protect` refuses
        #[setting("admission.mode", "MODE", one_of([("monitor", false), ("protect", true)]))]
        protect: bool = false,

        /// Namespaces that no rule looks into, separated by commas; `none` is none. That of
        /// admission.service always is one
        #[setting("admission.exempt", "NAMESPACES", words(
            "names of namespaces separated by commas", values::label
        ))]
        exempt: Vec<String> = ["kube-system", "kube-public", "kube-node-lease"].map(String::from).into(),

        /// Service accounts whose word on the owner of what they make is taken, as that of Kubernetes' own
        /// controllers is; `none` is none
        #[setting("admission.controllers", "ACCOUNTS", words(
            "service accounts as NAMESPACE/NAME, or names of users, separated by commas", user
        ))]
        controllers: Vec<String> = Vec::new(),

        /// Spare sidecars of Istio and Linkerd that an injector added the rules on images, variables and
        /// resources
        #[setting("admission.exempt-sidecars", "WHETHER", bool())]
        exempt_sidecars: bool = false,

        /// How old a scan of an image may be; older ones count for nothing. Of any age, unless it is set;
        /// what trivy-operator withdrew then counts for another week
        #[setting("admission.scan-age", "TIME", time("1h", "87600h").or("none"))]
        scan_age: Option<Duration> = None,

        /// Registries from which signatures of images that run are read in the background, by host, separated
        /// by commas, as ghcr.io or http://registry:5000; `none` reads none. Others are never asked
        #[setting("admission.registries", "HOSTS", words(
            "hosts of registries separated by commas, such as ghcr.io, harbor.example.com:8443", registry
        ))]
        registries: Vec<String> = Vec::new(),

        /// File of authorities (PEM) of these registries, in place of the public ones
        #[setting("admission.registry-ca", "FILE", optional_file())]
        registry_ca: Option<PathBuf> = None,

        /// File with lines of HOST USER:PASSWORD for these registries
        #[setting("admission.registry-credentials", "FILE", optional_file())]
        registry_credentials: Option<PathBuf> = None,

        /// What an API server does when the webhook does not answer: `ignore` admits, `fail` refuses
        #[setting("admission.failure-policy", "POLICY", one_of([
            ("ignore", FailurePolicy::Ignore), ("fail", FailurePolicy::Fail)
        ]))]
        failure_policy: FailurePolicy = FailurePolicy::Ignore,

        /// How long an API server waits for the webhook
        #[setting("admission.timeout", "TIME", time("1s", "30s").only(
            "whole seconds from 1s to 30s", |time| time.subsec_nanos() == 0
        ))]
        timeout: Duration = Duration::from_secs(10),
    }
}

settings! {
    /// The controller's listener for agents.
    struct Agents in (config.agents) {
        /// gRPC for agents, with certificates of its own authority; without TLS only in `up`, on loopback
        #[setting("agents.listen", "ADDR", plain(listen::EXPECTED))]
        listen: ListenAddress = ListenAddress::loopback(7681),

        /// How long a node's certificate lives; its agent renews it at two thirds
        #[setting("agents.certificate", "TIME", time("1h", "720h"))]
        certificate: Duration = LIFETIME,

        /// Service account whose pods may enrol as the agent of their node; `auto` is fairlead-agent in
        /// fleet.namespace, `none` lets no pod enrol without a token of `fairlead agents token`
        #[setting("agents.service-account", "NAMESPACE/NAME", ServiceAccount::format())]
        service_account: ServiceAccount = ServiceAccount::Auto,

        /// Listens without TLS. Nobody can set it: only `up` does, and only on loopback.
        plain: bool = false,
    }
}

settings! {
    /// What the controller makes of the agents' reports.
    struct Guard in (config.guard) {
        /// Cluster of the fleet whose pods, services and nodes conversations are told apart by; `auto`
        /// takes that of the store, or what agents tell where the store is embedded
        #[setting("guard.cluster", "NAME", text("the name of a cluster", cluster).or("auto"))]
        cluster: Option<String> = None,

        /// Mode of workloads in no group that has one: `discover` learns rules from what is seen,
        /// `monitor` reports what no rule allows
        #[setting("guard.mode", "MODE", one_of([
            ("discover", GroupMode::Discover), ("monitor", GroupMode::Monitor)
        ]))]
        mode: GroupMode = GroupMode::Discover,

        /// How long it is kept who talked to whom, by the minute, in this replica's data directory; 0s keeps
        /// nothing
        #[setting("guard.history", "TIME", time("0s", "8760h"))]
        history: Duration = Duration::from_secs(72 * 3600),

        /// The most that the history of conversations takes on disk; the oldest hour goes first
        #[setting("guard.history-size", "SIZE", size(1 << 20))]
        history_size: u64 = 256 << 20,
    }
}

settings! {
    /// Who is told of events.
    struct Notify in (config.notify) {
        /// The most notifications that wait for one receiver; one more is dropped and counted
        #[setting("notify.queue", "N", number(1..=1_000_000))]
        queue: u64 = 10_000,

        /// How soon the same violation or admission decision is an event again; its count says how often
        /// it came meanwhile
        #[setting("notify.repeat", "TIME", time("1s", "24h"))]
        repeat: Duration = Duration::from_secs(600),

        /// Write violations and admission decisions as Kubernetes Events on their objects, in the cluster of
        /// the store
        #[setting("notify.cluster-events", "WHETHER", on_or_off())]
        cluster_events: bool = true,

        /// Let response rules quarantine pods, by a label; Fairlead's account needs get and patch on pods
        #[setting("notify.quarantine", "WHETHER", on_or_off())]
        quarantine: bool = false,
    }
}

settings! {
    /// Health, metrics and debug endpoints.
    struct Admin in (config.admin) {
        /// Health, metrics and debug endpoints; beyond loopback only with TLS, and without a token only
        /// /livez and /readyz
        #[setting("admin.listen", "ADDR", plain(listen::EXPECTED))]
        listen: ListenAddress = ListenAddress::loopback(7682),

        /// Certificate of the admin endpoints: `files` takes admin.tls-cert and admin.tls-key; `auto`
        /// makes one at each start, for addresses beyond loopback, and stays plain on loopback
        #[setting("admin.tls", "SOURCE", TlsSource::format())]
        tls: TlsSource = TlsSource::Files,

        /// Certificate chain (PEM) for the admin endpoints
        #[setting("admin.tls-cert", "FILE", optional_file())]
        tls_cert: Option<PathBuf> = None,

        /// Private key (PEM) for the admin endpoints; readable by its owner only
        #[setting("admin.tls-key", "FILE", optional_file())]
        tls_key: Option<PathBuf> = None,

        /// Bearer token for the admin endpoints (/livez and /readyz need none)
        #[setting("admin.token-file", "FILE", optional_file())]
        token_file: Option<PathBuf> = None,

        /// Serve CPU and heap profiles under /debug/pprof/
        #[setting("admin.profiling", "BOOL", bool())]
        profiling: bool = false,
    }
}

settings! {
    /// The log.
    struct Log in (config.log) {
        /// What is logged; changeable while running
        #[setting("log.level", "LEVEL", log_level())]
        level: String = "info".to_owned(),

        /// How it is logged; `auto` is human on a terminal, JSON otherwise
        #[setting("log.format", "FORMAT", LogFormat::format())]
        format: LogFormat = LogFormat::Auto,
    }
}
