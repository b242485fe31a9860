//! Command lines and configuration of what a node runs, by the version of Kubernetes.
//!
//! Most was in 1.20 and is in 1.36. What came or went in between is asked of [`Release`]. What can be
//! said in a configuration file is said there: flags go away, fields stay.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::pki::Pki;
use super::{API_PORT, Assets, POD_NETWORK, PREFIX, SERVICE_NETWORK};

pub(super) const ETCD: &str = "etcd";
pub(super) const API_SERVER: &str = "kube-apiserver";
pub(super) const CONTROLLERS: &str = "kube-controller-manager";
pub(super) const SCHEDULER: &str = "kube-scheduler";
pub(super) const CONTAINERD: &str = "containerd";
pub(super) const KUBELET: &str = "kubelet";
pub(super) const KUBE_PROXY: &str = "kube-proxy";

/// The image that is on every node from the start; it also holds a pod's namespaces.
pub(super) const PAUSE: &str = "local/busybox:1";

const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// The default is in `/usr`, which is the machine's own.
const VOLUME_PLUGINS: &str = "/var/lib/kubelet/volume-plugins";

/// etcd reads the URL as host and port, and makes the two the name of a socket in its directory.
const ETCD_URL: &str = "unix://etcd:0";
const ETCD_PEER: &str = "unix://peer:0";
const ETCD_DIR: &str = "/run/etcd";

/// A version of Kubernetes: the `20` of 1.20.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release(pub(super) u32);

