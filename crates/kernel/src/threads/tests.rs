use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use super::*;

/// Reached only by a test that fails.
const PATIENT: Duration = Duration::from_secs(60);

#[inline(never)]
fn blocked_here(entered: &mpsc::Sender<()>, release: &mpsc::Receiver<()>) {
    entered.send(()).unwrap();
    let _ = release.recv();
    // Not a tail call: the frame must be there.
    std::hint::black_box(release);
}

#[inline(never)]
fn spins_here(entered: &mpsc::Sender<()>, stop: &AtomicBool) {
    entered.send(()).unwrap();
    while !stop.load(SeqCst) {
        std::hint::spin_loop();
    }
}

/// Lets the busy threads go even if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Asks until the thread has answered: on a busy machine its slice may be late.
fn answer_of(name: &str) -> Vec<String> {
    let until = Instant::now() + PATIENT;
    loop {
        let stacks = stacks(PATIENT).unwrap();
        let thread = stacks.into_iter().find(|thread| thread.name == name).unwrap();
        if let Some(frames) = thread.frames {
            return frames;
        }
        assert!(Instant::now() < until, "{name} never answered");
    }
}

#[test]
fn a_blocked_thread_shows_where_it_is_blocked() {
    let (release, hang) = mpsc::channel();
    let (entered, inside) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("blocked".into())
        .spawn(move || blocked_here(&entered, &hang))
        .unwrap();
    inside.recv_timeout(PATIENT).unwrap();
    let frames = answer_of("blocked");
    assert!(frames.iter().any(|frame| frame.contains("blocked_here")), "{frames:#?}");
    assert!(!frames.iter().any(|frame| frame.contains("on_signal")), "{frames:#?}");
    drop(release);
    thread.join().unwrap();
}

#[test]
fn a_spinning_thread_and_the_one_that_asks_answer_too() {
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    let stop = StopOnDrop(&stop);
    let (entered, inside) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("spins".into())
        .spawn(move || spins_here(&entered, &stops))
        .unwrap();
    inside.recv_timeout(PATIENT).unwrap();
    let frames = answer_of("spins");
    assert!(frames.iter().any(|frame| frame.contains("spins_here")), "{frames:#?}");
    let asker = thread::Builder::new()
        .name("asks".into())
        .spawn(|| answer_of("asks"))
        .unwrap()
        .join()
        .unwrap();
    assert!(asker.iter().any(|frame| frame.contains("answer_of")), "{asker:#?}");
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn a_thread_that_blocks_signals_is_said_not_to_answer_and_holds_up_no_other() {
    let (release, hang) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("deaf".into())
        .spawn(move || {
            // SAFETY: fills a set of our own and blocks it for this thread only.
            unsafe {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&mut all);
                libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
            }
            entered.send(()).unwrap();
            let _ = hang.recv();
        })
        .unwrap();
    inside.recv_timeout(PATIENT).unwrap();
    let taken = stacks(PATIENT).unwrap();
    let deaf = taken.iter().find(|thread| thread.name == "deaf").unwrap();
    assert_eq!(deaf.frames, None);
    assert!(deaf.to_string().contains("did not answer"));
    let status = fs::read_to_string(format!("/proc/self/task/{}/status", deaf.tid)).unwrap();
    assert!(status.contains("SigPnd:\t0000000000000000"), "a signal waits for ever: {status}");
    assert!(taken.iter().any(|thread| thread.frames.is_some()));
    drop(release);
    thread.join().unwrap();
}

#[test]
fn many_who_ask_at_once_each_get_an_answer() {
    let askers: Vec<_> = (0..4).map(|_| thread::spawn(|| stacks(PATIENT).unwrap().len())).collect();
    for asker in askers {
        assert!(asker.join().unwrap() > 1);
    }
}

#[test]
fn threads_that_allocate_and_unwind_all_the_time_survive_being_asked() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    let held = vec![0_u8; 4096];
                    // Unwinding, without a word from the panic hook.
                    let _ = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(held)));
                }
            });
        }
        for _ in 0..20 {
            stacks(Duration::from_secs(1)).unwrap();
        }
    });
}
