use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::identity::AuthMethod;

struct Fixture {
    data: tempfile::TempDir,
    tasks: Tasks,
    audit: Audit,
}

impl Fixture {
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let tasks = Tasks::new("test");
        let audit = Audit::start(data.path(), Size::default(), &tasks);
        Self { data, tasks, audit }
    }

    fn file(&self) -> PathBuf {
        self.data.path().join("audit/audit.jsonl")
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn stopped(&self) {
        assert_eq!(self.tasks.shutdown(Duration::from_secs(30)).await, []);
    }
}

fn entry(name: &str) -> Entry {
    Entry {
        who: Identity { user: "ada".into(), via: AuthMethod::Token("t1".into()) },
        from: Some(IpAddr::from([192, 0, 2, 1])),
        verb: Verb::Delete,
        cluster: "prod".to_owned(),
        namespace: Some("web".to_owned()),
        resource: "pods".to_owned(),
        name: Some(name.to_owned()),
        request_id: Some("r-1".to_owned()),
        dry_run: false,
        details: Map::new(),
    }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[tokio::test(start_paused = true)]
async fn the_intent_is_in_the_file_before_the_write_and_the_outcome_after() {
    let fixture = Fixture::new();
    let pending = fixture.audit.begin(entry("a"), soon()).await.unwrap();
    let lines = fixture.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["phase"], "begun");
    assert_eq!(lines[0]["id"], pending.id());
    for (field, expected) in [
        ("who", "ada"),
        ("via", "token/t1"),
        ("from", "192.0.2.1"),
        ("verb", "delete"),
        ("cluster", "prod"),
        ("namespace", "web"),
        ("resource", "pods"),
        ("name", "a"),
        ("request_id", "r-1"),
    ] {
        assert_eq!(lines[0][field], expected, "{field}");
    }
    assert_eq!(lines[0]["dry_run"], false);
    assert!(lines[0]["outcome"].is_null());

    tokio::time::advance(Duration::from_millis(250)).await;
    pending.finish("conflict");
    fixture.stopped().await;
    let lines = fixture.lines();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[1]["phase"], &lines[1]["outcome"]), (&"ended".into(), &"conflict".into()));
    assert_eq!(lines[1]["id"], lines[0]["id"]);
    assert_eq!(lines[1]["took_ms"], 250);
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_an_unknown_outcome() {
    let fixture = Fixture::new();
    drop(fixture.audit.begin(entry("a"), soon()).await.unwrap());
    fixture.stopped().await;
    assert_eq!(fixture.lines()[1]["outcome"], UNKNOWN);
    // Nobody begins while it stops.
    let refused = fixture.audit.begin(entry("b"), soon()).await;
    assert!(matches!(refused, Err(AuditError::Stopping)));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_for_the_intent_does_not_write_and_the_audit_says_so() {
    let fixture = Fixture::new();
    let late = fixture.audit.begin(entry("a"), Deadline::after(Duration::ZERO)).await;
    assert!(matches!(late, Err(AuditError::TooLate)), "{late:?}");
    fixture.stopped().await;
    let lines = fixture.lines();
    assert_eq!((lines.len(), &lines[1]["outcome"]), (2, &NOT_DONE.into()));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_those_who_have_begun() {
    let fixture = Fixture::new();
    let pending = fixture.audit.begin(entry("a"), soon()).await.unwrap();
    let write = fixture.tasks.spawn("a write", async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        pending.finish("ok");
    });
    fixture.stopped().await;
    write.await.unwrap();
    assert_eq!(fixture.lines()[1]["outcome"], "ok");
}

#[tokio::test(start_paused = true)]
async fn many_at_once_are_all_recorded_once() {
    let fixture = Fixture::new();
    let writes: Vec<_> = (0..500)
        .map(|n| {
            let audit = fixture.audit.clone();
            fixture.tasks.spawn("a write", async move {
                audit.begin(entry(&format!("pod-{n}")), soon()).await.unwrap().finish("ok");
            })
        })
        .collect();
    for write in writes {
        write.await.unwrap();
    }
    fixture.stopped().await;
    assert_eq!(fixture.lines().len(), 1000);
    assert_eq!(fixture.audit.metrics.waiting.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_can_be_read_newest_first_while_it_is_written() {
    let fixture = Fixture::new();
    for name in ["a", "b"] {
        fixture.audit.begin(entry(name), soon()).await.unwrap().finish("ok");
    }
    let _pending = fixture.audit.begin(entry("c"), soon()).await.unwrap();
    let page = fixture.audit.read(Filter::default(), 2, soon()).await.unwrap();
    let names: Vec<_> = page.records.iter().map(|record| record.name.as_deref()).collect();
    assert_eq!(names, [Some("c"), Some("b")]);
    assert_eq!(page.records[0].outcome, None);
    assert!(!page.complete);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.data.path().join("audit")).unwrap();
    std::os::unix::fs::symlink("/dev/full", fixture.file()).unwrap();
    let refused = fixture.audit.begin(entry("a"), soon()).await.unwrap_err();
    let AuditError::Unavailable { source, .. } = refused else { panic!("{refused:?}") };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);

    fs::remove_file(fixture.file()).unwrap();
    tokio::time::sleep(RETRY).await;
    fixture.audit.begin(entry("b"), soon()).await.unwrap().finish("ok");
    fixture.stopped().await;
    // Of what was refused there is no trace: it was not done.
    assert_eq!(fixture.lines().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_the_disk_does_not_take_are_kept_until_it_does() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    // Every line needs a rotation, which a directory in the place of the oldest file prevents.
    let audit = Audit::start(data.path(), Size { each: 1, files: 3 }, &tasks);
    let in_the_way = data.path().join("audit/audit.2.jsonl");
    let pending = audit.begin(entry("a"), soon()).await.unwrap();
    fs::create_dir(&in_the_way).unwrap();
    pending.finish("ok");
    assert!(audit.begin(entry("b"), soon()).await.is_err());
    // Who cannot even wait for the refusal leaves nothing to keep.
    for _ in 0..QUEUE {
        assert!(audit.begin(entry("b"), Deadline::after(Duration::ZERO)).await.is_err());
        tokio::task::yield_now().await;
    }
    assert_eq!(audit.metrics.waiting.get(), 1);

    fs::remove_dir(&in_the_way).unwrap();
    // Nobody asks: it is tried again by itself.
    tokio::time::sleep(RETRY * 2).await;
    let page = audit.read(Filter::default(), 10, soon()).await.unwrap();
    assert_eq!(page.records.len(), 1);
    assert_eq!(page.records[0].outcome.as_deref(), Some("ok"));
    assert_eq!(audit.metrics.waiting.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_cannot_be_made_refuses_writes_not_the_start() {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("audit"), "in the way").unwrap();
    let tasks = Tasks::new("test");
    let audit = Audit::start(data.path(), Size::default(), &tasks);
    let refused = audit.begin(entry("a"), soon()).await.unwrap_err();
    assert!(matches!(refused, AuditError::Unavailable { .. }), "{refused}");
    assert!(refused.to_string().contains("no write goes unrecorded"));
    assert_eq!((audit.metrics.failures.get(), audit.metrics.refused.get()), (1, 1));
    // The disk is not asked again at once.
    assert!(audit.begin(entry("b"), soon()).await.is_err());
    assert_eq!((audit.metrics.failures.get(), audit.metrics.refused.get()), (1, 2));

    fs::remove_file(data.path().join("audit")).unwrap();
    tokio::time::sleep(RETRY).await;
    audit.begin(entry("c"), soon()).await.unwrap().finish("ok");
}

/// A disk that hangs: a pipe that nobody reads and that is full.
#[tokio::test]
async fn a_disk_that_hangs_holds_nobody_beyond_the_deadline_and_then_refuses_at_once() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.data.path().join("audit")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(fixture.file()).status().unwrap();
    assert!(made.success());
    let mut pipe = OpenOptions::new();
    pipe.read(true).write(true).custom_flags(0o4000 /* O_NONBLOCK */);
    let mut pipe = pipe.open(fixture.file()).unwrap();
    while pipe.write(&[b'x'; 4096]).is_ok() {}

    // The writer is in it for good.
    let first = fixture.audit.begin(entry("a"), Deadline::after(Duration::from_millis(200))).await;
    assert!(matches!(first, Err(AuditError::TooLate)), "{first:?}");
    // Those who gave up keep their places for the line that says so, until there is none.
    let mut late = 0;
    let refused = loop {
        match fixture.audit.begin(entry("a"), Deadline::after(Duration::ZERO)).await {
            Err(AuditError::TooLate) => late += 1,
            other => break other,
        }
        assert!(late <= QUEUE, "the queue has no end");
    };
    assert!(matches!(refused, Err(AuditError::Busy { .. })), "{refused:?}");

    // The disk comes back: the thread that hung in it ends.
    fs::remove_file(fixture.file()).unwrap();
    let mut sink = vec![0; 1 << 20];
    loop {
        while pipe.read(&mut sink).is_ok() {}
        let patience = Deadline::after(Duration::from_millis(50));
        if let Ok(pending) = fixture.audit.begin(entry("c"), patience).await {
            pending.finish("ok");
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.stopped().await;
    let lines = fixture.lines();
    let last = lines.last().unwrap();
    assert_eq!((&last["name"], &last["outcome"]), (&"c".into(), &"ok".into()));
}

#[tokio::test(start_paused = true)]
async fn what_was_before_and_after_is_with_the_outcome() {
    let fixture = Fixture::new();
    let asked = Map::from_iter([("roles".to_owned(), Value::from(vec!["admin"]))]);
    let entry = Entry { name: None, details: asked, ..entry("ann") };
    let mut pending = fixture.audit.begin(entry, soon()).await.unwrap();
    assert_eq!(fixture.lines()[0]["details"]["roles"][0], "admin");
    pending.name("ann");
    pending.before(serde_json::json!({ "roles": ["viewer"] }));
    pending.after(serde_json::json!({ "roles": ["admin"] }));
    pending.detail("bytes", 7.into());
    pending.finish("ok");
    fixture.stopped().await;
    let ended = &fixture.lines()[1];
    assert_eq!((&ended["name"], &ended["details"]["bytes"]), (&"ann".into(), &7.into()));
    assert_eq!(
        (&ended["before"]["roles"][0], &ended["after"]["roles"][0]),
        (&"viewer".into(), &"admin".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_note_waits_for_nothing_and_is_on_disk_soon() {
    let fixture = Fixture::new();
    fixture.audit.note(entry("secret"), "ok").unwrap();
    let who = Identity { user: "ada".into(), via: AuthMethod::Local };
    fixture.audit.login(&who, IpAddr::from([192, 0, 2, 1]), "password", None).unwrap();
    fixture.stopped().await;
    let lines = fixture.lines();
    assert_eq!(
        (lines.len(), &lines[0]["phase"], &lines[0]["outcome"]),
        (2, &"noted".into(), &"ok".into())
    );
    assert_eq!(
        (&lines[1]["verb"], &lines[1]["details"]["method"]),
        (&"login".into(), &"password".into())
    );
    assert_eq!(fixture.audit.notes.available_permits(), NOTES);
}

#[tokio::test(start_paused = true)]
async fn notes_are_refused_when_too_many_wait_for_a_disk_that_fails_and_none_is_lost() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.data.path().join("audit")).unwrap();
    std::os::unix::fs::symlink("/dev/full", fixture.file()).unwrap();
    for n in 0..NOTES {
        fixture.audit.note(entry(&format!("secret-{n}")), "ok").unwrap();
        tokio::task::yield_now().await;
    }
    let refused = fixture.audit.note(entry("one more"), "ok");
    assert!(matches!(refused, Err(AuditError::Busy { .. })), "{refused:?}");
    fs::remove_file(fixture.file()).unwrap();
    tokio::time::sleep(RETRY * 3).await;
    fixture.stopped().await;
    assert_eq!(fixture.lines().len(), NOTES);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_failed_logins_is_a_few_lines_and_no_count_is_lost() {
    let fixture = Fixture::new();
    for n in 0..10_000_u32 {
        let from = Some(IpAddr::from(n.to_be_bytes()));
        fixture.audit.failed_login(LoginFailure { outcome: "wrong", from, user: None });
        if n % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    fixture.stopped().await;
    let lines = fixture.lines();
    assert!((33..=66).contains(&lines.len()), "{} lines", lines.len());
    let count: u64 = lines.iter().map(|line| line["count"].as_u64().unwrap()).sum();
    assert_eq!(count, 10_000);
    assert!(lines.iter().all(|line| line["verb"] == "login" && line["who"] == "-"));
}

#[tokio::test(start_paused = true)]
async fn the_first_failed_login_is_on_disk_at_once_and_the_others_within_minutes() {
    let fixture = Fixture::new();
    let failure = LoginFailure { outcome: "wrong", from: None, user: Some("ada".to_owned()) };
    let counts = || {
        let counts = fixture.lines();
        counts.iter().map(|line| line["count"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    fixture.audit.failed_login(failure.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counts(), [1]);
    for _ in 0..5 {
        fixture.audit.failed_login(failure.clone());
    }
    tokio::time::sleep(Duration::from_secs(5 * 60)).await;
    assert_eq!(counts(), [1, 5]);
}
