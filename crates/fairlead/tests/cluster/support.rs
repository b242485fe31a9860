//! `fairlead support --cluster` on a real cluster: what only the pods themselves can tell is in it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Stage, text};

/// Every pod of ours is entered, and its own archive is in the archive.
pub(crate) fn an_archive_for_support_is_collected(stage: &Stage) {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("support.tar.gz");
    let began = std::time::Instant::now();
    stage.ok(&["support", "--cluster", "-f", archive.to_str().unwrap()]);
    eprintln!("collected for support in {:.1} s", began.elapsed().as_secs_f64());
    unpack(&archive, dir.path());
    let there = dir.path().join("fairlead-support");
    let missing = fs::read_to_string(there.join("missing.txt")).unwrap();
    let mut pods = stage.cluster.pods("fairlead", "").unwrap();
    let ours = ["fairlead-controller", "fairlead-agent"];
    pods.retain(|pod| {
        let of = pod["metadata"]["labels"]["app.kubernetes.io/name"].as_str();
        of.is_some_and(|of| ours.contains(&of)) && pod["metadata"]["deletionTimestamp"].is_null()
    });
    assert!(pods.len() >= 2, "{pods:?}");
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let of_pod = there.join("pods").join(name);
        let own = of_pod.join("support.tar.gz");
        assert!(own.is_file(), "{name} told nothing: {missing}");
        unpack(&own, &of_pod);
        let told = of_pod.join("fairlead-support");
        let read = |file: &str| {
            let within = fs::read_to_string(told.join("missing.txt")).unwrap();
            fs::read_to_string(told.join(file))
                .unwrap_or_else(|e| panic!("{name} {file}: {e}: {within}"))
        };
        assert!(read("inflight.json").contains("/debug/inflight"));
        let metrics = read("metrics.txt");
        assert!(metrics.contains("fairlead_build"));
        let counts_clients = metrics.contains("fairlead_net_egress_clients");
        assert_eq!(counts_clients, name.contains("agent"), "{name}: {metrics}");
        assert!(read("settings.json").contains("--data"), "the daemon's own flags are known");
        assert!(read("process.txt").contains("command line"));
        let log = fs::read_dir(&of_pod).unwrap().any(|file| {
            file.unwrap().path().extension().is_some_and(|extension| extension == "log")
        });
        assert!(log, "{name} has no log: {missing}");
    }
    // No Secret's content, neither a service account's token.
    let secrets =
        stage.cluster.kubectl(&["--namespace=fairlead", "get", "secrets", "--output=json"]);
    let secrets: serde_json::Value = serde_json::from_str(&secrets).unwrap();
    let mut packed = String::new();
    everything(&there, &mut packed);
    for secret in secrets["items"].as_array().unwrap() {
        for (key, value) in secret["data"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap();
            // Certificates of authorities are public, and in ConfigMaps too.
            let public = key.ends_with(".crt") || key == "namespace" || key.contains("authorit");
            assert!(
                public || value.len() < 40 || !packed.contains(value),
                "{key} is in the archive"
            );
        }
    }
    assert!(!packed.contains("PRIVATE KEY-----\\nM"), "a private key is in the archive");
    let report = stage.run(&["doctor", archive.to_str().unwrap()]);
    assert!(report.status.code().is_some_and(|code| code < 2), "{}", text(&report.stdout));
}

fn unpack(archive: &Path, into: &Path) {
    let tar = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(into).output().unwrap();
    assert!(tar.status.success(), "{}", text(&tar.stderr));
}

fn everything(dir: &Path, all: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            everything(&path, all);
        } else {
            all.push_str(&text(&fs::read(path).unwrap()));
        }
    }
}
