use std::collections::HashMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::wire::{AttachmentKey, Pod};

fn environment(pairs: &[(&str, &str)]) -> Result<Invocation, Error> {
    let variables: HashMap<&str, &str> = pairs.iter().copied().collect();
    Invocation::parse(|name| variables.get(name).map(OsString::from))
}

fn configuration(config: &Value, command: Command) -> Result<Configuration, Error> {
    Configuration::parse(config.to_string().as_bytes(), command)
}

fn key(container: &str, ifname: &str) -> AttachmentKey {
    AttachmentKey { container: container.to_owned(), ifname: ifname.to_owned() }
}

const ADD: [(&str, &str); 4] = [
    ("CNI_COMMAND", "ADD"),
    ("CNI_CONTAINERID", "c1"),
    ("CNI_NETNS", "/run/netns/c1"),
    ("CNI_IFNAME", "eth0"),
];

#[test]
fn an_add_needs_a_container_a_namespace_and_an_interface() {
    let add = environment(&ADD).unwrap();
    let netns = PathBuf::from("/run/netns/c1");
    assert_eq!(add, Invocation::Add { key: key("c1", "eth0"), netns, args: Args::default() });

    let error = environment(&[("CNI_COMMAND", "ADD")]).unwrap_err();
    assert_eq!(error.code, Code::InvalidEnvironment);
    for variable in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
        assert!(error.msg.contains(variable), "{error}");
    }
}

#[test]
fn what_takes_down_needs_no_namespace_and_what_is_about_the_node_needs_nothing() {
    let del = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0")];
    let args = Args::default();
    assert_eq!(environment(&del).unwrap(), Invocation::Del { key: key("c1", "eth0"), args });
    assert_eq!(environment(&[("CNI_COMMAND", "GC")]).unwrap(), Invocation::Gc);
    assert_eq!(environment(&[("CNI_COMMAND", "STATUS")]).unwrap(), Invocation::Status);
    assert_eq!(environment(&[("CNI_COMMAND", "VERSION")]).unwrap(), Invocation::Version);
    for command in ["", "add", "REMOVE"] {
        let error = environment(&[("CNI_COMMAND", command)]).unwrap_err();
        assert!(error.msg.contains("CNI_COMMAND") && error.details.contains("STATUS"), "{error}");
    }
}

#[test]
fn names_that_could_be_paths_or_are_no_interfaces_are_refused() {
    let with = |variable: &str, value: &str| {
        let changed = ADD.map(|(key, old)| (key, if key == variable { value } else { old }));
        environment(&changed).map_err(|error| (error.code, error.msg))
    };
    for id in ["../etc", "-c", "c/1", "c 1", "ü"] {
        let (code, msg) = with("CNI_CONTAINERID", id).unwrap_err();
        assert_eq!(code, Code::InvalidEnvironment);
        assert!(msg.contains("CNI_CONTAINERID"), "{msg}");
    }
    for ifname in [".", "..", "eth/0", "eth:0", "eth 0", "sixteen-letters0"] {
        let (code, msg) = with("CNI_IFNAME", ifname).unwrap_err();
        assert_eq!(code, Code::InvalidEnvironment);
        assert!(msg.contains("CNI_IFNAME"), "{msg}");
    }
    assert!(with("CNI_CONTAINERID", "k8s.io-web_1").is_ok());
}

#[test]
fn arguments_name_the_pod_in_any_order() {
    let mut pairs = [
        "K8S_POD_NAMESPACE=shop",
        "K8S_POD_NAME=web-0",
        "K8S_POD_UID=u1",
        "K8S_POD_INFRA_CONTAINER_ID=c1",
        "IgnoreUnknown=1",
        "MORE=x",
    ];
    let uid = Some("u1".to_owned());
    let pod = Pod { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid };
    for _ in 0..pairs.len() {
        pairs.rotate_left(1);
        assert_eq!(Args::parse(&pairs.join(";")).unwrap().pod.as_ref(), Some(&pod));
    }
    assert_eq!(Args::parse("").unwrap(), Args::default());
    // A value may have an equals sign of its own.
    assert!(Args::parse("IgnoreUnknown=true;A=b=c").is_ok());
}

