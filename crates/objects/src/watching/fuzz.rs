use futures::FutureExt;

use super::*;

/// Has nothing and tells nothing.
struct Nothing;

impl<T> Source for (Nothing, std::marker::PhantomData<fn() -> T>)
where
    T: Send + 'static,
{
    type List = ();
    type Item = T;

    async fn list(&mut self) -> Result<((), String), Failure> {
        Err(Failure::EndedEarly)
    }

    async fn open(&mut self, _: &str, _: u32) -> Result<Session<T>, Failure> {
        Ok(stream::empty().boxed())
    }
}

/// Hears the lines of one session, up to its first failure.
///
/// All that they tell is told, in their order, and the version to go on from is never an empty one.
pub fn heard<T: Send + 'static>(lines: impl IntoIterator<Item = Line<T>>) {
    let timing = WatchTiming::default();
    let mut watching = Watching {
        source: (Nothing, std::marker::PhantomData),
        timing,
        state: State::Unknown,
        bookmarks: false,
        told: VecDeque::new(),
        interrupted: false,
        backoff: Backoff::new(timing.retry),
        not_before: Instant::now(),
    };
    watching.open("1".to_owned()).now_or_never().expect("nothing waits").expect("it opens");
    for line in lines {
        let (told, is_error) = match &line {
            Line::Applied(changed) | Line::Deleted(changed) => (changed.len(), false),
            Line::Bookmark(_) => (0, false),
            Line::Error(_) => (0, true),
        };
        let before = watching.told.len();
        let failed = watching.hear(line).is_err();
        assert_eq!(failed, is_error);
        assert_eq!(watching.told.len(), before + told);
        let State::Watching(open) = &watching.state else { panic!("the session is open") };
        assert!(!open.at.is_empty(), "it would go on from anywhere");
        if failed {
            break;
        }
    }
}
