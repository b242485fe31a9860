use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use cni::wire::{Operation, call};

use super::*;

fn status() -> Request {
    Request { wait_ms: 1000, operation: Operation::Status }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

async fn ask(path: PathBuf, beside: Option<File>) -> io::Result<Reply> {
    let ask = move || call(&path, &status(), beside.as_ref().map(AsFd::as_fd), later());
    tokio::task::spawn_blocking(ask).await.unwrap()
}

/// A server that answers with what came with the request.
fn start(dir: &Path, limits: ServerLimits, pause: Duration) -> (PathBuf, Tasks, Arc<AtomicUsize>) {
    let path = dir.join("run/cni.sock");
    let listener = listen(&path).unwrap();
    let tasks = Tasks::new("test");
    let served = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&served);
    let handle = move |_: Request, descriptor: Option<OwnedFd>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(pause).await;
            let inode = descriptor.map(|fd| File::from(fd).metadata().unwrap().ino());
            Reply::Shown(inode.into())
        }
    };
    tasks.spawn("server", serve(listener, handle, limits, tasks.clone()));
    (path, tasks, served)
}

#[tokio::test]
async fn a_request_is_answered_with_what_came_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tasks, _) = start(dir.path(), ServerLimits::default(), Duration::ZERO);
    let file = tempfile::tempfile().unwrap();
    let inode = file.metadata().unwrap().ino();
    assert_eq!(ask(path.clone(), Some(file)).await.unwrap(), Reply::Shown(inode.into()));
    assert_eq!(ask(path.clone(), None).await.unwrap(), Reply::Shown(None::<u64>.into()));
    tasks.shutdown(Duration::from_secs(5)).await;
    assert_eq!(ask(path, None).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn only_its_owner_can_reach_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let (path, ..) = start(dir.path(), ServerLimits::default(), Duration::ZERO);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[tokio::test]
async fn a_socket_in_use_is_not_taken_and_a_stale_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cni.sock");
    let first = listen(&path).unwrap();
    assert!(matches!(listen(&path), Err(ListenError::Taken(_))));
    drop(first);
    assert!(path.exists());
    listen(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = listen(&dir.path().join("file/cni.sock")).unwrap_err();
    assert!(stallproof::sentence(&error).contains("cannot be made"), "{error}");
}

#[tokio::test]
async fn one_too_many_is_refused_at_once_and_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServerLimits { connections: 2, ..ServerLimits::default() };
    let (path, _tasks, served) = start(dir.path(), limits, Duration::from_millis(300));
    let held = [tokio::spawn(ask(path.clone(), None)), tokio::spawn(ask(path.clone(), None))];
    while served.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let Reply::Failed(error) = ask(path.clone(), None).await.unwrap() else { panic!() };
    assert_eq!(error.code, Code::TryAgainLater);
    for held in held {
        assert!(matches!(held.await.unwrap().unwrap(), Reply::Shown(_)));
    }
    assert!(matches!(ask(path, None).await.unwrap(), Reply::Shown(_)));
}

#[tokio::test]
async fn who_sends_nothing_or_nonsense_is_cut_off_and_costs_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ServerLimits { connections: 3, arrival: Duration::from_millis(100) };
    let (path, _tasks, served) = start(dir.path(), limits, Duration::ZERO);
    let ended = |bytes: &'static [u8]| {
        let path = path.clone();
        tokio::task::spawn_blocking(move || {
            let mut stream = wire::dial(&path, later()).unwrap();
            stream.write_all(bytes).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut rest = Vec::new();
            // Closed with something unread, the other end is told so.
            let read = stream.read_to_end(&mut rest);
            assert!(read.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset) || rest.is_empty());
        })
    };
    for bytes in [&b""[..], b"\x02", b"\xff\xff\xff\xff", b"\x02\0\0\0{}", b"\x05\0\0\0{"] {
        ended(bytes).await.unwrap();
    }
    assert_eq!(served.load(Ordering::Relaxed), 0);
    assert!(matches!(ask(path, None).await.unwrap(), Reply::Shown(_)));
}

#[tokio::test]
async fn an_agent_that_ends_breaks_off_instead_of_asking_to_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/cni.sock");
    let listener = listen(&path).unwrap();
    let tasks = Tasks::new("test");
    let stop = tasks.stopping();
    let handle = move |request: Request, _| {
        let stop = stop.clone();
        async move {
            // The second request is still being served when the agent ends.
            if request.wait_ms > 1000 {
                stop.stopped().await;
            }
            Reply::Failed(Error::new(Code::TryAgainLater, "not now"))
        }
    };
    tasks.spawn("server", serve(listener, handle, ServerLimits::default(), tasks.clone()));
    assert!(matches!(ask(path.clone(), None).await, Ok(Reply::Failed(_))));
    let held = tokio::task::spawn_blocking(move || {
        call(&path, &Request { wait_ms: 2000, operation: Operation::Status }, None, later())
    });
    // Until it is being served.
    while tasks.list().iter().all(|task| !task.name.ends_with("cni-connection")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tasks.shutdown(Duration::from_secs(5)).await;
    assert_eq!(held.await.unwrap().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}