#[test]
fn an_argument_that_would_not_be_heeded_is_refused() {
    for args in ["IP=10.0.0.7", "K8S_POD_NAME", "IgnoreUnknown=maybe", "IgnoreUnknown=0;X=1"] {
        let error = Args::parse(args).unwrap_err();
        assert_eq!(error.code, Code::InvalidEnvironment, "{args}");
        assert!(error.msg.contains("CNI_ARGS"), "{error}");
    }
}

#[test]
fn each_command_belongs_to_versions() {
    let previous = json!({});
    for version in Version::ALL {
        let config = json!({
            "cniVersion": version.name(), "name": "n", "type": "fairlead-cni",
            "prevResult": previous, "cni.dev/valid-attachments": [],
        });
        let allowed = |command| match configuration(&config, command) {
            Ok(parsed) => {
                assert_eq!(parsed.version, version);
                true
            }
            Err(error) => {
                assert_eq!(error.code, Code::IncompatibleVersion);
                false
            }
        };
        assert!(allowed(Command::Add) && allowed(Command::Del));
        assert_eq!(allowed(Command::Check), version >= Version::V0_4_0);
        assert_eq!(allowed(Command::Gc), version >= Version::V1_1_0);
        assert_eq!(allowed(Command::Status), version >= Version::V1_1_0);
    }
    for version in [json!("0.2.0"), json!("1.2.0"), json!("2.0.0"), json!("x")] {
        let error = configuration(&json!({"cniVersion": version, "name": "n"}), Command::Add);
        let error = error.unwrap_err();
        assert_eq!(error.code, Code::IncompatibleVersion);
        assert!(error.details.contains("1.1.0"), "{error}");
    }
    // The first version had no such field.
    let error = configuration(&json!({"name": "n"}), Command::Add).unwrap_err();
    assert_eq!(error.code, Code::IncompatibleVersion);
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_what_to_do() {
    let with = |key: &str, value: Value, command| {
        let mut config = json!({"cniVersion": "1.1.0", "name": "n", "prevResult": {}});
        config[key] = value;
        configuration(&config, command).map_err(|error| error.code)
    };
    assert_eq!(Configuration::parse(b"{", Command::Add).unwrap_err().code, Code::Decoding);
    assert_eq!(Configuration::parse(b"[]", Command::Add).unwrap_err().code, Code::Decoding);
    for (key, value) in [
        ("name", json!("")),
        ("name", json!(7)),
        ("name", json!("../n")),
        ("pool", json!(["a"])),
        ("socket", json!(1)),
        ("timeout", json!("soon")),
        ("timeout", json!(0)),
        ("timeout", json!(1e9)),
        ("timeout", json!(-1)),
        ("prevResult", json!([])),
        ("prevResult", json!({"ips": {}})),
        ("dns", json!("8.8.8.8")),
    ] {
        assert_eq!(
            with(key, value.clone(), Command::Add),
            Err(Code::InvalidConfiguration),
            "{key} {value}"
        );
    }
    // CHECK has nothing to compare with; GC must not take silence for "none".
    assert_eq!(with("prevResult", Value::Null, Command::Check), Err(Code::InvalidConfiguration));
    assert_eq!(with("x", Value::Null, Command::Gc), Err(Code::InvalidConfiguration));
    assert!(with("cni.dev/valid-attachments", Value::Null, Command::Gc).is_ok());
}

#[test]
fn a_field_that_would_not_be_heeded_stops_an_add_and_nothing_else() {
    for (key, value) in [("ipam", json!({"type": "host-local"})), ("ipMasq", json!(true))] {
        let mut config = json!({"cniVersion": "1.0.0", "name": "n"});
        config[key] = value.clone();
        let error = configuration(&config, Command::Add).unwrap_err();
        assert_eq!(error.code, Code::UnsupportedField);
        assert!(error.msg.contains(key), "{error}");
        assert!(configuration(&config, Command::Del).is_ok());
    }
    let harmless = json!({"cniVersion": "1.0.0", "name": "n", "ipMasq": false, "ipam": {},
        "runtimeConfig": {"portMappings": [], "ips": []}, "args": {"any": 1}, "unknown": true});
    assert!(configuration(&harmless, Command::Add).is_ok());
}

#[test]
fn addresses_are_chosen_by_the_runtime_or_else_by_annotations() {
    let fixed = |runtime: Value| {
        let config = json!({"cniVersion": "1.0.0", "name": "n", "runtimeConfig": runtime});
        configuration(&config, Command::Add).map(|config| config.fixed)
    };
    let annotations = json!({ANNOTATIONS: {
        FIXED_ADDRESSES: "10.64.0.5, fd64::5", FIXED_MAC: "02:00:5e:10:00:01", "other": "x",
    }});
    let chosen = fixed(annotations.clone()).unwrap();
    assert_eq!(chosen.addresses, ["10.64.0.5", "fd64::5"].map(|it| it.parse::<IpAddr>().unwrap()));
    assert_eq!(chosen.mac, Some([2, 0, 0x5e, 0x10, 0, 1]));
    let mut both = annotations;
    (both["ips"], both["mac"]) = (json!(["10.64.0.7/24"]), json!("06-00-00-00-00-09"));
    let chosen = fixed(both).unwrap();
    assert_eq!(chosen.addresses, ["10.64.0.7".parse::<IpAddr>().unwrap()]);
    assert_eq!(chosen.mac, Some([6, 0, 0, 0, 0, 9]));
    assert!(fixed(json!({"ips": [], "mac": ""})).unwrap().is_none());
    for wrong in [
        json!({"ips": ["ten"]}),
        json!({"ips": [7]}),
        json!({"ips": ["10.64.0.5", "10.64.0.6"]}),
        json!({"mac": "01:00:00:00:00:00"}),
        json!({"mac": "00:00:00:00:00:00"}),
        json!({"mac": "02:00"}),
        json!({ANNOTATIONS: {FIXED_MAC: "here"}}),
    ] {
        let error = fixed(wrong.clone()).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfiguration, "{wrong}");
    }
}