impl Release {
    pub(super) fn of(kubelet: &Path) -> Result<Self, String> {
        let output = Command::new(kubelet).arg("--version").output();
        let output = output.map_err(|error| format!("{}: {error}", kubelet.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        Self::parse(&said).ok_or_else(|| format!("kubelet --version says {:?}", said.trim()))
    }

    /// `Kubernetes v1.20.2`, `Kubernetes v1.30.0-rc.1+abc`.
    fn parse(said: &str) -> Option<Self> {
        let version = said.trim().strip_prefix("Kubernetes v1.")?;
        version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().map(Self)
    }
}

/// One node, as far as its daemons must know it.
pub(super) struct Place<'a> {
    pub(super) name: &'a str,
    pub(super) address: &'a str,
    /// Where `daemon`, `log` and the configuration files are.
    pub(super) dir: &'a Path,
    /// Below the root of every hierarchy.
    pub(super) cgroup: &'a str,
}

/// Writes what the daemons of every node need. `server` is the API server's URL.
pub(super) fn write_node(place: &Place<'_>, assets: &Assets, pki: &Pki, server: &str) {
    let file = |name: &str| place.dir.join(name).display().to_string();
    let (name, release) = (place.name, assets.release);

    write(place, "containerd.toml", &containerd(place));
    let containerd = [assets.cni("containerd"), "--config".to_owned(), file("containerd.toml")];
    script(place, assets, CONTAINERD, &containerd);

    let user = format!("system:node:{name}");
    let kubeconfig = pki.client(name, (&user, Some("system:nodes")), server);
    pki.sign(&format!("{name}-server"), (&user, Some("system:nodes")), &[place.address, name]);
    write(place, "kubelet.json", &kubelet(place, release, pki).to_string());
    let mut flags = vec![
        assets.kube(KUBELET),
        format!("--config={}", file("kubelet.json")),
        format!("--kubeconfig={kubeconfig}"),
        format!("--hostname-override={name}"),
        format!("--node-ip={}", place.address),
    ];
    // Else it is Docker, and the runtime's address has no field in the configuration.
    if release < Release(24) {
        flags.push("--container-runtime=remote".to_owned());
    }
    if release < Release(27) {
        flags.push(format!("--container-runtime-endpoint=unix://{CONTAINERD_SOCKET}"));
    }
    script(place, assets, KUBELET, &flags);

    let proxy_user = format!("{name}-proxy");
    let kubeconfig = pki.client(&proxy_user, ("system:kube-proxy", None), server);
    write(place, "kube-proxy.json", &kube_proxy(place, &kubeconfig).to_string());
    let flags = [assets.kube(KUBE_PROXY), format!("--config={}", file("kube-proxy.json"))];
    script(place, assets, KUBE_PROXY, &flags);
}

/// Writes what the control plane's daemons need, which run on the same node.
pub(super) fn write_control_plane(place: &Place<'_>, assets: &Assets, pki: &Pki, server: &str) {
    let mut command = vec![assets.kube(ETCD)];
    command.extend(etcd());
    script(place, assets, ETCD, &command);

    let names = ["127.0.0.1", place.address, "10.96.0.1", "localhost", "kubernetes"];
    let more =
        ["kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    pki.sign("apiserver", (API_SERVER, None), &[&names[..], &more].concat());
    pki.sign("apiserver-kubelet-client", ("apiserver", Some("system:masters")), &[]);
    pki.sign("front-proxy", ("front-proxy", None), &[]);
    let mut command = vec![assets.kube(API_SERVER)];
    command.extend(api_server(place, pki));
    script(place, assets, API_SERVER, &command);

    for (daemon, user, flags) in [
        (CONTROLLERS, "system:kube-controller-manager", controllers(pki)),
        (SCHEDULER, "system:kube-scheduler", Vec::new()),
    ] {
        let kubeconfig = pki.client(daemon, (user, None), server);
        let mut command = vec![
            assets.kube(daemon),
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        command.extend(flags);
        // The port without TLS, which later versions do not have.
        if assets.release < Release(23) {
            command.push("--port=0".to_owned());
        }
        script(place, assets, daemon, &command);
    }
}

fn etcd() -> Vec<String> {
    vec![
        "--data-dir=/var/lib/etcd".to_owned(),
        format!("--listen-client-urls={ETCD_URL}"),
        format!("--advertise-client-urls={ETCD_URL}"),
        format!("--listen-peer-urls={ETCD_PEER}"),
        format!("--initial-advertise-peer-urls={ETCD_PEER}"),
        format!("--initial-cluster=default={ETCD_PEER}"),
        // Its data need not survive the machine; a node's reboot leaves what was written.
        "--unsafe-no-fsync".to_owned(),
        // The only member waits this long before it elects itself.
        "--heartbeat-interval=20".to_owned(),
        "--election-timeout=100".to_owned(),
        "--logger=zap".to_owned(),
    ]
}

fn api_server(place: &Place<'_>, pki: &Pki) -> Vec<String> {
    let file = |name: &str| pki.path(name);
    vec![
        format!("--etcd-servers={ETCD_URL}"),
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={}", place.address),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--token-auth-file={}", file("tokens.csv")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!("--kubelet-client-certificate={}", file("apiserver-kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("apiserver-kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--proxy-client-cert-file={}", file("front-proxy.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy.key")),
        format!("--requestheader-client-ca-file={}", file("ca.crt")),
        "--requestheader-allowed-names=front-proxy".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
    ]
}

fn controllers(pki: &Pki) -> Vec<String> {
    vec![
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", pki.path("sa.key")),
        format!("--root-ca-file={}", pki.path("ca.crt")),
        format!("--cluster-signing-cert-file={}", pki.path("ca.crt")),
        format!("--cluster-signing-key-file={}", pki.path("ca.key")),
        format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
        // Tests wait for what it does; the stock limits are 20 and 30 requests a second.
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
        "--node-monitor-period=2s".to_owned(),
        format!("--flex-volume-plugin-dir={VOLUME_PLUGINS}"),
    ]
}

fn kubelet(place: &Place<'_>, release: Release, pki: &Pki) -> Value {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.path("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": pki.path(&format!("{}-server.crt", place.name)),
        "tlsPrivateKeyFile": pki.path(&format!("{}-server.key", place.name)),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", place.cgroup),
        // -999 needs a capability that not every root has.
        "oomScoreAdj": 0,
        // The node's first process shows it the sysctls that it wants.
        "protectKernelDefaults": true,
        "failSwapOn": false,
        "resolvConf": "/etc/resolv.conf",
        "clusterDNS": [place.address],
        "clusterDomain": "cluster.local",
        "volumePluginDir": VOLUME_PLUGINS,
        "maxPods": 250,
        // The stock kubelet makes five requests a second: that would be what tests measure.
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 500,
        "eventBurst": 1000,
        // Soon, so that a test sees a change at once; unchanged, it is said as seldom as always.
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "1m",
        // A full disk of this machine is not what is tested.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "0%", "nodefs.available": "0%",
            "nodefs.inodesFree": "0%", "imagefs.available": "0%",
        },
    });
    if release >= Release(27) {
        config["containerRuntimeEndpoint"] = json!(format!("unix://{CONTAINERD_SOCKET}"));
    }
    if release >= Release(31) {
        config["failCgroupV1"] = json!(false);
    }
    config
}

fn kube_proxy(place: &Place<'_>, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig, "qps": 100, "burst": 200 },
        "mode": "iptables",
        "hostnameOverride": place.name,
        "bindAddress": place.address,
        "clusterCIDR": POD_NETWORK,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        // Those of the whole machine: they are left alone.
        "conntrack": {
            "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
        },
        "iptables": { "minSyncPeriod": "0s", "syncPeriod": "30s" },
    })
}

