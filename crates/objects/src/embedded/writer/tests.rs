use std::time::Duration;

use kube::core::DynamicObject;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::kinds::User;
use crate::store::{Expected, Id};

fn writer() -> (TempDir, Writer) {
    let dir = tempfile::tempdir().unwrap();
    let (disk, state) = Disk::open(dir.path()).unwrap();
    let path = dir.path().to_owned();
    (dir, Writer::new(path, disk, Snapshot::new(state), Meters::default()))
}

fn create(name: &str) -> (Request, oneshot::Receiver<Result<Done, Error>>) {
    let object = json!({ "metadata": { "name": name }, "spec": {} });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let (answer, answered) = oneshot::channel();
    let request = Request {
        of: Type::of::<User>(),
        operation: Operation::Create(object),
        doing: format!("creating {name}"),
        deadline: Deadline::after(Duration::from_secs(60)),
        taken: Arc::default(),
        answer,
    };
    (request, answered)
}

fn names(state: &State) -> Vec<String> {
    let mut names: Vec<_> = state.objects().map(|(_, id, _)| id.name.clone()).collect();
    names.sort();
    names
}

#[test]
fn a_group_is_one_commit() {
    let (dir, mut writer) = writer();
    let (requests, mut answers): (Vec<_>, Vec<_>) =
        (0..100).map(|i| create(&format!("u{i:02}"))).chain([create("u00")]).unzip();
    writer.commit(requests);
    assert_eq!((writer.meters.commits.count(), writer.meters.writes.get()), (1, 100));
    let last = answers.pop().unwrap().try_recv().unwrap().map(drop);
    assert!(matches!(last, Err(Error::Exists { .. })), "{last:?}");
    assert!(answers.into_iter().all(|mut answer| answer.try_recv().unwrap().is_ok()));
    drop(writer);
    let (_, state) = Disk::open(dir.path()).unwrap();
    assert_eq!(names(&state).len(), 100);
}

#[test]
fn what_is_late_or_given_up_is_not_applied() {
    let (_dir, mut writer) = writer();
    let (mut late, mut told) = create("late");
    late.deadline = Deadline::after(Duration::ZERO);
    let (given_up, mut silent) = create("given-up");
    given_up.taken.store(true, Ordering::Release);
    let (left, nobody) = create("left");
    drop(nobody);
    let (in_time, _told) = create("in-time");
    writer.commit(vec![late, given_up, left, in_time]);
    assert_eq!(names(&writer.state.load()), ["in-time"]);
    assert!(matches!(told.try_recv(), Ok(Err(Error::TooLate { .. }))));
    assert!(matches!(silent.try_recv(), Err(TryRecvError::Closed)));
}

#[test]
fn a_commit_that_failed_and_is_there_all_the_same_is_taken_back() {
    let (dir, mut writer) = writer();
    let (first, _answer) = create("first");
    writer.commit(vec![first]);

    // On disk, while its callers were told that it could not be written.
    let mut state = (*writer.state.load()).clone();
    let mut writes = Vec::new();
    let (request, _answer) = create("in-doubt");
    state.run(&request.of, request.operation, Timestamp::UNIX_EPOCH, &mut writes).unwrap();
    let kind = writes[0].kind.clone();
    let delete = Operation::Delete(Id::cluster("first"), Expected::Any);
    state.run(&request.of, delete, Timestamp::UNIX_EPOCH, &mut writes).unwrap();
    writer.disk.as_ref().unwrap().commit(state.revision(), &writes).unwrap();
    writer.broke("the disk has failed".to_owned());

    let (refused, mut answer) = create("refused");
    writer.commit(vec![refused]);
    let refused = answer.try_recv().unwrap().map(drop).unwrap_err();
    assert!(matches!(&refused, Error::Unavailable { .. }), "{refused:?}");
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert_eq!(cause, "the disk has failed", "it rests, and says why");

    writer.rest = Instant::now();
    let (second, mut answer) = create("second");
    writer.commit(vec![second]);
    assert!(answer.try_recv().unwrap().is_ok());
    assert_eq!(names(&writer.state.load()), ["first", "second"]);
    let memory = (*writer.state.load()).clone();
    drop(writer);
    let (_, disk) = Disk::open(dir.path()).unwrap();
    assert_eq!(names(&disk), ["first", "second"]);
    assert_eq!(disk.revision(), memory.revision());
    assert!(disk.get(&kind, &Id::cluster("second")) == memory.get(&kind, &Id::cluster("second")));
}
