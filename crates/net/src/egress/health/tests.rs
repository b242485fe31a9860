use super::*;

#[test]
fn a_replica_is_silent_only_after_it_answered() {
    let mut heard = Heard::default();
    for _ in 0..10 {
        take(&mut heard, false);
    }
    assert!(!is_silent(heard));
    take(&mut heard, true);
    take(&mut heard, false);
    assert!(!is_silent(heard));
    take(&mut heard, false);
    assert!(is_silent(heard));
    take(&mut heard, true);
    assert!(!is_silent(heard));
}

#[tokio::test]
async fn a_port_that_refuses_is_an_answer() {
    assert!(answers([127, 0, 0, 1].into()).await);
}