/// In version 2 of the format, which containerd 2 reads as well.
fn containerd(place: &Place<'_>) -> String {
    // An overlay cannot lie on an overlay: in a container, layers are copied.
    let on_overlay = Command::new("stat")
        .args(["--file-system", "--format=%T"])
        .arg(place.dir)
        .output()
        .is_ok_and(|output| output.stdout.starts_with(b"overlay"));
    let snapshotter = if on_overlay { "native" } else { "overlayfs" };
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [ "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp" ]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#
    )
}

/// The reference network: a veth a pod, addresses from the node's own range.
pub(super) fn ptp(subnet: &str) -> String {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            { "type": "ptp", "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": subnet }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            } },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    })
    .to_string()
}

/// Writes `daemon/NAME`, which a node starts. A test may edit it before a restart.
fn script(place: &Place<'_>, assets: &Assets, name: &str, command: &[String]) {
    let path = [&assets.cni, &assets.kube].map(|dir| dir.display().to_string()).join(":");
    let mut script =
        format!("#!/bin/bash\nexport PATH={path}:/usr/sbin:/usr/bin:/sbin:/bin GOGC=400\n");
    match name {
        // runc's library, which a minimal system lacks.
        CONTAINERD => script += &format!("export LD_LIBRARY_PATH={}\n", assets.cni.display()),
        ETCD | API_SERVER => script += &format!("mkdir -p {ETCD_DIR} && cd {ETCD_DIR}\n"),
        _ => {}
    }
    // One that was killed leaves its sockets, at which the next one could not listen.
    if name == ETCD {
        script += "rm -f etcd:0 peer:0\n";
    }
    script += "exec";
    for word in command {
        script += &format!(" '{word}'");
    }
    script.push('\n');
    let file = format!("daemon/{name}");
    write(place, &file, &script);
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(place.dir.join(&file), mode)
        .unwrap_or_else(|error| panic!("{file}: {error}"));
}

fn write(place: &Place<'_>, name: &str, content: &str) {
    let path = place.dir.join(name);
    fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// `10.97.0.1` of the wire, with its prefix length.
pub(super) fn on_wire(address: &str) -> String {
    format!("{address}/{PREFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_whatever_follows_it() {
        assert_eq!(Release::parse("Kubernetes v1.20.2\n"), Some(Release(20)));
        assert_eq!(Release::parse("Kubernetes v1.36.0-rc.1+12ab"), Some(Release(36)));
        assert_eq!(Release::parse("Kubernetes v2.0.0"), None);
    }
}
