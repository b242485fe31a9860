use std::path::Path;

use super::super::frame::tests::{end, line};
use super::*;
use crate::history::HistorySettings;
use testkit::{acknowledge, killed};

const MINUTE: u64 = 60_000;

fn files(dir: &Path) -> HistoryFiles {
    HistoryFiles::new(HistorySettings::new(dir.join("history")))
}

/// A frame of one minute with one conversation, whose port is the minute.
fn frame(minute: u64) -> Frame {
    let at = minute * MINUTE;
    let lines = vec![line(end("web1", 1), end("db", 2), minute as u16, 10, at)];
    Frame { from: Moment(at), until: Moment(at + MINUTE), lines }
}

fn read(files: &HistoryFiles, from: u64, until: u64) -> Vec<u16> {
    let mut minutes = Vec::new();
    let window = (Moment(from * MINUTE), Moment(until * MINUTE));
    let next = files.read(window, None, |frame| {
        minutes.extend(frame.lines.iter().filter_map(|line| Some(line.service?.1)));
        true
    });
    assert_eq!(next.unwrap(), None);
    minutes
}

#[test]
fn what_was_said_when_is_found_across_segments() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    assert_eq!(files.kept().unwrap(), Kept::default());
    let mut writer = HistoryWriter::new(files.clone());
    for minute in 1..200 {
        writer.append(&[frame(minute)]).unwrap();
    }
    assert_eq!(files.segments().unwrap().len(), 4, "a segment has an hour");
    assert_eq!(files.kept().unwrap().from, Some(Moment(MINUTE)));
    assert_eq!(read(&files, 0, 1000), (1..200).collect::<Vec<_>>());
    let some = read(&files, 100, 101);
    // A frame that begins later may tell of it too.
    assert!(
        some.first() == Some(&99) && some.contains(&100) && some.last() < Some(&120),
        "{some:?}"
    );
    // Page by page it is the same.
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let mut count = 0;
        after = files
            .read((Moment(0), Moment(u64::MAX)), after, |frame| {
                paged.push(frame.lines[0].service.unwrap().1);
                count += 1;
                count < 7
            })
            .unwrap();
        let Some(place) = after else { break };
        assert_eq!(place.to_string().parse(), Ok(place));
    }
    assert_eq!(paged, (1..200).collect::<Vec<_>>());
}

#[test]
fn a_file_that_a_crash_cut_anywhere_tells_what_is_whole_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut writer = HistoryWriter::new(files.clone());
    writer.append(&[frame(1)]).unwrap();
    let path = files.path(MINUTE);
    let one = fs::read(&path).unwrap().len();
    writer.append(&[frame(2)]).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let expected: &[u16] = if length < one { &[] } else { &[1] };
        assert_eq!(read(&files, 0, 9), expected, "{length} of {}", whole.len());
    }
    // The next process begins a segment of its own, whatever the clock says.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let mut again = HistoryWriter::new(files.clone());
    again.append(&[frame(1)]).unwrap();
    again.append(&[frame(3)]).unwrap();
    assert_eq!(read(&files, 0, 9), [1, 1, 3]);
    // A byte that the disk changed ends its segment, and no other.
    let mut bad = whole.clone();
    bad[one - 1] ^= 1;
    fs::write(&path, &bad).unwrap();
    assert_eq!(read(&files, 0, 9), [1, 3]);
}

#[test]
fn a_disk_that_fails_leaves_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mut writer = HistoryWriter::new(files.clone());
    fs::write(dir.path().join("history"), "in the way").unwrap();
    assert!(writer.append(&[frame(1)]).is_err());
    fs::remove_file(dir.path().join("history")).unwrap();
    writer.append(&[frame(1), frame(2)]).unwrap();
    assert_eq!(read(&files, 0, 9), [1, 2]);
}

#[test]
fn it_is_bounded_by_bytes_and_by_age() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = HistorySettings::new(dir.path().join("history"));
    settings.bytes = 16 * 1024;
    settings.age = Duration::from_secs(1000 * 60);
    let files = HistoryFiles::new(settings);
    let mut writer = HistoryWriter::new(files.clone());
    for minute in 1..600 {
        writer.append(&[frame(minute)]).unwrap();
        writer.prune(Moment(minute * MINUTE)).unwrap();
        assert!(files.kept().unwrap().bytes <= 17 * 1024, "{:?}", files.kept());
    }
    let kept = read(&files, 0, 1000);
    assert!(kept.len() > 40 && kept.last() == Some(&599), "the newest stay: {kept:?}");
    // A clock that jumps for a moment costs one segment; one that stays there all but the newest.
    let before = files.segments().unwrap().len();
    writer.prune(Moment(10_000 * MINUTE)).unwrap();
    assert_eq!(files.segments().unwrap().len(), before - 1);
    for _ in 0..before {
        writer.prune(Moment(10_000 * MINUTE)).unwrap();
    }
    assert_eq!(files.segments().unwrap().len(), 1);
}

/// A frame whose one conversation has its number as its bytes.
fn numbered(number: u64) -> Frame {
    let lines = vec![line(end("web1", 1), end("db", 2), 80, number, number * MINUTE)];
    Frame { from: Moment(number * MINUTE), until: Moment((number + 1) * MINUTE), lines }
}

#[test]
fn every_frame_that_was_written_survives_kill_9() {
    let write = |dir: &Path, life: u64| {
        let mut writer = HistoryWriter::new(files(dir));
        for number in 1_000 * (life + 1).. {
            writer.append(&[numbered(number)]).unwrap();
            acknowledge(number);
        }
    };
    let mut written = Vec::new();
    let test = "history::files::tests::every_frame_that_was_written_survives_kill_9";
    killed(test, write, |dir, killed| {
        written.extend(killed.acknowledged.iter().map(|it| it.parse::<u64>().unwrap()));
        let mut found = Vec::new();
        let next = files(dir).read((Moment(0), Moment(u64::MAX)), None, |frame| {
            found.extend(frame.lines.iter().map(|line| line.totals.bytes));
            true
        });
        assert_eq!(next.unwrap(), None);
        assert!(found.is_sorted(), "in life {}: {found:?}", killed.life);
        let lost = written.iter().filter(|number| found.binary_search(number).is_err());
        assert_eq!(lost.collect::<Vec<_>>(), Vec::<&u64>::new(), "in life {}", killed.life);
        found.dedup();
        // Of each life one may have been written and not acknowledged.
        assert!(found.len() <= written.len() + 1, "in life {}", killed.life);
        written = found;
        // All of a thousand lives need not be read a thousand times.
        if killed.life % 20 == 19 {
            fs::remove_dir_all(dir.join("history")).unwrap();
            written.clear();
        }
    });
}
