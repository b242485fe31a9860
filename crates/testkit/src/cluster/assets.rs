//! What a cluster is made of, and whether it can run on this machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::daemons::Release;
use crate::need;

const KUBE: [&str; 7] = [
    "kube-apiserver",
    "etcd",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
];
const CNI: [&str; 5] = ["containerd", "ctr", "containerd-shim-runc-v2", "runc", "busybox"];
const PLUGINS: [&str; 4] = ["loopback", "host-local", "ptp", "portmap"];

/// The first version whose kubelet runs on control groups of version 2 alone.
const CGROUP_V2: Release = Release(22);

#[derive(Clone, Debug)]
pub(super) struct Assets {
    pub(super) kube: PathBuf,
    pub(super) cni: PathBuf,
    pub(super) plugins: PathBuf,
    pub(super) release: Release,
}

impl Assets {
    pub(super) fn find() -> Result<Self, String> {
        let kube = need::kube_assets()?;
        has(kube, &KUBE).map_err(|missing| {
            format!(
                "no {missing} in {}; set KUBEBUILDER_ASSETS to a directory that has it",
                kube.display()
            )
        })?;
        let cni = need::cni_assets()?;
        has(cni, &CNI).map_err(|missing| {
            format!(
                "no {missing} in {}; set FAIRLEAD_CNI_ASSETS to a directory that has it",
                cni.display()
            )
        })?;
        let places = [cni, Path::new("/usr/lib/cni"), Path::new("/opt/cni/bin")];
        let plugins = places.into_iter().find(|place| has(place, &PLUGINS).is_ok());
        let plugins = plugins.ok_or("no CNI plugins; install containernetworking-plugins")?;
        let release = Release::of(&kube.join("kubelet"))?;
        Ok(Self {
            kube: kube.to_owned(),
            cni: cni.to_owned(),
            plugins: plugins.to_owned(),
            release,
        })
    }

    pub(super) fn kube(&self, program: &str) -> String {
        self.kube.join(program).display().to_string()
    }

    pub(super) fn cni(&self, program: &str) -> String {
        self.cni.join(program).display().to_string()
    }
}

/// Why no cluster can run here, if so.
pub(crate) fn possible() -> Result<(), String> {
    need::netns()?;
    for (program, args) in [
        ("iptables", &["--version"][..]),
        ("nsenter", &["--version"]),
        ("setpriv", &["--version"]),
        ("bash", &["--version"]),
        ("unshare", &["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "true"]),
    ] {
        need::runs(program, args)?;
    }
    let assets = Assets::find()?;
    let root = Path::new("/sys/fs/cgroup");
    let unified = root.join("cgroup.controllers").exists();
    if unified && assets.release < CGROUP_V2 {
        return Err(format!("kubelet 1.{} needs control groups of version 1", assets.release.0));
    }
    let hierarchy = if unified { root.to_owned() } else { root.join("pids") };
    let probe = hierarchy.join(format!("fairlead-probe-{}", std::process::id()));
    fs::create_dir(&probe)
        .and_then(|()| fs::remove_dir(&probe))
        .map_err(|error| format!("cannot make control groups: {}: {error}", probe.display()))
}

/// All of them are there, or the first that is not.
fn has<'a>(dir: &Path, names: &[&'a str]) -> Result<(), &'a str> {
    names.iter().find(|name| !dir.join(name).exists()).map_or(Ok(()), |missing| Err(*missing))
}
