//! A source that a test plays, answer by answer, while time is paused. What the loop does with a whole
//! API server's answers is tested where the store watches one.

use std::sync::Arc;

use futures::future::pending;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::*;

/// What the source answers next.
enum Answer {
    Lists(&'static str, u32),
    /// Tells these lines, then nothing for ever.
    Opens(Vec<Line<&'static str>>),
    Fails(&'static str),
}

use Answer::{Fails, Lists, Opens};

#[derive(Default)]
struct Script {
    answers: VecDeque<Answer>,
    /// What was asked for, and when.
    asked: Vec<(String, Instant)>,
    /// What `is_current` answers, in this order; then that it is.
    current: VecDeque<Result<bool, &'static str>>,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn that_says(answers: impl Into<VecDeque<Answer>>) -> Self {
        Self(Arc::new(Mutex::new(Script { answers: answers.into(), ..Script::default() })))
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().asked.iter().map(|(what, _)| what.clone()).collect()
    }

    async fn answer(&self, asked: String) -> Answer {
        let answer = {
            let mut script = self.0.lock();
            script.asked.push((asked, Instant::now()));
            script.answers.pop_front()
        };
        match answer {
            Some(answer) => answer,
            None => pending().await,
        }
    }
}

fn failed(why: &str) -> Failure {
    Failure::Asking(why.into())
}

impl Source for Scripted {
    type List = &'static str;
    type Item = &'static str;

    async fn list(&mut self) -> Result<(&'static str, String), Failure> {
        match self.answer("list".to_owned()).await {
            Lists(list, version) => Ok((list, version.to_string())),
            Fails(why) => Err(failed(why)),
            Opens(_) => panic!("it was asked for a list"),
        }
    }

    async fn open(&mut self, version: &str, _: u32) -> Result<Session<&'static str>, Failure> {
        match self.answer(format!("open at {version}")).await {
            Opens(lines) => {
                Ok(stream::iter(lines.into_iter().map(Ok)).chain(stream::pending()).boxed())
            }
            Fails(why) => Err(failed(why)),
            Lists(..) => panic!("it was asked for a session"),
        }
    }

    fn is_current(&mut self) -> Result<bool, Failure> {
        self.0.lock().current.pop_front().unwrap_or(Ok(true)).map_err(failed)
    }
}

fn applied(name: &'static str, version: u32) -> Line<&'static str> {
    Line::Applied(vec![(name, Some(version.to_string()))])
}

fn reported() -> Line<&'static str> {
    Line::Error(Box::new(Status { code: 500, ..Status::default() }))
}

/// The next changes, in words.
async fn told(source: &Scripted, count: usize) -> Vec<String> {
    // Long enough for the source to be asked whether a session is still the right one.
    let timing = WatchTiming { first: Duration::from_secs(200), ..WatchTiming::default() };
    let changes = watch(source.clone(), None, timing);
    let word = async |change| match change {
        Change::Listed(all) => format!("listed {all}"),
        Change::Applied(one) => format!("applied {one}"),
        Change::Deleted(one) => format!("deleted {one}"),
        Change::Interrupted { why } => format!("interrupted: {why}"),
        Change::Resumed => "resumed".to_owned(),
    };
    let told = changes.then(word).take(count).collect();
    timeout(Duration::from_secs(600), told).await.expect("so much is told")
}

#[tokio::test(start_paused = true)]
async fn an_interruption_is_told_once_and_then_that_nothing_was_missed() {
    let source = Scripted::that_says([
        Fails("away"),
        Fails("away, still"),
        Lists("a", 5),
        Fails("away again"),
        Fails("away, still"),
        Opens(vec![applied("b", 6)]),
    ]);
    let expected =
        ["interrupted: away", "listed a", "interrupted: away again", "resumed", "applied b"];
    assert_eq!(told(&source, 5).await, expected);
    assert_eq!(source.asked()[3..], ["open at 5"; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_is_an_interruption_that_a_list_ends() {
    let source = Scripted::that_says([
        Lists("a", 5),
        Opens(vec![applied("b", 6), reported()]),
        Lists("c", 8),
        Opens(vec![applied("d", 9)]),
    ]);
    let told = told(&source, 5).await;
    assert!(told[2].starts_with("interrupted: the server reports an error"), "{told:?}");
    assert_eq!(
        [&told[0], &told[1], &told[3], &told[4]],
        ["listed a", "applied b", "listed c", "applied d"]
    );
    assert_eq!(source.asked(), ["list", "open at 5", "list", "open at 8"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_of_another_connection_is_left_where_it_came_to() {
    let source = Scripted::that_says([
        Lists("a", 5),
        Opens(vec![applied("b", 6), Line::Bookmark(Some("9".to_owned()))]),
        Opens(vec![applied("c", 10)]),
    ]);
    source.0.lock().current = [Ok(true), Ok(false)].into();
    assert_eq!(told(&source, 3).await, ["listed a", "applied b", "applied c"]);
    let asked = source.0.lock().asked.clone();
    assert_eq!(asked[2].0, "open at 9");
    let moved = asked[2].1 - asked[1].1;
    let look = WatchTiming::default().look;
    assert!(moved >= look && moved <= 2 * look + Duration::from_secs(1), "{moved:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_gone_interrupts_its_watch_though_the_session_lives() {
    let source = Scripted::that_says([
        Lists("a", 5),
        Opens(vec![Line::Bookmark(Some("6".to_owned()))]),
        Opens(vec![applied("b", 7)]),
    ]);
    source.0.lock().current = [Err("there is no such cluster")].into();
    let expected = ["listed a", "interrupted: there is no such cluster", "resumed", "applied b"];
    assert_eq!(told(&source, 4).await, expected);
    assert_eq!(source.asked()[2], "open at 6");
}

/// A session that begins at an empty version begins anywhere.
#[tokio::test(start_paused = true)]
async fn an_empty_version_is_not_one_to_go_on_from() {
    let unversioned = Line::Applied(vec![("b", Some(String::new()))]);
    let source = Scripted::that_says([
        Lists("a", 5),
        Opens(vec![unversioned, Line::Bookmark(Some(String::new()))]),
        Opens(vec![applied("c", 10)]),
    ]);
    source.0.lock().current = [Ok(false)].into();
    assert_eq!(told(&source, 3).await, ["listed a", "applied b", "applied c"]);
    assert_eq!(source.asked()[2], "open at 5");
}
