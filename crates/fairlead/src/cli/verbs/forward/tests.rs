use super::*;

#[test]
fn ports_are_written_as_for_kubectl() {
    let both = |local, remote: &str| Ok(Ports { local, remote: remote.to_owned() });
    assert_eq!(ports("8080:80"), both(Some(8080), "80"));
    assert_eq!(ports("80"), both(None, "80"));
    assert_eq!(ports(":80"), both(Some(0), "80"));
    assert_eq!(ports("8443:https"), both(Some(8443), "https"));
    assert_eq!(ports(":web-80"), both(Some(0), "web-80"));
    assert_eq!(ports("http"), both(None, "http"));
    for wrong in ["", ":", "80:", "x:80", "80:0", "80:70000", "1:2:3", "80:-", "80:HTTP"] {
        assert!(ports(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_pod_needs_no_kind() {
    for pod in ["web-0", "pod/web-0", "po/web-0", "pods/web-0"] {
        assert_eq!(object(pod), ("pods", "web-0"));
    }
    assert_eq!(object("svc/web"), ("svc", "web"));
    assert_eq!(object("deployments.apps/web"), ("deployments.apps", "web"));
}
