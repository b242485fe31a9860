use serde_json::json;

use super::*;

#[test]
fn the_beginning_says_whom_to_answer() {
    let review = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u-1","kind":{"group":"","kind":"Pod"},"object":{"metadata":{"name":""#;
    assert_eq!(asked_by(review.as_bytes()), ("u-1".to_owned(), Version::V1beta1));
    let before_uid = review.split_once("u-1").unwrap().0;
    assert_eq!(asked_by(before_uid.as_bytes()).0, "");
    assert_eq!(asked_by(b"no json"), (String::new(), Version::V1));
    // The uid of an object is not that of the review.
    let other = json!({"request": {"object": {"metadata": {"uid": "theirs"}}, "uid": "ours"}});
    assert_eq!(asked_by(other.to_string().as_bytes()).0, "ours");
}
