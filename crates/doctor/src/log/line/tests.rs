use super::*;

fn utc(text: &str) -> Option<Millis> {
    Some(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

#[test]
fn every_dialect_says_when_how_bad_who_and_what() {
    use Dialect::*;
    use Level::*;
    let at = "2025-01-26T13:09:02.525Z";
    let reference = utc("2025-02-01T00:00:00Z");
    #[rustfmt::skip]
    let cases: &[(&str, Dialect, Level, &str, &str)] = &[
        ("2025-01-26T13:09:02.525|INFO|CTL|cache.AgentAdmissionRequest: Receive connect request - host=q id=4c",
            NeuVector, Info, "cache.AgentAdmissionRequest", "Receive connect request - host=q id=4c"),
        ("2025-01-26T13:09:02.525|INFO|CTL|cluster.StartCluster.func1: - newLead= oldLead=10.42.60.190",
            NeuVector, Info, "cluster.StartCluster.func1", "newLead= oldLead=10.42.60.190"),
        ("2025-01-26T13:09:02.525  |ERRO|CTL|kv.AcquireLock: Acquire lock error - error=x",
            NeuVector, Error, "kv.AcquireLock", "Acquire lock error - error=x"),
        ("2025-01-26T13:09:02.525|MON|Process ctrl exit status -1, pid=19402",
            NeuVector, Unsaid, "MON", "Process ctrl exit status -1, pid=19402"),
        ("\u{1f170} 2025-01-26T13:09:02.525Z [ERROR] agent.server.raft: peer has newer term",
            Hclog, Error, "agent.server.raft", "peer has newer term"),
        ("I0126 13:09:02.525001       1 leaderelection.go:257] attempting to acquire",
            Klog, Info, "leaderelection.go:257", "attempting to acquire"),
        (r#"{"level":"error","ts":1737896942.525,"caller":"a.go:1","msg":"finished call","grpc.code":"Internal"}"#,
            Json, Error, "a.go:1", "finished call"),
        (r#"{"level":"warning","msg":"slow","time":"2025-01-26T14:09:02.525+01:00"}"#,
            Json, Warn, "", "slow"),
        (r#"time="2025-01-26T13:09:02.525Z" level=warning msg="it is late" id=7"#,
            Logfmt, Warn, "", "it is late"),
        ("2025-01-26T13:09:02.525Z\tERROR\tcontroller\tReconciler error\t{\"name\":\"mesh1\"}",
            Dated, Error, "controller", "Reconciler error"),
        ("2025/01/26 13:09:02.525 http: TLS handshake error", Dated, Unsaid, "", "http: TLS handshake error"),
        ("Jan 26 13:09:02.525 node1 kubelet[812]: something odd", Journald, Unsaid, "kubelet", "something odd"),
        ("Jan 26 13:09:03 node1 kubelet[812]: E0126 13:09:02.525001     812 pod.go:1] failed",
            Klog, Error, "pod.go:1", "failed"),
        ("2025-01-26T13:09:09.000000001Z stderr F I0126 13:09:02.525001       1 a.go:257] hello",
            Klog, Info, "a.go:257", "hello"),
        ("2025-01-26T13:09:09.000000001Z 2025-01-26T13:09:02.525|INFO|CTL|a.b: hello",
            NeuVector, Info, "a.b", "hello"),
        (r#"{"log":"2025-01-26T13:09:02.525Z [WARN] agent: \"odd\"\n","stream":"stderr","time":"2025-01-26T13:09:09Z"}"#,
            Hclog, Warn, "agent", "\"odd\""),
        ("controller-1  | 2025-01-26T13:09:02.525|INFO|CTL|a.b: hello", NeuVector, Info, "a.b", "hello"),
        ("[pod/a/b] 2025-01-26T13:09:02.525|INFO|CTL|a.b: hello", NeuVector, Info, "a.b", "hello"),
    ];
    for (line, dialect, level, source, message) in cases {
        let mut scratch = Vec::new();
        let found = record(line.as_bytes(), reference, &mut scratch).expect(line);
        assert_eq!(found.at, utc(at), "{line}");
        assert_eq!(found.dialect, *dialect, "{line}");
        assert_eq!(found.level, *level, "{line}");
        assert_eq!(String::from_utf8_lossy(found.source), *source, "{line}");
        assert_eq!(String::from_utf8_lossy(found.message), *message, "{line}");
    }
}

#[test]
fn prose_and_stacks_are_no_log_lines() {
    for line in [
        "",
        "The customer reported that NeuVector UI is not loading.",
        "goroutine 1 [running]:",
        "\t/src/main.go:12 +0x1d",
        "grpc_server_started_total{grpc_method=\"Add\"} 60059",
        "File: controller",
        "W",
        "I0126",
        "{",
        "{}",
        "x=1",
    ] {
        assert!(
            record(line.as_bytes(), Some(0), &mut Vec::new()).is_none(),
            "{line}"
        );
    }
}

#[test]
fn a_line_without_its_own_time_keeps_its_level() {
    let mut scratch = Vec::new();
    let found = record(b"[ERROR] agent: no leader", None, &mut scratch).unwrap();
    assert_eq!((found.at, found.level), (None, Level::Error));
    // klog without a year and nothing to take it from.
    let mut scratch = Vec::new();
    let found = record(b"E0126 13:09:02.525001 1 a.go:2] x", None, &mut scratch).unwrap();
    assert_eq!((found.at, found.level), (None, Level::Error));
}
