use super::*;

fn list(value: &Value) -> Conflist {
    Conflist::parse(value.to_string().as_bytes()).unwrap()
}

fn value(list: &Conflist) -> Value {
    Value::Object(list.0.clone())
}

fn knows(plugin: &str, versions: &[&str]) -> Chained {
    let versions = Some(versions.iter().map(|version| (*version).to_owned()).collect());
    Chained { plugin: plugin.to_owned(), versions, trouble: None }
}

fn silent(plugin: &str) -> Chained {
    Chained { plugin: plugin.to_owned(), versions: None, trouble: Some("why".to_owned()) }
}

const OLD: [&str; 4] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0"];
const NEW: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

fn defaults(list: &mut Conflist) {
    list.name_unless_named(NETWORK);
    list.set_own(Path::new(DEFAULT_SOCKET), None);
}

#[test]
fn what_the_administrator_wrote_stays() {
    let written = json!({
        "cniVersion": "1.0.0", "cniVersions": ["1.0.0"], "name": "pods", "disableCheck": true,
        "plugins": [
            {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}},
            {"type": "fairlead-cni", "pool": "fast", "timeout": 30, "dns": {"domain": "d"}},
            {"type": "portmap", "snat": false, "capabilities": {"portMappings": true}},
        ],
    });
    let mut kept = list(&written);
    defaults(&mut kept);
    kept.chain(Chain::Portmap);
    kept.choose_versions(None, &[knows("tuning", &OLD), knows("portmap", &OLD)]).unwrap();
    assert_eq!(value(&kept), written);

    kept.set_own(Path::new("/run/other.sock"), Some(90));
    kept.chain(Chain::Bandwidth);
    let mut expected = written;
    expected["plugins"][1]["socket"] = json!("/run/other.sock");
    expected["plugins"][1]["timeout"] = json!(90);
    let bandwidth = json!({"type": "bandwidth", "capabilities": {"bandwidth": true}});
    expected["plugins"].as_array_mut().unwrap().push(bandwidth);
    assert_eq!(value(&kept), expected);
    // Back at its default the socket need not be named.
    kept.set_own(Path::new(DEFAULT_SOCKET), None);
    assert_eq!(value(&kept)["plugins"][1].get("socket"), None);
    kept.check().unwrap();
}

#[test]
fn only_versions_that_every_plugin_knows_are_listed() {
    let chosen = |chained: &[Chained]| {
        let mut list = Conflist::new();
        defaults(&mut list);
        let notes = list.choose_versions(None, chained).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        list.check().unwrap();
        (list.0["cniVersion"].clone(), list.0["cniVersions"].clone())
    };
    let only = |version: &str| (json!(version), json!([version]));
    let both = (json!("1.0.0"), json!(["1.0.0", "1.1.0"]));
    assert_eq!(chosen(&[]), both);
    assert_eq!(chosen(&[knows("portmap", &NEW)]), both);
    assert_eq!(chosen(&[knows("portmap", &OLD)]), only("1.0.0"));
    assert_eq!(chosen(&[knows("a", &NEW), knows("b", &OLD)]), only("1.0.0"));
    assert_eq!(chosen(&[knows("ancient", &["0.2.0", "0.3.1"])]), only("0.3.1"));
    assert_eq!(chosen(&[silent("portmap")]), only("1.0.0"));
    assert_eq!(chosen(&[knows("strange", &["1.1.0"])]), only("1.1.0"));
    let none = Conflist::new().choose_versions(None, &[knows("x", &["0.1.0"])]).unwrap_err();
    assert!(none.0.contains("x knows 0.1.0"), "{none}");
}

#[test]
fn a_version_that_was_asked_for_is_the_only_one() {
    let mut list = Conflist::new();
    defaults(&mut list);
    list.choose_versions(None, &[]).unwrap();
    list.choose_versions(Some(Version::V1_0_0), &[]).unwrap();
    assert_eq!((list.versions(), list.0.get("cniVersions")), (vec!["1.0.0".to_owned()], None));
    // The next installation, which is not told, leaves it so.
    list.choose_versions(None, &[knows("portmap", &NEW)]).unwrap();
    assert_eq!(list.versions(), ["1.0.0"]);
    // A plugin that does not know it would fail every pod.
    let refused = list.choose_versions(Some(Version::V1_1_0), &[knows("portmap", &OLD)]);
    let refused = refused.unwrap_err().0;
    assert!(refused.contains("portmap") && refused.contains("--cni-version"), "{refused}");
}

#[test]
fn a_list_that_a_chained_plugin_does_not_understand_is_mended_and_said() {
    // What was written before plugins were asked: a chained portmap of 1.0.0 fails STATUS.
    let mut broken = list(&json!({
        "cniVersion": "1.0.0", "cniVersions": ["1.0.0", "1.1.0"], "name": "fairlead",
        "plugins": [{"type": "fairlead-cni"}, {"type": "portmap"}],
    }));
    broken.choose_versions(None, &[knows("portmap", &OLD)]).unwrap();
    assert_eq!(broken.versions(), ["1.0.0"]);
    // When the plugin is replaced by a later one, the later version is there again.
    broken.choose_versions(None, &[knows("portmap", &NEW)]).unwrap();
    assert_eq!(broken.versions(), ["1.0.0", "1.1.0"]);

    let mut pinned = list(&json!({
        "cniVersion": "1.1.0", "plugins": [{"type": "fairlead-cni"}, {"type": "portmap"}],
    }));
    let notes = pinned.choose_versions(None, &[knows("portmap", &OLD)]).unwrap();
    assert!(notes[0].contains("1.1.0") && notes[0].contains("1.0.0"), "{notes:?}");
    assert_eq!(pinned.versions(), ["1.0.0"]);
}

#[test]
fn a_list_that_our_plugin_would_refuse_is_not_written() {
    for plugins in [
        json!([{"type": "fairlead-cni", "timeout": "soon"}]),
        json!([{"type": "fairlead-cni", "ipam": {"type": "host-local"}}]),
    ] {
        let mut list = list(&json!({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}));
        defaults(&mut list);
        list.check().unwrap_err();
    }
}
