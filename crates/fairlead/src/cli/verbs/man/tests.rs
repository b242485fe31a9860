use super::*;

#[test]
fn what_is_told_to_others_says_nothing_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    run(&Args { directory: dir.path().to_owned() }).unwrap();
    let page = std::fs::read_to_string(dir.path().join("fairlead-up.1")).unwrap();
    let host = crate::config::Config::default().net.node;
    assert!(!page.contains(&format!("[default: {host}]")), "{page}");
    assert!(page.contains("[default: the number of cores]"), "{page}");
    assert!(page.contains("[default: 127.0.0.1:7680]"), "{page}");
}
