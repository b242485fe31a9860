//! `kubectl fairlead`: the program under the name by which kubectl finds plugins.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::requires;

/// kubectl, where the directory of Kubernetes' programs has it.
fn kubectl() -> Option<PathBuf> {
    let found = std::env::var_os("KUBEBUILDER_ASSETS").map(|dir| Path::new(&dir).join("kubectl"));
    let found = found.filter(|path| path.is_file());
    if found.is_none() {
        let why = "no kubectl in KUBEBUILDER_ASSETS; scripts/kube-assets makes it";
        testkit::need::skip(concat!(module_path!(), "::kubectl"), why);
    }
    found
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn kubectl_runs_the_plugin_with_its_arguments_and_kubeconfig() {
    requires!(kube);
    let Some(kubectl) = kubectl() else { return };
    let dir = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_fairlead"), dir.path().join("kubectl-fairlead")).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(&kubectl)
            .args(args)
            .env("PATH", dir.path())
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .env("KUBECONFIG", dir.path().join("nowhere"))
            .current_dir(dir.path())
            .output()
            .unwrap();
        (output.status.code(), said(&output))
    };
    let (code, (out, err)) = run(&["plugin", "list"]);
    assert!(code == Some(0) && out.contains("kubectl-fairlead"), "{out}{err}");
    assert!(!err.contains("warning"), "{err}");

    let (code, (out, err)) = run(&["fairlead", "version"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with(concat!("fairlead ", env!("CARGO_PKG_VERSION"))), "{out}");

    // It calls itself what was typed, at every depth.
    for verb in [&["fairlead", "--help"][..], &["fairlead", "clusters", "list", "--help"]] {
        let (code, (out, err)) = run(verb);
        assert_eq!(code, Some(0), "{err}");
        assert!(out.contains("Usage: kubectl fairlead"), "{out}");
    }

    // Flags and the kubeconfig are those of kubectl's user; exit codes come through.
    let (code, (_, err)) = run(&["fairlead", "support", "--cluster", "--context", "prod"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("the cluster cannot be reached"), "{err}");
}

#[test]
fn under_its_own_name_it_is_fairlead() {
    let output = Command::new(env!("CARGO_BIN_EXE_fairlead")).arg("--help").output().unwrap();
    let (out, _) = said(&output);
    assert!(out.contains("Usage: fairlead <COMMAND>"), "{out}");
}
