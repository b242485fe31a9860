use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::*;

fn shell() -> RecordedShell {
    RecordedShell {
        user: "ada".to_owned(),
        cluster: "prod".to_owned(),
        namespace: "web".to_owned(),
        pod: "web-1".to_owned(),
        container: None,
        command: vec!["sh".to_owned(), "-i".to_owned()],
    }
}

fn lines(audit: &Path, id: &str) -> Vec<Value> {
    let cast = fetch(audit, id).unwrap().expect("it was recorded");
    let text = String::from_utf8(cast).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn ended(tasks: &Tasks) {
    assert_eq!(tasks.shutdown(Duration::from_secs(30)).await, []);
}

#[tokio::test]
async fn what_a_shell_shows_is_an_asciicast_that_its_owner_alone_can_read() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let all = Recordings::start(data.path(), RecordingLimits::default(), &tasks).unwrap();
    let mut recorder = all.begin("a1", shell());
    recorder.resize(100, 30);
    recorder.output(b"$ ls\r\n\xe2\x82");
    recorder.output(b"\xac\xff\r\n");
    recorder.resize(120, 40);
    drop(recorder);
    // One that showed nothing leaves nothing.
    drop(all.begin("a2", shell()));
    ended(&tasks).await;

    let lines = lines(data.path(), "a1");
    let header = &lines[0];
    assert_eq!(
        (&header["version"], &header["width"], &header["height"]),
        (&2.into(), &100.into(), &30.into())
    );
    assert_eq!(header["command"], "sh -i");
    let events: Vec<_> = lines[1..].iter().map(|event| (&event[1], &event[2])).collect();
    let shown = |text: &str| Value::from(text);
    assert_eq!(
        events,
        [
            (&shown("o"), &shown("$ ls\r\n")),
            (&shown("o"), &shown("€\u{fffd}\r\n")),
            (&shown("r"), &shown("120x40")),
        ]
    );
    let times: Vec<_> = lines[1..].iter().map(|event| event[0].as_f64().unwrap()).collect();
    assert!(times.is_sorted());
    let dir = data.path().join("recordings");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join("a1.cast"))), (0o700, 0o600));
    let listed = list(data.path(), 10).unwrap();
    assert_eq!((listed.len(), &*listed[0].id, &listed[0].shell), (1, "a1", &shell()));
    assert_eq!(fetch(data.path(), "a2").unwrap(), None);
}

#[test]
fn only_an_id_names_a_file() {
    for wrong in ["", "../token", "a/b", "a.b", &"a".repeat(65)] {
        assert_eq!(file_of(Path::new("/data"), wrong), None, "{wrong}");
    }
    assert!(list(Path::new("/nonexistent"), 1).unwrap().is_empty());
}

#[tokio::test]
async fn one_recording_ends_at_its_size_and_the_oldest_goes_for_a_new_one() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let limits = RecordingLimits { each: 2000, all: 5000 };
    let all = Recordings::start(data.path(), limits, &tasks).unwrap();
    for id in ["a1", "a2", "a3"] {
        let mut recorder = all.begin(id, shell());
        for _ in 0..100 {
            recorder.output(&[b'x'; 100]);
        }
        drop(recorder);
        // A file's time is what says which is older, once nothing more is written to it.
        let path = data.path().join(format!("recordings/{id}.cast"));
        let until = std::time::Instant::now() + Duration::from_secs(30);
        let is_whole = || fs::read_to_string(&path).is_ok_and(|text| text.contains("ends here"));
        while !is_whole() {
            assert!(std::time::Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let old = fs::FileTimes::new()
            .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(id.as_bytes()[1].into()));
        File::options().append(true).open(&path).unwrap().set_times(old).unwrap();
    }
    ended(&tasks).await;
    let ids: Vec<_> = list(data.path(), 10).unwrap().into_iter().map(|view| view.id).collect();
    assert!(!ids.contains(&"a1".to_owned()) && ids.contains(&"a3".to_owned()), "{ids:?}");
    let lines = lines(data.path(), "a3");
    let last = lines.last().unwrap();
    assert!(last[1] == "m" && last[2].as_str().unwrap().contains("ends here"), "{last}");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_holds_up_no_shell_and_what_is_lost_is_said() {
    let (queue, mut written) = GroupCommit::channel(4);
    let all =
        Recordings { queue, room: Arc::new(Semaphore::new(WAITING)), metrics: Metrics::default() };
    let mut recorder = all.begin("a1", shell());
    for _ in 0..1000 {
        recorder.output(&[b'x'; 1000]);
    }
    // The header and three pieces wait.
    assert_eq!(all.metrics.lost.get(), 997 * 1000);
    for _ in 0..4 {
        written.next().await.unwrap();
    }
    recorder.output(b"back");
    let Some(Message { what: What::Events(lines), .. }) = written.next().await else { panic!() };
    let text = String::from_utf8(lines).unwrap();
    assert!(text.contains("997000 bytes were not recorded") && text.contains("back"), "{text}");
}

#[tokio::test]
async fn pieces_larger_than_what_may_wait_are_left_out() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let all = Recordings::start(data.path(), RecordingLimits::default(), &tasks).unwrap();
    let mut recorder = all.begin("a1", shell());
    recorder.output(&vec![b'x'; WAITING + 1]);
    recorder.output(b"on");
    drop(recorder);
    ended(&tasks).await;
    let lines = lines(data.path(), "a1");
    assert_eq!((lines.len(), &lines[1][1], &lines[2][2]), (3, &"m".into(), &"on".into()));
}
