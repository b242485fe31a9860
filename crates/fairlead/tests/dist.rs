//! What is released, made from the binaries of this build: archive, package, image, checksums.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// What a program prints; it must succeed.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_release_has_everything_and_its_package_installs_what_it_says() {
    let binaries = Path::new(env!("CARGO_BIN_EXE_fairlead")).parent().unwrap();
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let lacks = if !binaries.join("fairlead-cni").is_file() {
        Some("target has no fairlead-cni: build the workspace first")
    } else if !has("dpkg-deb") || !has("objcopy") {
        Some("no dpkg-deb or objcopy: packages are made on Debian")
    } else {
        None
    };
    if let Some(why) = lacks {
        testkit::need::skip(concat!(module_path!(), "::a_release_has_everything"), why);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("dist");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new(root.join("scripts/dist"))
        .arg("--out")
        .arg(&out)
        .arg("--try")
        .arg(binaries)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("FAIRLEAD_CONFIG", "/dev/null")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    println!("{}", String::from_utf8_lossy(&made.stderr));

    let version = env!("CARGO_PKG_VERSION");
    let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    let name = |suffix: &str| {
        let found = sums.split_whitespace().find(|word| word.ends_with(suffix));
        out.join(found.unwrap_or_else(|| panic!("no {suffix} in {sums}")))
    };
    let check = printed(Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(&out));
    assert_eq!(check.lines().count(), fs::read_dir(&out).unwrap().count() - 1);

    let list = |suffix: &str| printed(Command::new("tar").arg("-tvzf").arg(name(suffix)));
    assert!(list("-monitoring.tar.gz").contains("monitoring/alerts.yaml"));
    assert!(list(&format!("fairlead-{version}.tgz")).contains("fairlead/Chart.yaml"));
    let arch = printed(Command::new("dpkg").arg("--print-architecture"));
    let listed = list(&format!("-linux-{}.tar.gz", arch.trim()));
    for file in [
        "/fairlead\n",
        "/fairlead-cni\n",
        "/kubectl-fairlead -> fairlead\n",
        "/completions/fairlead.bash\n",
        "/completions/_fairlead\n",
        "/completions/fairlead.fish\n",
        "/man/fairlead.1\n",
        "/man/fairlead-support.1\n",
        "/man/fairlead-clusters-list.1\n",
        "/LICENSE\n",
    ] {
        assert!(listed.contains(file), "{file} is not in {listed}");
    }
    assert!(!listed.contains("fairlead-man.1"), "what is hidden has no page");

    let package = name(".deb");
    let field = |name: &str| {
        printed(Command::new("dpkg-deb").arg("-f").arg(&package).arg(name)).trim().to_owned()
    };
    assert_eq!((field("Package"), field("Version")), ("fairlead".to_owned(), version.to_owned()));
    let installed = dir.path().join("installed");
    printed(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&installed));
    let control = dir.path().join("control");
    printed(Command::new("dpkg-deb").arg("-e").arg(&package).arg(&control));
    let run = printed(Command::new(installed.join("usr/bin/fairlead")).arg("version"));
    assert!(run.contains(version), "{run}");
    let plugin = fs::read_link(installed.join("usr/bin/kubectl-fairlead")).unwrap();
    assert_eq!(plugin, Path::new("fairlead"));
    for file in [
        "usr/bin/fairlead-cni",
        "usr/share/bash-completion/completions/fairlead",
        "usr/share/zsh/vendor-completions/_fairlead",
        "usr/share/fish/vendor_completions.d/fairlead.fish",
        "usr/share/man/man1/fairlead.1.gz",
        "usr/share/doc/fairlead/copyright",
        "usr/share/doc/fairlead/sbom.cdx.json",
        "etc/fairlead/fairlead.yaml",
    ] {
        assert!(installed.join(file).is_file(), "{file} is not in the package");
    }
    // The settings that it brings are valid, and a person's changes to them stay.
    let conffile = fs::read_to_string(control.join("conffiles")).unwrap();
    assert_eq!(conffile.trim(), "/etc/fairlead/fairlead.yaml");
    printed(
        Command::new(installed.join("usr/bin/fairlead"))
            .args(["config", "check", "--config"])
            .arg(installed.join("etc/fairlead/fairlead.yaml")),
    );
    // Nothing is started by being installed.
    let scripts = fs::read_to_string(control.join("postinst")).unwrap();
    for line in scripts.lines().filter(|line| line.trim().starts_with("systemctl")) {
        assert!(line.contains("daemon-reload") || line.contains("try-restart"), "{line}");
    }
    for unit in ["fairlead.service", "fairlead-agent.service"] {
        let text = fs::read_to_string(installed.join("usr/lib/systemd/system").join(unit)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/fairlead "));
        let verb = line.unwrap().trim();
        let help = Command::new(env!("CARGO_BIN_EXE_fairlead")).args([verb, "--help"]).output();
        assert!(help.unwrap().status.success(), "{unit} runs `fairlead {verb}`");
    }
}
