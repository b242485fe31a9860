use std::time::Instant;

use cni::ready::holds;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

async fn until(what: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !what() {
        assert!(Instant::now() < give_up, "it does not come to be");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_mark_holds_while_the_agent_is_well_and_after_it_left() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cni.sock");
    let health = Snapshot::new(Health::Reconciling("begins".to_owned()));
    let tasks = Tasks::new("test");
    tasks.spawn("mark", keep(socket.clone(), MINUTE, health.clone(), tasks.clone()));
    health.publish(Health::Well);
    until(|| holds(&socket)).await;
    health.publish(Health::Limited("the kernel does not answer".to_owned()));
    until(|| !holds(&socket)).await;
    health.publish(Health::Well);
    until(|| holds(&socket)).await;
    // Whoever removed it meanwhile: it is there again when the agent has left.
    cni::ready::unmark(&socket).unwrap();
    tasks.shutdown(MINUTE).await;
    assert!(holds(&socket));
}

#[tokio::test]
async fn an_agent_that_reconciles_leaves_the_mark_of_the_last_one_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for before in [true, false] {
        let socket = dir.path().join(format!("{before}.sock"));
        if before {
            cni::ready::mark(&socket, MINUTE).unwrap();
        }
        let health = Snapshot::new(Health::Reconciling("begins".to_owned()));
        let tasks = Tasks::new("test");
        tasks.spawn("mark", keep(socket.clone(), MINUTE, health, tasks.clone()));
        tasks.shutdown(MINUTE).await;
        assert_eq!(holds(&socket), before);
    }
}

#[tokio::test]
async fn without_a_grace_there_is_no_mark() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cni.sock");
    cni::ready::mark(&socket, MINUTE).unwrap();
    let tasks = Tasks::new("test");
    let health = Snapshot::new(Health::Well);
    tasks.spawn("mark", keep(socket.clone(), Duration::ZERO, health, tasks.clone()));
    tasks.shutdown(MINUTE).await;
    assert!(!holds(&socket));
}
