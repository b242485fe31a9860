use std::future::pending;
use std::sync::Mutex;

use tokio::time::sleep;

use super::*;
use crate::tests::scripted;

fn chosen(names: &[&str]) -> Vec<ClusterTarget> {
    let nobody = scripted::client(|_| scripted::Response::Hang);
    let target = |name: &&str| (name.to_string(), Ok(Connection::new(*name, nobody.clone())));
    names.iter().map(target).collect()
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_costs_its_own_row() {
    let mut chosen = chosen(&["quick", "slow", "dead"]);
    chosen.push(("gone".to_owned(), Err(Error::NoSuchCluster { cluster: "gone".to_owned() })));
    let began = Instant::now();
    let ask = |connection: Connection, _| async move {
        match connection.cluster() {
            "quick" => sleep(Duration::from_millis(10)).await,
            "slow" => sleep(Duration::from_secs(1)).await,
            _ => pending().await,
        }
        Ok(connection.cluster().len())
    };
    let replies = fan(chosen, Deadline::after(Duration::from_secs(5)), ask);
    let replies: Vec<_> = replies.map(|reply| (began.elapsed(), reply)).collect().await;

    let order: Vec<_> = replies.iter().map(|(_, reply)| reply.cluster.as_str()).collect();
    assert_eq!(order, ["gone", "quick", "slow", "dead"]);
    // Each arrived when it had answered, not when the last had.
    assert!(replies[1].0 < Duration::from_millis(100) && replies[2].0 < Duration::from_secs(2));
    assert!(replies[3].0 < Duration::from_millis(5_100));
    assert_eq!(replies[1].1.result.as_ref().unwrap(), &5);
    assert!(matches!(replies[0].1.result, Err(Error::NoSuchCluster { .. })));
    assert!(matches!(replies[3].1.result, Err(Error::TooLate { .. })));
    assert!(replies[3].1.took >= Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn five_hundred_dead_ones_do_not_hold_up_the_last() {
    let names: Vec<_> = (0..501).map(|number| format!("c{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let ask = |connection: Connection, _| async move {
        if connection.cluster() != "c500" {
            pending::<()>().await;
        }
        Ok(())
    };
    let mut replies =
        std::pin::pin!(fan(chosen(&names), Deadline::after(Duration::from_secs(9)), ask));
    let first = replies.next().await.unwrap();
    assert_eq!((first.cluster.as_str(), first.result.is_ok()), ("c500", true));
    assert_eq!(first.took, Duration::ZERO);
    assert_eq!(
        replies.filter(|reply| std::future::ready(reply.result.is_err())).count().await,
        500
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_question_has_at_its_own_deadline_still_arrives() {
    let given = Mutex::new(Vec::new());
    let ask = |_, deadline: Deadline| {
        given.lock().unwrap().push(deadline);
        async move { deadline.bound(pending::<()>()).await.or(Ok(())) }
    };
    let whole = Deadline::after(Duration::from_secs(2));
    let replies: Vec<_> = fan(chosen(&["a", "b"]), whole, ask).collect().await;
    assert!(replies.iter().all(|reply| reply.result.is_ok()));
    assert!(given.lock().unwrap().iter().all(|deadline| *deadline < whole));
}
