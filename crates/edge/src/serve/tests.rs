use axum::body::Body;
use axum::routing::get;
use tower::ServiceExt;

use super::*;

async fn connection_of(router: &Router, path: &str) -> Option<String> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    let header = answer.headers().get(header::CONNECTION);
    header.map(|value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn connections_end_with_their_next_answer_once_the_process_leaves() {
    let switch = || async { StatusCode::SWITCHING_PROTOCOLS };
    let router = Router::new().route("/", get(|| async { "answer" })).route("/up", get(switch));
    let all = Tasks::new("all");
    let leading = all.child("leading");
    let kept = ending_connections(router.clone(), None);
    let ending = ending_connections(router, Some(leading.stopping()));
    assert_eq!(connection_of(&ending, "/").await, None);
    leading.stop("the process leaves");
    assert_eq!(connection_of(&ending, "/").await.as_deref(), Some("close"));
    // Whose connection is no longer one of HTTP.
    assert_eq!(connection_of(&ending, "/up").await, None);
    assert_eq!(connection_of(&kept, "/").await, None);
    assert!(!all.stopping().is_stopped());
}
