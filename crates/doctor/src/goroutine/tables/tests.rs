use super::parse;
use crate::goroutine::Form;

#[test]
fn a_transcript_gives_its_tables_and_traces() {
    let text = "$ go tool pprof http://localhost:6060/debug/pprof/goroutine
Entering interactive mode (type \"help\" for commands, \"o\" for options)
(pprof) top
Showing nodes accounting for 30, 100% of 30 total
      flat  flat%   sum%        cum   cum%
        30   100%   100%         30   100%  runtime.gopark
         0     0%   100%         20 66.67%  main.(*T[go.shape.struct { X int }]).F (inline)
(pprof) traces
Type: goroutine
Time: Jan 26, 2025 at 5:09am (PST)
-----------+-------------------------------------------------------
       req:[CNI-Add]
        20   runtime.gopark
             main.(*T).F
-----------+-------------------------------------------------------
        10   runtime.gopark
             main.main
(pprof) quit
";
    let dumps = parse("x", text.as_bytes());
    assert_eq!(
        dumps.iter().map(|d| d.form).collect::<Vec<_>>(),
        [Form::Text, Form::Traces]
    );
    assert_eq!(dumps[0].rows.len(), 2);
    assert_eq!(
        dumps[0].function(dumps[0].rows[1].function),
        "main.(*T[go.shape.struct { X int }]).F"
    );
    assert_eq!(dumps[1].shown(), 30);
    assert_eq!(dumps[1].stacks[0].labels.as_deref(), Some("req=CNI-Add"));
    assert_eq!(
        dumps[1].taken.map(|t| t.to_string()).as_deref(),
        Some("2025-01-26T13:09:00Z")
    );
    assert!(dumps[1].gaps.is_empty(), "{:?}", dumps[1].gaps);
}

#[test]
fn a_heap_profile_is_left_alone() {
    let text = "Type: inuse_space
      flat  flat%   sum%        cum   cum%
        30   100%   100%         30   100%  main.alloc
";
    assert!(parse("x", text.as_bytes()).is_empty());
}
