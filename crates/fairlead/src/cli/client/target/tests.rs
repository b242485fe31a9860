use super::*;

fn cluster(name: &str, state: &str) -> ClusterView {
    ClusterView { name: name.to_owned(), state: state.to_owned(), ..ClusterView::default() }
}

#[test]
fn flags_win_over_the_environment_and_names_count_once() {
    let flags = ["b".to_owned(), " a".to_owned(), "b".to_owned()];
    assert_eq!(named(&flags, "c"), ["b", "a"]);
    assert_eq!(named(&[], "c,d"), ["c", "d"]);
    assert!(named(&[], "").is_empty());
}

#[test]
fn the_only_ready_cluster_is_read_without_being_named() {
    let clusters = [cluster("dev", "ready"), cluster("prod", "unreachable")];
    assert_eq!(only(&clusters, Access::Read).unwrap(), "dev");
    assert_eq!(only(&[cluster("dev", "degraded")], Access::Read).unwrap(), "dev");
}

#[test]
fn a_change_goes_to_no_cluster_because_another_is_away() {
    let clusters = [cluster("dev", "ready"), cluster("prod", "unreachable")];
    let error = only(&clusters, Access::Write).unwrap_err().to_string();
    assert!(error.contains("which cluster?") && error.contains("prod (unreachable)"), "{error}");
    assert_eq!(only(&clusters[..1], Access::Write).unwrap(), "dev");
}

#[test]
fn several_are_listed_with_their_states() {
    let clusters = [cluster("a", "ready"), cluster("b", "ready")];
    let error = only(&clusters, Access::Read).unwrap_err().to_string();
    assert!(error.ends_with("take --all-clusters:\n  a (ready)\n  b (ready)"), "{error}");
    let error = only(&[], Access::Read).unwrap_err().to_string();
    assert!(error.contains("fairlead clusters add"), "{error}");
    let error = only(&[cluster("a", "connecting"), cluster("b", "disabled")], Access::Read);
    assert!(error.unwrap_err().to_string().starts_with("no cluster is ready"));
}

#[test]
fn an_object_is_two_words_or_one_with_a_slash() {
    let object = |kind: &str, name: Option<&str>| Object {
        kind: kind.to_owned(),
        name: name.map(str::to_owned),
    };
    assert_eq!(object("pod", Some("web")).named().unwrap(), ("pod", "web"));
    assert_eq!(object("pod/web", None).named().unwrap(), ("pod", "web"));
    assert_eq!(object("pods", None).parts(), ("pods", None));
    assert!(object("pods", None).named().is_err());
    assert_eq!(object("pod/web", None).to_string(), "pod/web");
}
