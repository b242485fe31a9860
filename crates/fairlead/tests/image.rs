//! The image as its users get it: made by the script, unpacked, and run in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use testkit::requires;

/// Where both programs were built.
fn binaries() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_fairlead")).parent().unwrap().to_owned()
}

/// Both programs, one of them a package of its own that a run of these tests alone does not build.
fn built() -> Option<PathBuf> {
    let plugin = binaries().join("fairlead-cni");
    if plugin.is_file() {
        return Some(plugin);
    }
    let why = "target has no fairlead-cni: build the workspace first";
    testkit::need::skip(concat!(module_path!(), "::built"), why);
    None
}

fn image(args: &[&str], binaries: &Path, out: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image");
    Command::new(script)
        .args(args)
        .arg("--binaries")
        .arg(binaries)
        .arg(out)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn member(archive: &Path, name: &str) -> Vec<u8> {
    let output = Command::new("tar").arg("-xOf").arg(archive).arg(name).output().unwrap();
    assert!(output.status.success(), "{name} is not in {}", archive.display());
    output.stdout
}

fn json(archive: &Path, name: &str) -> Value {
    serde_json::from_slice(&member(archive, name)).unwrap()
}

fn blob(digest: &Value) -> String {
    format!("blobs/{}", digest.as_str().unwrap().replace(':', "/"))
}

/// Unpacks the only layer, found as docker finds it.
fn unpack(archive: &Path, into: &Path) {
    let layer = json(archive, "manifest.json")[0]["Layers"][0].as_str().unwrap().to_owned();
    let packed = into.with_extension("layer");
    fs::write(&packed, member(archive, &layer)).unwrap();
    fs::create_dir(into).unwrap();
    let tar = Command::new("tar").arg("-xpzf").arg(&packed).arg("-C").arg(into).output().unwrap();
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
}

/// Two small programs make an image in no time, and the script does not care which they are.
fn small(dir: &Path, plugin: &Path) {
    for name in ["fairlead", "fairlead-cni"] {
        fs::copy(plugin, dir.join(name)).unwrap();
    }
}

#[test]
fn the_same_input_gives_the_same_image_whenever_and_wherever_it_is_made() {
    let Some(plugin) = built() else { return };
    let place = tempfile::tempdir().unwrap();
    small(place.path(), &plugin);
    let one = place.path().join("one.tar");
    let two = place.path().join("elsewhere/two.tar");
    let args = ["--allow-dynamic", "--tag", "registry.example:5000/team/fairlead:7"];
    let first = said(&image(&args, place.path(), &one));
    // Other times of files, another order of the directory, other permissions of the owner's choice.
    let other = tempfile::tempdir().unwrap();
    for name in ["fairlead-cni", "fairlead"] {
        fs::copy(&plugin, other.path().join(name)).unwrap();
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(other.path().join(name), mode).unwrap();
    }
    let second = said(&image(&args, other.path(), &two));
    assert_eq!(first, second, "the digest that the script prints");
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap(), "the archives differ");

    // What it prints is the manifest that containerd will know it by.
    let index = json(&one, "index.json");
    let manifest = &index["manifests"][0];
    assert_eq!(manifest["digest"].as_str(), Some(first.as_str()));
    let name = &manifest["annotations"]["io.containerd.image.name"];
    assert_eq!(name, "registry.example:5000/team/fairlead:7");
    let manifest = json(&one, &blob(&manifest["digest"]));
    let config = json(&one, &blob(&manifest["config"]["digest"]));
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/fairlead");
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");

    // Another program is another image.
    fs::write(other.path().join("fairlead"), fs::read(env!("CARGO_BIN_EXE_fairlead")).unwrap())
        .unwrap();
    let args = ["--allow-dynamic", "--level", "1"];
    let third = said(&image(&args, other.path(), &place.path().join("three.tar")));
    assert_ne!(first, third);
}

#[test]
fn what_cannot_be_an_image_is_refused_with_a_sentence() {
    let Some(plugin) = built() else { return };
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out.tar");
    let refused = |args: &[&str], binaries: &Path, why: &str| {
        let output = image(args, binaries, &out);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!out.exists());
    };
    refused(&[], place.path(), "there is no");
    small(place.path(), &plugin);
    refused(&[], place.path(), "needs shared libraries, and the image has none");
    refused(&["--tag", "Fairlead"], place.path(), "is no name of an image with a tag");
    fs::write(place.path().join("fairlead-cni"), "#!/bin/sh\n").unwrap();
    refused(&["--allow-dynamic"], place.path(), "is no Linux program");
}

#[test]
fn the_image_runs_without_root_and_has_nothing_that_it_does_not_need() {
    requires!(root);
    if built().is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("fairlead.tar");
    let args = ["--allow-dynamic", "--level", "1"];
    let output = image(&args, &binaries(), &archive);
    said(&output);
    println!("{}", String::from_utf8_lossy(&output.stderr).trim());
    let root = place.path().join("root");
    unpack(&archive, &root);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();

    // As the controller's pod runs it: nobody in particular, and nothing around it.
    let run = |args: &[&str]| {
        let output = Command::new("unshare")
            .arg("--root")
            .arg(&root)
            .args(["--setgid", "65532", "--setuid", "65532"])
            .args(args)
            .env_clear()
            .env("CNI_COMMAND", "VERSION")
            .output()
            .unwrap();
        said(&output)
    };
    let version = run(&["/usr/local/bin/fairlead", "version"]);
    assert!(version.starts_with(concat!("fairlead ", env!("CARGO_PKG_VERSION"))), "{version}");
    let plugin: Value = serde_json::from_str(&run(&["/usr/local/bin/fairlead-cni"])).unwrap();
    assert!(plugin["supportedVersions"].is_array(), "{plugin}");

    let has = |path: &str| root.join(path).symlink_metadata().is_ok();
    assert!(!has("bin") && !has("usr/bin") && !has("lib/ld-linux.so"), "there is no shell");
    assert!(fs::metadata(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap().len() > 10_000);
    let tmp = fs::metadata(root.join("tmp")).unwrap().permissions().mode();
    assert_eq!(tmp & 0o7777, 0o1777);
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    assert!(users.contains("nonroot:x:65532:65532:"), "{users}");

    // The bill of materials: what is linked in, with checksums, and nothing that only builds or tests.
    let inside = fs::read(root.join("usr/share/doc/fairlead/sbom.cdx.json")).unwrap();
    let beside = fs::read(place.path().join("fairlead.sbom.cdx.json")).unwrap();
    assert!(inside == beside);
    let bill: Value = serde_json::from_slice(&inside).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let components = bill["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|c| c["name"] == name);
    let tokio = named("tokio").expect("tokio is linked in");
    assert_eq!(tokio["hashes"][0]["content"].as_str().unwrap().len(), 64);
    assert_eq!(tokio["licenses"][0]["expression"], "MIT");
    let preact = named("preact").expect("the console is made with it");
    assert_eq!(preact["hashes"][0]["content"].as_str().unwrap().len(), 128);
    for absent in ["testkit", "replay", "proptest", "serde_derive", "tonic-prost-build", "vite"] {
        assert!(named(absent).is_none(), "{absent} is not in the image");
    }
    let known: std::collections::BTreeSet<_> =
        components.iter().map(|c| c["bom-ref"].as_str().unwrap()).collect();
    for edge in bill["dependencies"].as_array().unwrap() {
        for needed in edge["dependsOn"].as_array().unwrap() {
            assert!(known.contains(needed.as_str().unwrap()), "{edge}");
        }
    }
}
