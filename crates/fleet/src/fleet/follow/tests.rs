use std::sync::Arc;

use parking_lot::Mutex;

use super::super::tests::{access, api_server, is_ready, offer, reconciler, until};
use super::*;

#[tokio::test]
async fn work_moves_to_each_new_client_and_stops_with_its_cluster() {
    let tasks = Tasks::new("test");
    let server = api_server().await;
    let mut reconciler = reconciler(&tasks);
    let begun: Arc<Mutex<Vec<(String, Tasks)>>> = Arc::default();
    let noted = Arc::clone(&begun);
    let begin = move |cluster: &str, _: &Objects, work: &Tasks| {
        noted.lock().push((cluster.to_owned(), work.clone()));
    };
    let names = vec!["a".to_owned(), "b".to_owned()];
    let stores = follow(reconciler.published.clone(), names, &tasks, begin);
    let names = || begun.lock().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let is_stopped = |index: usize| begun.lock()[index].1.stopping().is_stopped();
    let store = |name: &str| stores.read(|stores| stores.get(name).cloned());

    // Only the clusters that were asked for, each once it has a connection.
    let all = |token: &str| ["a", "c"].map(|name| offer(name, "0", Ok(access(server, token))));
    reconciler.want(all("one"));
    reconciler.until("ready", |fleet| is_ready(fleet, "a") && is_ready(fleet, "c")).await;
    until("work on a", || store("a").is_some()).await;
    assert_eq!(names(), ["a"]);
    assert!(store("b").is_none() && store("c").is_none());
    let first = store("a").unwrap();

    // New credentials are a new client: the work begins on it, and the work before stops.
    reconciler.want(all("two"));
    until("work on the new client", || store("a").is_some_and(|now| !now.is(&first))).await;
    drop(first);
    until("the work before to stop", || is_stopped(0)).await;
    assert_eq!(names(), ["a", "a"]);
    assert!(!is_stopped(1));

    // A cluster that leaves the fleet is let go of, and followed again when it is back.
    reconciler.want([]);
    until("the work to stop", || is_stopped(1) && store("a").is_none()).await;
    reconciler.until_credentials(0).await;
    reconciler.want(all("two"));
    until("work on the cluster that is back", || store("a").is_some()).await;
    assert_eq!(names(), ["a", "a", "a"]);
}