#[test]
fn what_is_ours_in_a_configuration_is_read() {
    let config = json!({"cniVersion": "1.1.0", "name": "n", "pool": "fast",
        "socket": "/run/x.sock", "timeout": 2.5, "dns": {"nameservers": ["10.0.0.10"]},
        "cni.dev/attachments": [{"containerID": "old", "ifname": "eth0"}],
        "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]});
    let parsed = configuration(&config, Command::Gc).unwrap();
    assert_eq!(parsed.pool.as_deref(), Some("fast"));
    assert_eq!(parsed.socket, PathBuf::from("/run/x.sock"));
    assert_eq!(parsed.timeout, Duration::from_millis(2500));
    assert_eq!(parsed.dns.nameservers, ["10.0.0.10"]);
    assert_eq!(parsed.valid, [key("c1", "eth0")]);
    let plain = configuration(&json!({"cniVersion": "1.1.0", "name": "n"}), Command::Add).unwrap();
    assert_eq!((plain.socket, plain.timeout), (PathBuf::from(DEFAULT_SOCKET), DEFAULT_TIMEOUT));
}

fn success() -> Success {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let ip = |own: &str, gateway: &str| Ip {
        address: Prefix::host(address(own)),
        gateway: Some(address(gateway)),
        interface: 1,
    };
    let route = |text: &str, gateway: &str| Route {
        destination: Prefix { address: address(text), length: 0 },
        gateway: Some(address(gateway)),
    };
    let interface = |name: &str, sandbox: Option<&str>| Interface {
        name: name.to_owned(),
        mac: "02:00:00:00:00:01".to_owned(),
        mtu: 1450,
        sandbox: sandbox.map(str::to_owned),
    };
    Success {
        interfaces: vec![interface("flx", None), interface("eth0", Some("/run/netns/c1"))],
        ips: vec![ip("10.64.0.7", "169.254.1.1"), ip("fd64::7", "fe80::1")],
        routes: vec![route("0.0.0.0", "169.254.1.1"), route("::", "fe80::1")],
        dns: Dns::default(),
    }
}

#[test]
fn a_result_is_rendered_as_its_version_has_it() {
    for version in Version::ALL {
        let mut expected = json!({
            "cniVersion": version.name(),
            "interfaces": [
                {"name": "flx", "mac": "02:00:00:00:00:01"},
                {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/c1"},
            ],
            "ips": [
                {"address": "10.64.0.7/32", "gateway": "169.254.1.1", "interface": 1},
                {"address": "fd64::7/128", "gateway": "fe80::1", "interface": 1},
            ],
            "routes": [
                {"dst": "0.0.0.0/0", "gw": "169.254.1.1"},
                {"dst": "::/0", "gw": "fe80::1"},
            ],
        });
        if version < Version::V1_0_0 {
            expected["ips"][0]["version"] = "4".into();
            expected["ips"][1]["version"] = "6".into();
        }
        if version >= Version::V1_1_0 {
            expected["interfaces"][0]["mtu"] = 1450.into();
            expected["interfaces"][1]["mtu"] = 1450.into();
        }
        assert_eq!(success().render(version, None), expected);
    }
}

#[test]
fn what_plugins_before_made_is_passed_on_and_still_points_at_itself() {
    let previous = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "dummy0", "pciID": "0000:00:1f.6"}],
        "ips": [{"address": "192.0.2.1/24", "interface": 0}],
        "routes": null,
        "dns": {"domain": "example.org"},
        "theirs": {"kept": true},
    });
    let Value::Object(previous) = previous else { unreachable!() };
    let result = success().render(Version::V1_1_0, Some(&previous));
    assert_eq!(result["interfaces"][0], previous["interfaces"][0]);
    assert_eq!(result["ips"][0], previous["ips"][0]);
    assert_eq!(result["ips"][1]["interface"], 2);
    assert_eq!(result["interfaces"][2]["name"], "eth0");
    assert_eq!(result["routes"].as_array().unwrap().len(), 2);
    assert_eq!(result["dns"], previous["dns"]);
    assert_eq!(result["theirs"], previous["theirs"]);
    let own = Success { dns: Dns { domain: "own".to_owned(), ..Dns::default() }, ..success() };
    assert_eq!(own.render(Version::V1_1_0, Some(&previous))["dns"], json!({"domain": "own"}));
}

