use super::*;

#[test]
fn files_become_one_stream_in_order() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("b.yaml"), "kind: B").unwrap();
    std::fs::write(dir.path().join("a.json"), "{\"kind\": \"A\"}\n").unwrap();
    std::fs::write(dir.path().join("notes.txt"), "no").unwrap();
    let text = read(&[dir.path().to_owned()]).unwrap();
    assert_eq!(text, "{\"kind\": \"A\"}\n---\nkind: B");
    let empty = tempfile::tempdir().unwrap();
    assert!(read(&[empty.path().to_owned()]).unwrap_err().to_string().contains("has no .yaml"));
    let missing = read(&[dir.path().join("c.yaml")]).unwrap_err().to_string();
    assert!(missing.contains("c.yaml cannot be read"), "{missing}");
}

#[test]
fn what_the_server_would_refuse_for_its_size_is_not_sent() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![b'#'; (LARGEST + 1) as usize]).unwrap();
    let error = read(&[file.path().to_owned()]).unwrap_err().to_string();
    assert!(error.contains("4 MiB"), "{error}");
}

#[test]
fn a_diff_is_coloured_on_a_terminal_only() {
    let diff = "@@ -1 +1 @@\n-a\n+b\n c\n";
    assert_eq!(coloured(diff, Paint::always(false)), diff);
    assert_eq!(
        coloured(diff, Paint::always(true)),
        "\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-a\x1b[0m\n\x1b[32m+b\x1b[0m\n c\n"
    );
}

#[test]
fn objects_are_named_as_kubectl_names_them() {
    let outcome = |api_version: &str, kind: &str| ApplyOutcome {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: "web".to_owned(),
        ..ApplyOutcome::default()
    };
    assert_eq!(outcome("apps/v1", "Deployment").object(), "deployment.apps/web");
    assert_eq!(outcome("v1", "Pod").object(), "pod/web");
}
