use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::address_table::ReleasedKey;
use crate::address_table::tests::{adopted, attachment, essence, key};
use crate::local_block::LocalBlock;
use crate::{Attachment, AttachmentKey};

/// A journal's bytes, where each group in it ends, and what was then so.
type Written = (Vec<u8>, Vec<(usize, Essence)>);
type Essence = (BTreeMap<AttachmentKey, Attachment>, BTreeMap<String, LocalBlock>);

/// Some groups, as they come.
fn groups() -> Vec<Vec<Record>> {
    let assigned = |container: &str, address: &str| {
        Record::Assigned(attachment(container, "default", Some(address)))
    };
    vec![
        vec![Record::Adopted(adopted("default-0", "default", "10.0.0.0/30"))],
        vec![assigned("a", "10.0.0.0"), assigned("b", "10.0.0.1")],
        vec![Record::Released(key("a").into())],
        vec![
            assigned("c", "10.0.0.2"),
            Record::Released(key("b").into()),
            assigned("d", "10.0.0.3"),
        ],
        vec![Record::Cordoned { block: "default-0".to_owned(), why: "it is another's".to_owned() }],
        vec![Record::Released(ReleasedKey { key: key("c"), leaving: true })],
    ]
}

/// A journal with these groups, each synced.
fn written(groups: &[Vec<Record>]) -> Written {
    let dir = TempDir::new().unwrap();
    let (mut journal, mut table) = Journal::open(dir.path()).unwrap();
    let mut states = vec![(0, essence(&table))];
    for group in groups {
        group.iter().for_each(|record| table.apply(record).unwrap());
        journal.append(group, &table, true).unwrap();
        states.push((usize::try_from(journal.bytes).unwrap(), essence(&table)));
    }
    (fs::read(path(dir.path())).unwrap(), states)
}

fn open(bytes: &[u8]) -> Result<(TempDir, Journal, AddressTable), OpenError> {
    let dir = TempDir::new().unwrap();
    fs::write(path(dir.path()), bytes).unwrap();
    Journal::open(dir.path()).map(|(journal, table)| (dir, journal, table))
}

#[test]
fn what_was_written_is_read_again() {
    let (bytes, states) = written(&groups());
    let (_dir, _, table) = open(&bytes).unwrap();
    assert_eq!(essence(&table), states.last().unwrap().1);
}

#[test]
fn a_file_cut_at_any_byte_is_what_was_whole_and_goes_on_from_there() {
    let (bytes, states) = written(&groups());
    let whole = |cut: usize| states.iter().rev().find(|(end, _)| *end <= cut).unwrap();
    for cut in 0..=bytes.len() {
        let Replayed { table, good } = replay(&bytes[..cut]).unwrap();
        assert_eq!((good, essence(&table)), *whole(cut), "cut at {cut}");
    }
    // The same on a disk, for some of them: around the ends of frames, and within.
    let ends = states.iter().flat_map(|(end, _)| [end.saturating_sub(1), *end, end + 1, end + 30]);
    for cut in ends.filter(|cut| *cut <= bytes.len()) {
        let (dir, mut journal, mut table) = open(&bytes[..cut]).unwrap();
        assert_eq!(fs::metadata(path(dir.path())).unwrap().len(), whole(cut).0 as u64);
        let more = vec![Record::Assigned(attachment("z", "other", Some("10.9.9.9")))];
        table.apply(&more[0]).unwrap();
        journal.append(&more, &table, true).unwrap();
        let (_, again) = Journal::open(dir.path()).unwrap();
        assert_eq!(essence(&again), essence(&table));
    }
}

/// The kernel may write the pages of a file in any order before a sync.
#[test]
fn frames_after_a_hole_that_was_never_synced_are_cut_off_with_it() {
    let dir = TempDir::new().unwrap();
    let (mut journal, mut table) = Journal::open(dir.path()).unwrap();
    let mut ends = vec![0];
    for (i, group) in groups().iter().enumerate() {
        group.iter().for_each(|record| table.apply(record).unwrap());
        journal.append(group, &table, i < 2).unwrap();
        ends.push(usize::try_from(journal.bytes).unwrap());
    }
    let mut bytes = fs::read(path(dir.path())).unwrap();
    bytes[ends[2] + 3..ends[3]].fill(0);
    let (_dir, journal, table) = open(&bytes).unwrap();
    assert_eq!(journal.bytes, ends[2] as u64);
    assert_eq!(table.attachments().count(), 2);
}

#[test]
fn damage_before_what_was_synced_is_refused_with_a_sentence_and_the_file_is_left() {
    let (mut bytes, states) = written(&groups());
    let (first, _) = states[1];
    bytes[first + HEADER + 9] ^= 1;
    let error = open(&bytes).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { at, .. } if at == first as u64), "{error}");
    let sentence = error.to_string();
    assert!(sentence.contains("damaged at byte"), "{sentence}");
    assert!(sentence.contains("drain the node, move the file away and start again"), "{sentence}");

    let dir = TempDir::new().unwrap();
    fs::write(path(dir.path()), &bytes).unwrap();
    Journal::open(dir.path()).unwrap_err();
    assert_eq!(fs::read(path(dir.path())).unwrap(), bytes);
}

