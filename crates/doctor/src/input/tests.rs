use std::io::Write as _;

use super::*;

const LOG: &[u8] = b"2025-01-26T13:09:02.525|INFO|CTL|a.b: hello\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_ustar();
        // As an attacker writes it: the builder itself refuses such names.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn inputs(bytes: &[u8]) -> Vec<InputSummary> {
    let mut silent = |_: Progress<'_>| {};
    let mut intake = Intake::new(None, &mut silent);
    intake.bytes("x", bytes);
    intake.gathered.inputs
}

fn names(inputs: &[InputSummary]) -> Vec<(&str, bool)> {
    inputs.iter().map(|i| (i.name.as_str(), !i.taken_for.is_empty())).collect()
}

#[test]
fn archives_in_archives_are_read_by_content() {
    assert_eq!(names(&inputs(LOG)), [("x", true)]);
    assert_eq!(names(&inputs(&gzip(LOG))), [("x", true)]);
    let bundle =
        tar(&[("../../etc/a", LOG), ("b.log", &gzip(LOG)), ("c", &zip(&[("d.bin", LOG)]))]);
    let expected = [("x!../../etc/a", true), ("x!b.log", true), ("x!c!d.bin", true)];
    assert_eq!(names(&inputs(&bundle)), expected);
    assert_eq!(names(&inputs(&gzip(&bundle))), expected);
    assert_eq!(
        names(&inputs(&zip(&[("t", &bundle)]))),
        expected
            .map(|(n, r)| (n.replace("x!", "x!t!"), r))
            .each_ref()
            .map(|(n, r)| (n.as_str(), *r))
    );
}

#[test]
fn every_form_of_every_version_is_taken_for_a_profile() {
    let mut silent = |_: Progress<'_>| {};
    let mut intake = Intake::new(None, &mut silent);
    intake.path(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors"));
    let (programs, profiles): (Vec<_>, Vec<_>) =
        intake.gathered.inputs.iter().partition(|i| i.name.ends_with("main.go.txt"));
    assert!(programs.len() == 1 && profiles.len() >= 15);
    for input in profiles {
        assert_eq!(input.taken_for.len(), 1, "{input:?}");
        assert!(input.taken_for[0].contains("profile"), "{input:?}");
    }
}

#[test]
fn what_is_not_read_says_why() {
    for (bytes, why) in [
        (&b""[..], "empty"),
        (b"nothing that anybody knows", "none of its 1 lines"),
        (b"\x89PNG\r\n", "a picture"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (b"\x0a\x04\x08\x01 binary", "none of its 2 lines"),
        (b"\x1f\x8b broken", ""),
        (b"PK\x03\x04 broken", ""),
    ] {
        let found = inputs(bytes);
        assert_eq!(found.len(), 1);
        let refused = &found[0].refused;
        assert!(refused.len() == 1 && refused[0].why.contains(why), "{refused:?}");
    }
}

#[test]
fn a_truncated_archive_still_gives_what_it_has() {
    let text = LOG.repeat(5000);
    let packed = gzip(&text);
    let found = inputs(&packed[..packed.len() / 2]);
    assert_eq!(found[0].taken_for, ["NeuVector log"]);
    assert!(found[0].refused[0].why.contains("reading stopped here"), "{found:?}");
    assert!(found[0].refused[0].line.is_some());
}

#[test]
fn a_bomb_costs_no_more_than_is_harmless() {
    let mut reader =
        Bounded::new(io::repeat(b'x'), bounded::Count::fixed(1000), &Budget::default());
    let mut sink = vec![0; 1 << 20];
    let mut read = 0_u64;
    let error = loop {
        match reader.read(&mut sink) {
            Ok(n) => read += n as u64,
            Err(e) => break e,
        }
    };
    assert!(error.to_string().contains("bomb"), "{error}");
    assert!(read <= 257 << 20, "{read}");
}

#[test]
fn packing_without_end_is_refused() {
    let mut bytes = LOG.to_vec();
    for _ in 0..DEEPEST + 1 {
        bytes = gzip(&bytes);
    }
    assert!(inputs(&bytes)[0].refused[0].why.contains("packed more than"));
}

#[test]
fn directories_are_walked_in_order_and_links_do_not_loop() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("b")).unwrap();
    fs::write(dir.path().join("b/log"), LOG).unwrap();
    fs::write(dir.path().join("a.gz"), gzip(LOG)).unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("b/up")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("a.gz"), dir.path().join("c")).unwrap();
    let mut silent = |_: Progress<'_>| {};
    let mut intake = Intake::new(None, &mut silent);
    intake.path(&dir.path().to_string_lossy());
    let read: Vec<String> = intake
        .gathered
        .inputs
        .iter()
        .map(|i| i.name.strip_prefix(&*dir.path().to_string_lossy()).unwrap().to_owned())
        .collect();
    assert_eq!(read, ["/a.gz", "/b/log", "/c"]);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..3000)) {
        proptest::prop_assert_eq!(inputs(&bytes).len(), 1);
        inputs(&gzip(&bytes));
    }
}

#[test]
fn a_text_in_memory_reads_like_one_that_streams() {
    let dump = include_bytes!("../../tests/vectors/go1.27.0.debug2.txt");
    let report = include_bytes!("../../tests/seeds/controller-stall-1.txt");
    let mixed = [LOG, dump, b"\r\n", &LOG.repeat(9000), dump, LOG].concat();
    let windows = String::from_utf8_lossy(&mixed).replace('\n', "\r\n").into_bytes();
    for bytes in [&dump[..], report, &mixed, &windows, b"", b"{", b"{}\n", LOG, b"no line end"] {
        let (mut silent, mut streamed) = (|_: Progress<'_>| {}, |_: Progress<'_>| {});
        let (mut whole, mut stream) =
            (Intake::new(None, &mut silent), Intake::new(None, &mut streamed));
        whole.bytes("a", bytes);
        stream.piece(Piece::new("a", Box::new(bytes)));
        let lines = |intake: &Intake<'_>| {
            let dumps = &intake.gathered.dumps;
            dumps.iter().map(|d| (d.first_line, d.shown(), d.stacks.clone())).collect::<Vec<_>>()
        };
        assert_eq!(lines(&whole), lines(&stream));
        assert_eq!(whole.gathered.inputs, stream.gathered.inputs);
    }
}
