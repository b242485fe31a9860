use stallproof::Tasks;
use stallproof::ledger::Filter;

use super::*;
use crate::config::Timing;
use crate::credentials::{Access, Auth, Credentials, Endpoint, Fetched};
use crate::local_address::AddressGuard;

/// A connection of a fleet to a server that is not there: the calls of these tests do not use it.
fn connection(ledger: &Ledger) -> Connection {
    let context = FleetContext::new(Timing::default(), ledger.clone(), Tasks::new("test"));
    let endpoint = Endpoint {
        server: "http://127.0.0.1:1".parse().unwrap(),
        authorities: None,
        insecure: false,
        tls_server_name: None,
        proxy: None,
        guard: AddressGuard::default(),
    };
    let access = Access {
        endpoint,
        auth: Auth::default(),
        namespace: "default".to_owned(),
        impersonation: None,
    };
    let fetched = Fetched { identity: None, header: None, renew_in: None };
    let credentials = Credentials::new(Arc::new(access), fetched, &context);
    let link = Arc::new(ClusterClient::new(credentials, &context).unwrap());
    Connection::of(&"c".into(), &link, &Arc::new(ClusterCalls::new(&context)))
}

fn broken() -> kube::Error {
    kube::Error::Service("broken".into())
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_its_share_wait_in_line_and_beyond_that_are_told_to_come_back() {
    let ledger = Ledger::default();
    let connection = connection(&ledger);
    let deadline = Deadline::after(Duration::from_secs(60));
    let hang = || connection.call("hanging", deadline, |_| std::future::pending::<Result<(), _>>());
    let mut calls: Vec<_> = (0..AT_ONCE + WAITING).map(|_| Box::pin(hang())).collect();
    for call in &mut calls {
        assert!(futures::poll!(call.as_mut()).is_pending());
    }
    let in_flight = ledger.in_flight(&Filter::default());
    assert_eq!(in_flight[0].tenant, "c");
    assert_eq!(in_flight[0].key, "hanging");
    match connection.call("asking", deadline, |_| async { Ok(()) }).await {
        Err(Error::Busy { retry_after, .. }) => assert!(retry_after > Duration::ZERO),
        other => panic!("{other:?}"),
    }
    calls.truncate(AT_ONCE - 1);
    assert!(connection.call("asking", deadline, |_| async { Ok(()) }).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_keeps_failing_is_left_alone_until_its_prober_says_otherwise() {
    let connection = connection(&Ledger::default());
    let deadline = Deadline::after(Duration::from_secs(60));
    let fail = || connection.call("asking", deadline, |_| async { Err::<(), _>(broken()) });
    for _ in 0..5 {
        assert!(matches!(fail().await, Err(Error::Unreachable { .. })));
    }
    let refused = fail().await;
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    connection.fleet.as_ref().unwrap().calls.is_back();
    assert!(connection.call("asking", deadline, |_| async { Ok(()) }).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_says_no_and_a_caller_in_a_hurry_are_no_failures_of_the_cluster() {
    let connection = connection(&Ledger::default());
    let deadline = Deadline::after(Duration::from_secs(60));
    let status = || kube::core::Status::failure("no such pod", "NotFound").with_code(404).boxed();
    for _ in 0..20 {
        let no = connection
            .call("asking", deadline, |_| async { Err::<(), _>(kube::Error::Api(status())) });
        assert!(matches!(no.await, Err(Error::Refused { .. })));
        let hurry = Deadline::after(Duration::from_millis(10));
        let late = connection.call("asking", hurry, |_| std::future::pending::<Result<(), _>>());
        assert!(matches!(late.await, Err(Error::TooLate { .. })));
    }
    assert!(connection.call("asking", deadline, |_| async { Ok(()) }).await.is_ok());
}
