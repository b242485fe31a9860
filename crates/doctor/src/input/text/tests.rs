use super::*;

fn read_text(text: &str) -> (Gathered, InputSummary) {
    let mut gathered = Gathered::default();
    let mut summary = InputSummary { name: "x".into(), ..InputSummary::default() };
    read(&mut gathered, &mut summary, text.as_bytes(), Some(1_740_000_000_000), &mut |_| {});
    (gathered, summary)
}

const DUMP: &str = "goroutine 7 [sync.Mutex.Lock, 5 minutes]:\n\
    sync.runtime_SemacquireMutex(0xc000012345, 0x0, 0x1)\n\
    \t/go/src/runtime/sema.go:77 +0x25\n\
    main.(*Cache).Get(0xc000010000)\n\
    \t/src/main.go:12 +0x1d\n\
    created by main.main in goroutine 1\n\
    \t/src/main.go:40 +0x99\n\n";

fn klog(n: usize) -> String {
    format!("I0126 13:{:02}:{:02}.000000       1 s.go:1] synced {n} items\n", n / 60 % 60, n % 60)
}

#[test]
fn a_dump_in_a_log_is_cut_out_with_its_line() {
    let before: String = (0..5000).map(klog).collect();
    let after: String = (0..20_000).map(klog).collect();
    let (gathered, summary) =
        read_text(&format!("{before}SIGQUIT: quit\n{DUMP}{after}{DUMP}{after}"));
    assert_eq!(gathered.dumps.len(), 2, "{summary:?}");
    assert_eq!(gathered.dumps[0].goroutines[0].line, 5002);
    assert_eq!(gathered.dumps[1].goroutines[0].line, 25_010);
    assert_eq!(gathered.logs.lines(), 45_000);
    assert_eq!(summary.taken_for.len(), 2, "{summary:?}");
}

#[test]
fn a_log_of_positions_is_a_log() {
    let text: String = (0..100).map(klog).collect();
    let (gathered, summary) = read_text(&text);
    assert!(gathered.dumps.is_empty());
    assert_eq!(summary.taken_for, ["klog log"]);
    assert_eq!(summary.read, ["100 log lines"]);
}

#[test]
fn a_report_is_several_things_at_once() {
    let text = "We saw this.\n\nThe pods:\n```\nNAME READY STATUS RESTARTS AGE\na-0 1/1 Running 0 1d\n```\n\
        The log\n```\n2025-01-26T13:09:02.525|INFO|CTL|a.b: hello\n```\nagain\n```\n2025-01-26T13:09:02.525|INFO|CTL|a.b: hello\n```\n\
        metrics\ngo_goroutines   562\n\nlatency\nn min p50 p95 max mean\nAdd OK 492 114 s 122 s 123 s 124 s 122 s\n\
        and\n{\"level\":\"info\",\n \"msg\":\"finished call\",\n \"grpc.time_ms\":121142.97, ...}\n";
    let (gathered, summary) = read_text(text);
    assert_eq!(
        summary.taken_for,
        [
            "report with excerpts",
            "JSON log",
            "NeuVector log",
            "Prometheus text",
            "kubectl get pods",
            "table of latencies"
        ]
    );
    assert_eq!(gathered.logs.lines(), 2, "the repeated excerpt counts once");
    assert_eq!(
        (gathered.metrics.samples(), gathered.metrics.rows(), gathered.pods.seen()),
        (1, 1, 1)
    );
    assert_eq!(gathered.logs.finish().latencies().len(), 1);
}

#[test]
fn our_own_ledger_is_told_from_a_json_log() {
    let (gathered, summary) = read_text("{\n\"stalls\": []\n}\n");
    assert_eq!(summary.taken_for, ["Fairlead ledger"]);
    assert_eq!(gathered.ledgers.len(), 1);
    let (gathered, summary) =
        read_text("{\"level\":\"info\",\"msg\":\"a\"}\n{\"level\":\"info\",\"msg\":\"b\"}\n");
    assert_eq!(summary.taken_for, ["JSON log"]);
    assert_eq!(gathered.logs.lines(), 2);
    let (_, summary) = read_text("[1,\n2]\n");
    assert_eq!(summary.refused.len(), 1);
}

#[test]
fn positions_of_stacks_are_told_from_those_of_logs() {
    for (line, is) in [
        ("\t/src/main.go:12 +0x1d", true),
        ("2025-01-26T13:09:02Z \t/src/main.go:12 +0x1d", true),
        ("#\t0x4a2b\tmain.main+0x1d\t/src/main.go:12", true),
        ("I0126 13:09:02.000000 1 main.go:12] x", false),
        ("see main.go:12", false),
        ("", false),
    ] {
        assert_eq!(is_location(line.as_bytes()), is, "{line}");
    }
}

#[test]
fn progress_is_told() {
    // Few lines, so that the time goes into reading, not into understanding.
    let line = format!("{}\n", "x".repeat(100_000));
    let text = line.repeat(200);
    let mut told = Vec::new();
    let mut summary = InputSummary::default();
    read(&mut Gathered::default(), &mut summary, text.as_bytes(), Some(0), &mut |n| told.push(n));
    assert!(told.len() >= 2 && told.is_sorted(), "{told:?}");
    assert_eq!(summary.size, text.len() as u64);
}
