use serde::Deserialize;

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Counter {
    count: u64,
}

impl State for Counter {
    const SECRET: &'static str = "counter";
    const LABEL: (&'static str, &'static str) = ("fairlead.dev/test", "counter");

    fn is_whole(&self) -> bool {
        self.count > 0
    }
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_no_state() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(data.path(), &tasks).unwrap();
    let state = SharedState::<Counter>::follow(&objects, "fairlead", &tasks);
    let mut secret = state.with(&Counter { count: 1 });
    assert_eq!(parse(&secret), Some(Counter { count: 1 }));
    for torn in ["{}", "", r#"{"count": 0}"#] {
        secret.data = Some([(KEY.to_owned(), ByteString(torn.as_bytes().to_vec()))].into());
        assert_eq!(parse::<Counter>(&secret), None, "{torn}");
    }
    tasks.stop("done");
}

#[tokio::test]
async fn changes_that_meet_are_all_made() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(data.path(), &tasks).unwrap();
    let state = SharedState::<Counter>::follow(&objects, "fairlead", &tasks);
    let soon = Deadline::after(std::time::Duration::from_secs(30));
    let missing = state.change(&objects, soon, |counter| counter.count += 1).await;
    assert!(matches!(missing, Err(NotChanged::Missing)), "{missing:?}");
    state.step(&objects, soon, |_| Ok(Some(Counter { count: 1 }))).await.unwrap();
    let change = || state.change(&objects, soon, |counter| counter.count += 1);
    let (a, b, c) = tokio::join!(change(), change(), change());
    for made in [a, b, c] {
        made.unwrap();
    }
    let next = |now: Option<&Counter>| {
        assert_eq!(now, Some(&Counter { count: 4 }));
        Ok(None)
    };
    state.step(&objects, soon, next).await.unwrap();
    tasks.stop("done");
}
