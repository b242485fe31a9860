//! Every form of the same program says the same, as far as the form goes.

use super::{Dump, Form, ProfileKind, parse};

const DEBUG2: &[u8] = include_bytes!("../../tests/vectors/go1.21.13.debug2.txt");

fn one(bytes: &[u8]) -> Dump {
    let mut dumps = parse("x", bytes);
    assert_eq!(dumps.len(), 1, "one dump");
    dumps.remove(0)
}

/// Number, stack as text, minutes and lock of each goroutine.
fn facts(dump: &Dump) -> Vec<(u64, String, u64, Option<String>)> {
    let mut facts: Vec<_> = dump
        .goroutines
        .iter()
        .map(|g| {
            let stack = &dump.stacks[g.stack as usize];
            let frames: Vec<_> = stack
                .frames
                .iter()
                .map(|f| format!("{} {}", dump.function(f.function), dump.source(f.source)))
                .collect();
            (g.id, frames.join("\n"), g.lock(), dump.state(stack).map(str::to_owned))
        })
        .collect();
    facts.sort();
    facts
}

fn with_prefix(prefix: impl Fn(usize) -> String) -> Vec<u8> {
    let text = std::str::from_utf8(DEBUG2).expect("fixture is text");
    let lines: Vec<_> =
        text.lines().enumerate().map(|(i, l)| format!("{}{l}\n", prefix(i))).collect();
    lines.concat().into_bytes()
}

#[test]
fn log_prefixes_are_seen_through() {
    let plain = facts(&one(DEBUG2));
    assert_eq!(plain.len(), 27);
    let cri = with_prefix(|i| format!("2025-01-26T13:09:{:02}.{}Z stderr F ", i % 60, i * 7919));
    let journald = with_prefix(|i| format!("Jan 26 13:09:{:02} node-1 coild[4711]: ", i % 60));
    let kubectl = with_prefix(|_| "[pod/coild-c8jrc/coild] ".to_owned());
    for log in [cri, journald, kubectl] {
        assert_eq!(facts(&one(&log)), plain);
    }
}

#[test]
fn lines_of_a_container_runtime_are_unwrapped() {
    let text = std::str::from_utf8(DEBUG2).expect("fixture is text");
    let log: String = text
        .lines()
        .map(|l| {
            let line = serde_json::json!({"log": format!("{l}\n"), "stream": "stderr", "time": "2025-01-26T13:09:02Z"});
            format!("{line}\n")
        })
        .collect();
    assert_eq!(facts(&one(log.as_bytes())), facts(&one(DEBUG2)));
}

#[test]
fn a_reversed_dump_is_read_backwards() {
    let reverse = |text: &[u8]| {
        let text = String::from_utf8(text.to_vec()).expect("fixture is text");
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.reverse();
        lines.join("\n").into_bytes()
    };
    let dump = one(&reverse(DEBUG2));
    assert_eq!(dump.form, Form::Debug2Reversed);
    assert_eq!(facts(&dump), facts(&one(DEBUG2)));
    let log = with_prefix(|i| format!("2025-01-26T13:09:02.{i:06}Z stderr F "));
    let dump = one(&reverse(&log));
    assert_eq!(facts(&dump), facts(&one(DEBUG2)));
    // Line numbers are those of the file as it is.
    let lines = String::from_utf8(reverse(DEBUG2)).expect("text");
    let line = lines.lines().nth(dump.goroutines[0].line as usize - 1).expect("line");
    assert!(line.starts_with(&format!("goroutine {} [", dump.goroutines[0].id)), "{line}");
}

#[test]
fn a_dump_in_a_report_is_found_and_called_an_excerpt() {
    let text = std::str::from_utf8(DEBUG2).expect("fixture is text");
    let report = format!(
        "# It hangs (again)\n\nSee below.\n\n<details>\n\n```\n{text}\n```\n</details>\n\nThanks (really)\n"
    );
    let dump = one(report.as_bytes());
    assert_eq!(facts(&dump), facts(&one(DEBUG2)));
    assert_eq!(dump.gaps.len(), 1);
    assert!(one(DEBUG2).gaps.is_empty());
}

