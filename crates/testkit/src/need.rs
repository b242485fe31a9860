//! What a test needs of the machine. [`requires!`](crate::requires) asks; a test that cannot run
//! says `SKIPPED: <test>: <why>` and returns. With `CI=true` it fails instead: there, a test that
//! silently does not run is worse than one that fails.

use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Skips the test unless the machine has all that is named, functions of [`need`](crate::need):
/// `requires!(kube)`, `requires!(kube, netns)`.
#[macro_export]
macro_rules! requires {
    ($($need:ident),+ $(,)?) => {
        $(if let Err(why) = $crate::need::$need() {
            fn here() {}
            $crate::need::skip(::std::any::type_name_of_val(&here), &why);
            return;
        })+
    };
}

/// A kube-apiserver and an etcd to run.
pub fn kube() -> Result<(), String> {
    kube_assets().map(|_| ())
}

/// cnitool, containerd and what they run.
pub fn cni() -> Result<(), String> {
    cni_assets().map(|_| ())
}

/// A program that renders charts in Helm's language.
pub fn helm() -> Result<(), String> {
    helm_template().map(|_| ())
}

/// A browser, the program that drives it, and the console to look at.
pub fn browser() -> Result<(), String> {
    runs("node", &["--version"])?;
    runs("chromium", &["--version"])?;
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    for made in ["dist/index.html", "node_modules/playwright-core/package.json"] {
        if !console.join(made).is_file() {
            return Err(format!("no console/{made}; scripts/console makes it"));
        }
    }
    Ok(())
}

/// An OpenID provider to run.
pub fn identity_provider() -> Result<(), String> {
    identity_provider_modules().map(|_| ())
}

/// The user root.
pub fn root() -> Result<(), String> {
    match std::fs::metadata("/proc/self") {
        Ok(process) if process.uid() == 0 => Ok(()),
        Ok(_) => Err("needs root".to_owned()),
        Err(error) => Err(format!("no /proc: {error}")),
    }
}

/// The right and the tools to make network namespaces.
pub fn netns() -> Result<(), String> {
    root()?;
    runs("ip", &["-Version"])?;
    runs("unshare", &["--net", "true"])
}

/// Interfaces whose packets a program reads.
pub fn tun() -> Result<(), String> {
    match Path::new("/dev/net/tun").exists() {
        true => Ok(()),
        false => Err("no /dev/net/tun".to_owned()),
    }
}

/// Debian's WireGuard: `wg` and `wireguard-go`.
pub fn wireguard() -> Result<(), String> {
    runs("wg", &["--version"])?;
    runs("wireguard-go", &["--version"])
}

/// A whole cluster: root, control groups, namespaces, and every binary of it.
pub fn cluster() -> Result<(), String> {
    crate::cluster::possible()
}

/// Rules to be made as people make them.
pub fn nft() -> Result<(), String> {
    runs("nft", &["--version"])
}

/// The pod networks that others have: ptp, bridge and macvlan, in [`CNI_PLUGINS`].
pub fn cni_plugins() -> Result<(), String> {
    let missing = |name: &&str| !Path::new(CNI_PLUGINS).join(name).is_file();
    match ["ptp", "bridge", "macvlan", "host-local"].into_iter().find(missing) {
        None => Ok(()),
        Some(name) => Err(format!(
            "no {CNI_PLUGINS}/{name}; scripts/setup installs containernetworking-plugins"
        )),
    }
}

/// Where Debian's containernetworking-plugins are.
pub const CNI_PLUGINS: &str = "/usr/lib/cni";

/// A registry of images.
pub fn docker_registry() -> Result<(), String> {
    runs("docker-registry", &["--version"])
}

/// A real syslog server, with TLS.
pub fn rsyslog() -> Result<(), String> {
    runs("rsyslogd", &["-v"])
}

/// A real Alertmanager.
pub fn alertmanager() -> Result<(), String> {
    runs("prometheus-alertmanager", &["--version"])
}

/// A real mail server.
pub fn mail_server() -> Result<(), String> {
    runs("/usr/bin/python3", &["-c", "import aiosmtpd"])
}

pub(crate) fn runs(program: &str, args: &[&str]) -> Result<(), String> {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}; scripts/setup installs it")),
    }
}

/// The directory that `scripts/kube-assets` names. The first time on a machine that has none, this
/// waits for the script to build them.
pub(crate) fn kube_assets() -> Result<&'static Path, String> {
    static ASSETS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || assets("kube-assets").map_err(|why| format!("no kube-apiserver: {why}"));
    ASSETS.get_or_init(find).as_deref().map_err(Clone::clone)
}

/// The directory that `scripts/cni-assets` names, made like the other.
pub fn cni_assets() -> Result<&'static Path, String> {
    static ASSETS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || assets("cni-assets").map_err(|why| format!("no cnitool: {why}"));
    ASSETS.get_or_init(find).as_deref().map_err(Clone::clone)
}

/// The program that `scripts/helm-template` names, made like the others.
pub fn helm_template() -> Result<&'static Path, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || assets("helm-template").map_err(|why| format!("no renderer of charts: {why}"));
    PROGRAM.get_or_init(find).as_deref().map_err(Clone::clone)
}

/// The directory that `scripts/oidc-provider` names, made like the others.
pub(crate) fn identity_provider_modules() -> Result<&'static Path, String> {
    static MODULES: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || assets("oidc-provider").map_err(|why| format!("no identity provider: {why}"));
    MODULES.get_or_init(find).as_deref().map_err(Clone::clone)
}

fn assets(name: &str) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    // Its progress, and why it could not, go where the test's own output goes.
    match Command::new(&script).stderr(Stdio::inherit()).output() {
        Ok(output) if output.status.success() => {
            Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
        }
        Ok(output) => Err(format!("scripts/{name}: {}", output.status)),
        Err(error) => Err(format!("{}: {error}", script.display())),
    }
}

#[doc(hidden)]
#[track_caller]
pub fn skip(here: &str, why: &str) {
    let ci = env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!ci, "in CI every test runs, but this one cannot: {why}");
    eprintln!("SKIPPED: {}: {why}", test_name(here));
}

/// `krate::tests::name::{{closure}}::here` is the test `krate::tests::name`.
fn test_name(here: &str) -> &str {
    let mut name = here.trim_end_matches("::here");
    while let Some(outer) = name.strip_suffix("::{{closure}}") {
        name = outer;
    }
    name
}

#[cfg(test)]
mod tests;
