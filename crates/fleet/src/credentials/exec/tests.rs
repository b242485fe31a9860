use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;
use crate::local_address::AddressGuard;

fn endpoint() -> Endpoint {
    Endpoint {
        server: "https://server:6443".parse().unwrap(),
        authorities: Some(vec![vec![1, 2, 3]]),
        insecure: false,
        tls_server_name: None,
        proxy: None,
        guard: AddressGuard::default(),
    }
}

/// A plugin that is this shell script.
fn plugin(dir: &Path, script: &str) -> Exec {
    let path = dir.join("plugin");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Exec {
        version: Version::V1,
        command: path.to_str().unwrap().to_owned(),
        args: vec!["--arg".to_owned()],
        env: vec![("SECRET".to_owned(), Redacted("s3cret".to_owned()))],
        install_hint: Some("get it from\nexample.org".to_owned()),
        provide_cluster_info: true,
        cluster_config: Some(json!({ "audience": "x" })),
    }
}

async fn give(script: &str, limit: Duration) -> Result<Given, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let exec = plugin(dir.path(), script);
    let plugins = Plugins::new(limit);
    plugins.run("c", &exec, &endpoint(), Deadline::after(limit * 2)).await
}

const LIMIT: Duration = Duration::from_secs(60);

fn credential(status: &str) -> String {
    format!(
        r#"echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'"#
    )
}

async fn why(script: &str) -> String {
    let failure = give(script, LIMIT).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Plugin);
    assert!(!failure.why.contains("s3cret"), "{}", failure.why);
    failure.why
}

#[tokio::test]
async fn a_plugin_gives_a_token_a_certificate_or_both() {
    let given = give(&credential(r#"{"token":"t"}"#), LIMIT).await.unwrap();
    assert_eq!(given.token, Some(Redacted("t".to_owned())));
    assert_eq!((given.identity, given.valid_for), (None, None));

    let status = r#"{"clientCertificateData":"C","clientKeyData":"K","expirationTimestamp":"2999-01-01T00:00:00Z"}"#;
    let given = give(&credential(status), LIMIT).await.unwrap();
    let identity = given.identity.unwrap();
    assert_eq!((&*identity.certificate, &*identity.key.0), (&b"C"[..], &b"K"[..]));
    assert!(given.valid_for.unwrap() > Duration::from_secs(1_000_000));
}

#[tokio::test]
async fn a_plugin_is_told_what_the_kubeconfig_says_and_nothing_of_ours() {
    let script = format!(
        r#"[ "$1" = --arg ] && [ "$SECRET" = s3cret ] && [ -z "$FAIRLEAD_TOKEN" ] || exit 3
        case "$KUBERNETES_EXEC_INFO" in
            *'"interactive":false'*) ;; *) exit 4 ;;
        esac
        case "$KUBERNETES_EXEC_INFO" in
            *'"audience":"x"'*'"server":"https://server:6443/"'*) ;; *) exit 5 ;;
        esac
        read nothing && exit 6
        {}"#,
        credential(r#"{"token":"t"}"#)
    );
    // nextest runs each test in a process of its own.
    let dir = tempfile::tempdir().unwrap();
    let mut exec = plugin(dir.path(), &script);
    exec.env.push(("FAIRLEAD_TOKEN".to_owned(), Redacted(String::new())));
    let given = Plugins::new(LIMIT).run("c", &exec, &endpoint(), Deadline::after(LIMIT)).await;
    assert!(given.is_ok(), "{given:?}");
}

#[tokio::test]
async fn a_plugin_that_fails_is_quoted_from_its_stderr_alone() {
    let said = why("echo s3cret; echo 'token expired,\nlog in again' >&2; exit 7").await;
    assert_eq!(said, "the plugin plugin failed with exit code 7: token expired, log in again");
    assert!(why("exit 1").await.ends_with("exit code 1 and said nothing"));
    assert!(why("kill -9 $$").await.contains("killed by a signal"));
}

#[tokio::test]
async fn garbage_and_half_credentials_are_sentences() {
    assert!(why("echo s3cret").await.contains("not an ExecCredential"));
    assert!(why(r#"echo '{"kind":"Secret","apiVersion":"v1"}'"#).await.contains("not an Exec"));
    assert!(why(&credential("null")).await.contains("without a status"));
    assert!(why(&credential("{}")).await.contains("neither a token"));
    assert!(why(&credential(r#"{"clientKeyData":"s3cret"}"#)).await.contains("without its key"));
    let beta = credential(r#"{"token":"s3cret"}"#).replace("/v1", "/v1beta1");
    assert!(why(&beta).await.contains("answered in client.authentication.k8s.io/v1beta1"));
    let old = r#"{"token":"s3cret","expirationTimestamp":"2001-01-01T00:00:00Z"}"#;
    assert!(why(&credential(old)).await.contains("expired already"));
}

#[tokio::test]
async fn a_plugin_that_prints_without_end_is_stopped() {
    let said = why("yes s3cret").await;
    assert!(said.contains("printed more than 1024 KiB"), "{said}");
    // On stderr it may: that is only thrown away.
    let script = format!("yes s3cret | head -c 3000000 >&2; {}", credential(r#"{"token":"t"}"#));
    assert!(give(&script, LIMIT).await.is_ok());
}

#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_its_children_and_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("child");
    let script = format!("sleep 1000 & echo $! > {}; wait", mark.display());
    let hanging = plugin(dir.path(), &script);
    let elsewhere = tempfile::tempdir().unwrap();
    let quick = plugin(elsewhere.path(), &credential(r#"{"token":"t"}"#));

    let plugins = Plugins::new(Duration::from_secs(3));
    let deadline = Deadline::after(LIMIT);
    let endpoint = endpoint();
    let began = Instant::now();
    let slow = plugins.run("slow", &hanging, &endpoint, deadline);
    let fast = async {
        let given = plugins.run("fast", &quick, &endpoint, deadline).await;
        (given, began.elapsed())
    };
    let (slow, (fast, fast_took)) = tokio::join!(slow, fast);
    assert!(fast.is_ok());
    assert!(fast_took < began.elapsed(), "it did not wait for the other");
    let why = slow.unwrap_err().why;
    assert!(why.contains("did not end within"), "{why}");
    let child: i32 = std::fs::read_to_string(mark).unwrap().trim().parse().unwrap();
    let gone = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
        Ok(stat) => stat.contains(") Z "),
        Err(_) => true,
    };
    while !gone() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_run_that_nobody_waits_for_any_more_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("pid");
    let exec = plugin(dir.path(), &format!("echo $$ > {}; sleep 1000", mark.display()));
    let plugins = Plugins::new(LIMIT);
    let endpoint = endpoint();
    let begun = async {
        while !std::fs::read_to_string(&mark).is_ok_and(|pid| pid.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        _ = plugins.run("c", &exec, &endpoint, Deadline::after(LIMIT)) => panic!("it ended"),
        () = begun => {}
    }
    let pid = std::fs::read_to_string(&mark).unwrap();
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while alive() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_plugin_that_is_not_there_comes_with_its_hint() {
    let dir = tempfile::tempdir().unwrap();
    let exec = Exec { command: "/nonexistent/aws".to_owned(), ..plugin(dir.path(), "") };
    let plugins = Plugins::new(LIMIT);
    let failure = plugins.run("c", &exec, &endpoint(), Deadline::after(LIMIT)).await.unwrap_err();
    assert!(failure.why.starts_with("the plugin aws cannot be run: No such file"));
    assert!(failure.why.ends_with("; get it from example.org"), "{}", failure.why);
}