#[test]
fn version_answers_whatever_it_is_asked_with() {
    let all = json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    let answer = |stdin: &str| Version::report(stdin.as_bytes());
    assert_eq!(
        answer(r#"{"cniVersion": "0.4.0"}"#),
        json!({"cniVersion": "0.4.0", "supportedVersions": all})
    );
    for stdin in ["", "{", r#"{"cniVersion": "9.9.9"}"#, r#"{"cniVersion": 1}"#] {
        assert_eq!(answer(stdin), json!({"cniVersion": "1.1.0", "supportedVersions": all}));
    }
}

#[test]
fn an_error_is_rendered_with_its_number() {
    let error = Error::new(Code::TryAgainLater, "busy").details("wait");
    let rendered = json!({"cniVersion": "0.4.0", "code": 11, "msg": "busy", "details": "wait"});
    assert_eq!(error.render(Version::V0_4_0), rendered);
    let terse = Error::new(Code::NotAvailable, "no").render(Version::V1_1_0);
    assert_eq!(terse, json!({"cniVersion": "1.1.0", "code": 50, "msg": "no"}));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-zA-Z]{1,8}", inner, 0..4).prop_map(|m| json!(m)),
        ]
    })
}

/// Anything under keys that mean something, and some that mean nothing.
fn config_value() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "cniVersion",
        "name",
        "type",
        "pool",
        "socket",
        "timeout",
        "dns",
        "prevResult",
        "ipam",
        "ipMasq",
        "runtimeConfig",
        "cni.dev/valid-attachments",
        "cni.dev/attachments",
        "args",
        "x",
    ]);
    let well = prop::sample::select(vec![
        json!("1.1.0"),
        json!("0.3.1"),
        json!("n"),
        json!({"ips": []}),
        json!({"ips": [{"address": 1}]}),
        json!([{"containerID": "c", "ifname": "eth0"}]),
        json!(1.5),
        json!(null),
    ]);
    let value = prop_oneof![well, json_value()];
    prop::collection::hash_map(keys, value, 0..10).prop_map(|map| json!(map))
}