#[test]
fn a_record_of_a_newer_version_or_one_that_cannot_be_is_refused() {
    let frame_of = |json: &str| {
        let mut bytes = frame(&[], 0).unwrap();
        bytes.truncate(HEADER);
        bytes.extend(json.as_bytes());
        bytes[4..8].copy_from_slice(&u32::try_from(json.len()).unwrap().to_le_bytes());
        let sum = checksum(&bytes[4..16], &bytes[HEADER..]);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    let newer = open(&frame_of(r#"[{"leased":{}}]"#)).unwrap_err();
    assert!(newer.to_string().contains("A newer Fairlead may have written it"), "{newer}");

    let twice = [("a", "10.0.0.1"), ("b", "10.0.0.1")];
    let twice =
        twice.map(|(key, address)| Record::Assigned(attachment(key, "default", Some(address))));
    let refused = open(&frame(&twice, 0).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("10.0.0.1 is given to b/eth0"), "{refused}");
}

#[test]
fn it_stays_small_whatever_comes_and_goes() {
    let dir = TempDir::new().unwrap();
    let (mut journal, mut table) = Journal::open(dir.path()).unwrap();
    let adopt = vec![Record::Adopted(adopted("default-0", "default", "10.0.0.0/24"))];
    table.apply(&adopt[0]).unwrap();
    journal.append(&adopt, &table, false).unwrap();
    let (mut rewrites, mut last) = (0, 0);
    for round in 0..8_000 {
        let container = format!("c{}", round % 7);
        let (ipv4, _) = table.vacant("default", tokio::time::Instant::now()).unwrap();
        let address = ipv4.unwrap().to_string();
        let records = vec![
            Record::Assigned(attachment(&container, "default", Some(&address))),
            Record::Released(key(&container).into()),
        ];
        records.iter().for_each(|record| table.apply(record).unwrap());
        journal.append(&records, &table, false).unwrap();
        rewrites += u32::from(journal.bytes < last);
        last = journal.bytes;
        assert!(journal.bytes <= SLACK + TIMES * journal.smallest + 1_000);
    }
    assert!(rewrites > 1, "{rewrites}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let (_, again) = Journal::open(dir.path()).unwrap();
    // What is next is kept as well: no address comes back sooner for a restart.
    assert_eq!(essence(&again), essence(&table));
}

#[test]
fn after_a_failure_it_is_written_anew_from_memory() {
    let dir = TempDir::new().unwrap();
    let (mut journal, mut table) = Journal::open(dir.path()).unwrap();
    let groups = groups();
    groups[0].iter().chain(&groups[1]).for_each(|record| table.apply(record).unwrap());
    // As a full disk leaves it: half a frame.
    let file = path(dir.path());
    journal.fail();
    journal.append(&groups[1], &table, true).unwrap_err();
    fs::write(&file, b"FLJ1half").unwrap();

    // And no room for another file either.
    fs::create_dir(dir.path().join("addresses.journal.new")).unwrap();
    journal.append(&groups[1], &table, true).unwrap_err();
    fs::remove_dir(dir.path().join("addresses.journal.new")).unwrap();

    journal.append(&groups[1], &table, true).unwrap();
    let (_, again) = Journal::open(dir.path()).unwrap();
    assert_eq!(essence(&again), essence(&table));
}

#[test]
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let parent = TempDir::new().unwrap();
    let dir = parent.path().join("net");
    Journal::open(&dir).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&path(&dir))), (0o700, 0o600));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens to the bytes, it is a state that was acknowledged once, or a refusal.
    #[test]
    fn changed_bytes_are_an_older_state_or_a_refusal(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
        more in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        static WRITTEN: LazyLock<Written> =
            LazyLock::new(|| written(&groups()));
        let (mut bytes, states) = (WRITTEN.0.clone(), &WRITTEN.1);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        bytes.extend(more);
        match replay(&bytes) {
            Ok(replayed) => {
                let found = essence(&replayed.table);
                prop_assert!(states.iter().any(|(end, state)| *end == replayed.good && *state == found));
            }
            Err(ReplayError::Damaged { at }) => prop_assert!(states.iter().any(|(end, _)| *end == at)),
            Err(wrong) => prop_assert!(false, "{wrong:?}"),
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut framed = MAGIC.to_vec();
        framed.extend(&bytes);
        let _ = (replay(&bytes), replay(&framed));
    }
}

#[test]
fn what_a_flush_did_not_bring_to_the_disk_is_written_anew() {
    let dir = TempDir::new().unwrap();
    let (mut journal, mut table) = Journal::open(dir.path()).unwrap();
    let mut append = |journal: &mut Journal, records: &[Record], sync| {
        records.iter().for_each(|record| table.apply(record).unwrap());
        journal.append(records, &table, sync).unwrap();
        essence(&table)
    };
    let groups = groups();
    append(&mut journal, &groups[0], true);
    assert!(journal.flush().is_none());
    append(&mut journal, &groups[1], false);
    let flush = journal.flush().unwrap();
    append(&mut journal, &groups[2], false);
    journal.flushed(flush.run()).unwrap();
    assert!(journal.synced < journal.bytes, "what came after it began is not meant");
    let (flush, late) = (journal.flush().unwrap(), journal.flush().unwrap());
    let result = Err(io::ErrorKind::StorageFull.into());
    journal.flushed(Flushed { flush, result }).unwrap_err();
    assert!(journal.flush().is_none(), "there is nothing to build upon");
    let last = append(&mut journal, &groups[3], false);
    assert_eq!(journal.synced, journal.bytes);
    // Nobody is interested in the old file any more.
    let result = Err(io::ErrorKind::StorageFull.into());
    journal.flushed(Flushed { flush: late, result }).unwrap();
    assert_eq!(essence(&Journal::open(dir.path()).unwrap().1), last);
}
