use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Instant;

use super::*;

/// A plugin that is a script, written whole before it is run.
fn plugin(dir: &Path, name: &str, mode: u32, script: &str) -> PathBuf {
    let path = dir.join(name);
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&path).unwrap();
    file.write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    path
}

#[test]
fn a_plugin_says_what_it_knows() {
    let dir = tempfile::tempdir().unwrap();
    // It is asked as a runtime would: by the environment, with a configuration.
    let script = r#"read config
        [ "$CNI_COMMAND" = VERSION ] && [ "$config" = '{"cniVersion":"1.0.0"}' ] || exit 1
        echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0", "9.0.0"]}'"#;
    plugin(dir.path(), "portmap", 0o755, script);
    let told = ask(dir.path(), "portmap");
    assert_eq!(told.versions.as_deref().unwrap(), ["0.4.0", "1.0.0", "9.0.0"]);
    assert_eq!(told.trouble, None);
    assert!(told.knows(Version::V1_0_0) && !told.knows(Version::V1_1_0));
}

#[test]
fn who_does_not_answer_is_taken_to_know_what_all_know_and_it_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    plugin(dir, "dumb", 0o755, "exit 0");
    plugin(dir, "garbled", 0o755, "echo hello");
    plugin(dir, "empty", 0o755, "echo '{}'");
    plugin(dir, "plain", 0o644, "exit 0");
    fs::write(dir.join("foreign"), b"\x7fELF of another machine").unwrap();
    fs::set_permissions(dir.join("foreign"), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["dumb", "garbled", "empty", "plain", "foreign", "absent", "../dumb", ""] {
        let told = ask(dir, name);
        assert_eq!(told.versions, None, "{name}");
        assert!(told.trouble.as_ref().unwrap().contains(name), "{told:?}");
        assert!(told.knows(Version::V1_0_0) && !told.knows(Version::V1_1_0));
    }
    assert!(executable(dir, "dumb").is_some() && executable(dir, "plain").is_none());
}

#[test]
fn a_plugin_that_hangs_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = plugin(dir.path(), "stuck", 0o755, "exec sleep 600");
    let began = Instant::now();
    let why = versions(&path, Duration::from_millis(200)).unwrap_err();
    assert!(why.contains("no answer"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(60));
}
