use super::*;

fn pod(progress: fn(String, String) -> Progress, namespace: &str, name: &str) -> Progress {
    progress(namespace.to_owned(), name.to_owned())
}

#[test]
fn a_drain_names_no_pod_that_may_not_be_seen() {
    let mut tally = Tally::new(|namespace: &str| namespace == "a");
    let gone = |namespace, pod| Progress::Gone { namespace, pod };
    let failed = |namespace, pod| Progress::Failed { namespace, pod, why: "held".to_owned() };
    assert!(tally.take(Progress::Cordoned).is_none());
    assert_eq!(tally.take(pod(gone, "a", "one")).unwrap().outcome, "gone");
    assert!(tally.take(pod(gone, "b", "secret")).is_none());
    assert!(tally.take(pod(failed, "b", "secret-too")).is_none());
    assert!(
        tally.take(Progress::Finished { gone: 2, failed: 1, refused: 0, cordoned: true }).is_none()
    );
    let drained = tally.end().unwrap();
    assert_eq!((drained.drained, drained.gone, drained.left.len()), (false, 1, 1));
    assert!(drained.cordoned);
    assert!(!format!("{drained:?}").contains("secret"));
}

#[test]
fn a_drain_that_is_refused_tells_the_reasons_and_that_nothing_is_cordoned() {
    let mut tally = Tally::new(|_: &str| true);
    let refused = |namespace, pod| Progress::Refused {
        namespace,
        pod,
        reasons: vec![Reason::EmptyDir, Reason::Unmanaged],
    };
    let told = tally.take(pod(refused, "a", "one")).unwrap();
    assert_eq!(told.outcome, "failed");
    tally.take(Progress::Finished { gone: 0, failed: 0, refused: 1, cordoned: false });
    let drained = serde_json::to_value(tally.end().unwrap()).unwrap();
    assert_eq!((&drained["drained"], &drained["cordoned"]), (&false.into(), &false.into()));
    assert_eq!(drained["left"][0]["reasons"], serde_json::json!(["emptyDir", "unmanaged"]));
}

#[test]
fn a_drain_that_could_not_begin_is_a_problem() {
    let mut tally = Tally::new(|_: &str| true);
    tally.take(Progress::Stopped { why: "it is not there".to_owned() });
    assert_eq!(tally.end().unwrap_err().code, ErrorCode::Refused);
    let mut tally = Tally::new(|_: &str| true);
    tally.take(Progress::Cordoned);
    tally.take(Progress::Stopped { why: "it does not answer".to_owned() });
    assert!(tally.end().unwrap_err().detail().contains("the node is cordoned"));
    assert_eq!(Tally::new(|_: &str| true).end().unwrap_err().code, ErrorCode::Internal);
}