#[test]
fn all_forms_of_all_versions_have_the_same_stacks() {
    macro_rules! forms {
        ($($version:literal),*) => {[$((
            include_bytes!(concat!("../../tests/vectors/go", $version, ".debug0.pb.gz")).as_slice(),
            include_bytes!(concat!("../../tests/vectors/go", $version, ".debug1.txt")).as_slice(),
            include_bytes!(concat!("../../tests/vectors/go", $version, ".debug2.txt")).as_slice(),
        )),*]};
    }
    for (pb, debug1, debug2) in forms!["1.19.8", "1.21.13", "1.25.14", "1.27.0"] {
        for (bytes, form) in [(pb, Form::Protobuf), (debug1, Form::Debug1), (debug2, Form::Debug2)]
        {
            let dump = one(bytes);
            assert_eq!((dump.form, dump.kind), (form, ProfileKind::Goroutine));
            assert_eq!(dump.shown(), 27);
            assert_eq!(dump.gaps, Vec::<String>::new());
            let hold = dump.functions().any(|(_, f)| f == "main.(*Reg).Hold");
            assert!(hold, "{form}");
            let labelled = dump.stacks.iter().filter(|s| s.labels.is_some()).count();
            assert_eq!(labelled, usize::from(form != Form::Debug2), "{form} labels");
        }
    }
}

#[test]
fn a_leak_profile_says_so() {
    for bytes in [
        include_bytes!("../../tests/vectors/go1.27.0.leak0.pb.gz").as_slice(),
        include_bytes!("../../tests/vectors/go1.27.0.leak1.txt").as_slice(),
        include_bytes!("../../tests/vectors/go1.27.0.leak2.txt").as_slice(),
    ] {
        let leaked: u64 = one(bytes).stacks.iter().filter(|s| s.leaked).map(|s| s.count).sum();
        assert_eq!(leaked, 12);
    }
}

#[test]
fn a_mutex_profile_is_not_taken_for_goroutines() {
    let text = b"--- mutex:\ncycles/second=2399999000\nsampling period=5\n7325 12 @ 0x1 0x2\n#\t0x1\tsync.(*Mutex).Unlock+0x1\t/s/mutex.go:1\n#\t0x2\tmain.(*Reg).Hold+0x1\t/s/main.go:35\n";
    let dump = one(text);
    assert_eq!((dump.kind, dump.shown()), (ProfileKind::Mutex, 12));
}

#[test]
fn what_is_no_profile_yields_nothing() {
    for bytes in [
        &b""[..],
        b"hello",
        b"\x0a",
        b"\x5a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x1f\x8b",
        b"goroutine ",
        b"goroutine 1 [",
        b"goroutine profile: total ",
        b"flat  flat%   sum%        cum   cum%\n",
        b"-----------+----------\n",
        b"the goroutine 5 [sic] is fine",
        b"\n\n\n\xff\xfe\x00goroutine 1 [\xff]:\n\xff(\n\t\xff.go:1",
    ] {
        for dump in parse("x", bytes) {
            assert!(dump.shown() <= 1, "{bytes:?}");
        }
    }
}

/// Cuts and flips of real dumps: the cheapest fuzzing there is, and it runs everywhere.
#[test]
fn damaged_dumps_do_not_panic() {
    let pb = include_bytes!("../../tests/vectors/go1.27.0.debug0.pb.gz");
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&pb[..]), &mut unpacked)
        .expect("fixture is gzip");
    let debug1 = include_bytes!("../../tests/vectors/go1.27.0.debug1.txt");
    let seed = include_bytes!("../../tests/seeds/controller-stall-1.txt");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    for original in [&unpacked[..], &DEBUG2[..4000], &debug1[..4000], &seed[12000..18000]] {
        for _ in 0..150 {
            let mut bytes = original.to_vec();
            for _ in 0..8 {
                let at = next() % bytes.len();
                bytes[at] = next() as u8;
            }
            bytes.truncate(next() % original.len());
            let case = crate::Case { dumps: parse("x", &bytes), ..crate::Case::default() };
            let _ = case.conclude();
        }
    }
}
