use super::*;

#[test]
fn a_runtime_takes_the_first_by_name_of_what_it_looks_at() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(taken(&dir.path().join("none")).unwrap(), None);
    for name in ["90-last.conflist", "00-notes.txt", "20-old.conf", ".10-fairlead.conflist.new"] {
        fs::write(dir.path().join(name), "{}").unwrap();
    }
    assert_eq!(taken(dir.path()).unwrap(), Some(dir.path().join("20-old.conf")));
}

#[test]
fn a_file_is_ours_by_the_plugin_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        read(&path).unwrap().unwrap()
    };
    let ours = r#"{"name": "n", "plugins": [{"type": "fairlead-cni"}, {"type": "portmap"}]}"#;
    assert_eq!(put("a", ours).unwrap().others().collect::<Vec<_>>(), ["portmap"]);
    let theirs = r#"{"name": "n", "plugins": [{"type": "ptp"}]}"#;
    assert_eq!(put("b", theirs), Err(NotOurs::Network("\"n\"".to_owned())));
    assert_eq!(put("c", "not JSON"), Err(NotOurs::NotJson));
    assert!(read(&dir.path().join("d")).unwrap().is_none());
}