proptest! {
    #[test]
    fn no_stdin_breaks_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..256), at in 0..6usize) {
        let _ = Configuration::parse(&bytes, Command::ALL[at]);
        let _ = Version::report(&bytes);
    }

    #[test]
    fn what_parses_is_whole_and_what_does_not_has_a_code(config in config_value(), at in 0..5usize) {
        let command = Command::ALL[at];
        match configuration(&config, command) {
            Ok(parsed) => {
                prop_assert!(is_identifier(&parsed.name));
                prop_assert!(!parsed.timeout.is_zero());
                prop_assert!(command != Command::Check || parsed.previous.is_some());
                let rendered = success().render(parsed.version, parsed.previous.as_ref());
                let ips = rendered["ips"].as_array().unwrap();
                let own = &ips[ips.len() - 1]["interface"];
                let own = usize::try_from(own.as_u64().unwrap()).unwrap();
                prop_assert_eq!(&rendered["interfaces"][own]["name"], "eth0");
                let _ = parsed.previous_addresses();
            }
            Err(error) => prop_assert!(matches!(error.code.number(), 1 | 2 | 7), "{}", error),
        }
    }

    #[test]
    fn no_arguments_break_the_parser(text in "[A-Za-z0-9_=;. -]{0,80}|.{0,40}") {
        if let Err(error) = Args::parse(&text) {
            prop_assert_eq!(error.code, Code::InvalidEnvironment);
        }
    }

    #[test]
    fn a_pod_is_found_among_any_arguments(
        namespace in "[a-z]{1,8}", pod in "[a-z0-9-]{1,8}",
        others in prop::collection::vec("[A-Z]{3,6}=[a-z]{0,4}", 0..5), at in any::<prop::sample::Index>(),
    ) {
        let mut pairs = others;
        for pair in [format!("K8S_POD_NAME={pod}"), format!("K8S_POD_NAMESPACE={namespace}"), "IgnoreUnknown=1".to_owned()] {
            let place = at.index(pairs.len() + 1);
            pairs.insert(place, pair);
        }
        let found = Args::parse(&pairs.join(";")).unwrap().pod;
        prop_assert_eq!(found, Some(Pod { namespace, name: pod, uid: None }));
    }

    #[test]
    fn environments_parse_or_name_what_is_wrong(
        command in prop::sample::select(Command::ALL.to_vec()), container in ".{0,6}", ifname in ".{0,18}", netns in ".{0,6}",
    ) {
        let pairs = [("CNI_COMMAND", command.name()), ("CNI_CONTAINERID", &container), ("CNI_IFNAME", &ifname), ("CNI_NETNS", &netns)];
        match environment(&pairs) {
            Ok(Invocation::Add { key, .. } | Invocation::Check { key, .. } | Invocation::Del { key, .. }) => {
                prop_assert!(is_identifier(&key.container) && (1..=15).contains(&key.ifname.len()));
            }
            Ok(_) => {}
            Err(error) => prop_assert!(error.code == Code::InvalidEnvironment && error.msg.contains("CNI_")),
        }
    }
}
