use super::*;

#[tokio::test(start_paused = true)]
async fn a_component_is_not_ready_until_it_says_so_and_says_why() {
    let readiness = Readiness::default();
    assert!(readiness.report().ready, "nothing announced, nothing missing");
    let store = readiness.announce("store");
    let net = readiness.announce("net");
    store.ready();
    net.not_ready("reconciling the journal");
    tokio::time::advance(Duration::from_secs(3)).await;
    let report = readiness.report();
    assert!(!report.ready);
    assert_eq!(
        report.to_string(),
        "[-] net not ready: reconciling the journal\n[+] store ready\nnot ready"
    );
    net.not_ready("reconciling the journal");
    assert_eq!(readiness.report().components[0].since_ms, 3000, "saying it again changes nothing");
    net.ready();
    assert!(readiness.report().ready);
}

#[test]
fn a_component_that_is_gone_holds_nothing_up() {
    let readiness = Readiness::default();
    let component = readiness.announce("fleet");
    assert!(!readiness.report().ready);
    drop(component);
    assert!(readiness.report().ready);
}
