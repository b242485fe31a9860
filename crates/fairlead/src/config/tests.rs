use std::path::Path;
use std::time::Duration;

use super::types::ObjectName;
use super::*;

fn flags(given: &[(&'static str, &str)], file: Option<&Path>) -> ConfigFlags {
    ConfigFlags {
        file: file.map(Path::to_owned),
        given: given.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
    }
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// An empty file named on purpose, so that the machine's own default file plays no part.
fn nothing() -> tempfile::NamedTempFile {
    file("")
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let file = file("slow: 1s\ngrace: 1s\nworkers: 1\n");
    let flags = flags(&[("slow", "3s")], Some(file.path()));
    let env = env(&[("FAIRLEAD_SLOW", "2s"), ("FAIRLEAD_GRACE", "2s")]);
    let resolved = Sources { flags: &flags, env }.resolve().unwrap();
    assert_eq!(resolved.config.slow, Duration::from_secs(3));
    assert_eq!(resolved.config.grace, Duration::from_secs(2));
    assert_eq!(resolved.config.workers, 1);
    let from: BTreeMap<_, _> = resolved.rows().into_iter().map(|r| (r.key, r.from)).collect();
    assert_eq!(from["slow"], "--slow");
    assert_eq!(from["grace"], "FAIRLEAD_GRACE");
    assert_eq!(from["workers"], file.path().display().to_string());
    assert_eq!(from["admin.listen"], "default");
}

#[test]
fn every_problem_is_told_at_once_with_its_key_and_what_is_allowed() {
    let file = file("admin:\n  lisen: x\nworkers: 0\nslow:\n  - 1\nlog: {level: ~}\n");
    let flags = flags(&[("admin.listen", "localhost")], Some(file.path()));
    let env = env(&[("FAIRLEAD_LOG_FORMAT", "xml")]);
    let problems = Sources { flags: &flags, env }.resolve().unwrap_err();
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let all = told.join("\n");
    assert_eq!(problems.len(), 6, "{all}");
    assert!(all.contains("admin.lisen") && all.contains("did you mean admin.listen?"), "{all}");
    assert!(all.contains("workers") && all.contains("a whole number from 1 to 1024"), "{all}");
    assert!(all.contains("slow") && all.contains("found a list"), "{all}");
    assert!(all.contains("log.level") && all.contains("found nothing"), "{all}");
    assert!(all.contains("FAIRLEAD_LOG_FORMAT") && all.contains("auto, human or json"), "{all}");
    assert!(all.contains("--admin-listen") && all.contains("an address and port"), "{all}");
}

#[test]
fn beyond_loopback_needs_tls_from_files_or_of_our_own_making() {
    let empty = nothing();
    let resolve = |given: &[(&'static str, &str)]| {
        let given = flags(given, Some(empty.path()));
        Sources { flags: &given, env: env(&[]) }.resolve()
    };
    for (listen, cert, key, tls) in [
        ("admin.listen", "admin.tls-cert", "admin.tls-key", "admin.tls"),
        ("api.listen", "api.tls-cert", "api.tls-key", "api.tls"),
    ] {
        for address in ["0.0.0.0:7682", "*:7682"] {
            let problems = resolve(&[(listen, address)]).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].message.contains(&format!("{tls} to auto")), "{problems:?}");
            assert!(resolve(&[(listen, address), (cert, "c"), (key, "k")]).is_ok());
            assert!(resolve(&[(listen, address), (tls, "auto")]).is_ok());
        }
        let both = resolve(&[(tls, "auto"), (cert, "c"), (key, "k")]).unwrap_err();
        assert!(both[0].to_string().contains("auto makes a certificate"), "{both:?}");
        assert!(resolve(&[(cert, "c")]).unwrap_err()[0].message.contains("beside it"));
    }
}

#[test]
fn every_address_is_one_for_every_listener() {
    let empty = nothing();
    for key in ["admin.listen", "api.listen", "agents.listen", "admission.listen"] {
        let given = [(key, "*:1234"), ("admin.tls", "auto"), ("api.tls", "auto")];
        let given = flags(&given, Some(empty.path()));
        let resolved = Sources { flags: &given, env: env(&[]) }.resolve().unwrap();
        let shown = resolved.rows().into_iter().find(|row| row.key == key).unwrap();
        assert_eq!(shown.value, "*:1234");
    }
}

#[test]
fn whose_pods_are_agents_is_a_service_account_of_a_namespace() {
    let empty = nothing();
    let take = |value| {
        let given = flags(&[("agents.service-account", value)], Some(empty.path()));
        let resolved = Sources { flags: &given, env: env(&[]) }.resolve();
        resolved.ok().map(|resolved| resolved.config.agents.service_account)
    };
    assert_eq!(take("auto"), Some(ServiceAccount::Auto));
    assert_eq!(take("none"), Some(ServiceAccount::None));
    let name = ObjectName { namespace: "tools".to_owned(), name: "agent".to_owned() };
    assert_eq!(take("tools/agent"), Some(ServiceAccount::Named(name)));
    for wrong in ["agent", "/agent", "tools/", "a/b/c", ""] {
        assert_eq!(take(wrong), None, "{wrong}");
    }
}

#[test]
fn a_file_asked_for_must_be_there_and_the_default_one_need_not() {
    let given = flags(&[], Some(Path::new("/nonexistent/fairlead.yaml")));
    let problems = Sources { flags: &given, env: env(&[]) }.resolve().unwrap_err();
    assert_eq!(problems[0].message, "no such file");
    assert!(problems[0].to_string().starts_with("/nonexistent/fairlead.yaml: "));
    let mut draft = Draft::default();
    draft.take_file((PathBuf::from("/nonexistent/fairlead.yaml"), false));
    assert!(draft.problems.is_empty());
}

#[test]
fn what_kubernetes_puts_into_the_environment_is_not_ours() {
    let empty = nothing();
    let given = flags(&[], Some(empty.path()));
    let env = env(&[("FAIRLEAD_SERVICE_HOST", "10.0.0.1"), ("FAIRLEAD_PORT", "tcp://10.0.0.1")]);
    assert!(Sources { flags: &given, env }.resolve().is_ok());
}

#[test]
fn what_is_not_yaml_or_not_settings_is_a_sentence() {
    for (text, part) in [("{", "not valid YAML"), ("- a\n- b\n", "expected settings such as")] {
        let file = file(text);
        let given = flags(&[], Some(file.path()));
        let problems = Sources { flags: &given, env: env(&[]) }.resolve().unwrap_err();
        assert!(problems[0].to_string().contains(part), "{problems:?}");
    }
}

#[test]
fn what_is_shown_is_accepted_again() {
    let config = Config::default();
    for setting in settings() {
        let shown = (setting.show)(&config);
        let mut again = config.clone();
        let accepted = (setting.take)(&mut again, &shown).is_some();
        assert!(accepted, "{}: {shown:?}", setting.key);
        assert_eq!((setting.show)(&again), shown, "{}", setting.key);
    }
}

#[test]
fn a_file_that_is_not_set_is_written_as_it_is_shown() {
    let empty = nothing();
    let given = flags(&[("admin.tls-cert", "-")], Some(empty.path()));
    let resolved = Sources { flags: &given, env: env(&[]) }.resolve().unwrap();
    assert_eq!(resolved.config.admin.tls_cert, None);
}

#[test]
fn a_setting_has_one_key_and_its_help_is_one_line() {
    let keys: std::collections::BTreeSet<_> = settings().iter().map(|s| s.key).collect();
    assert_eq!(keys.len(), settings().len());
    let namespace = settings().iter().find(|s| s.key == "fleet.secrets-namespace").unwrap();
    assert_eq!(
        (namespace.flag(), namespace.env(), namespace.help),
        (
            "fleet-secrets-namespace".to_owned(),
            "FAIRLEAD_FLEET_SECRETS_NAMESPACE".to_owned(),
            "Namespace in which those Secrets are looked for, fleet.namespace unless said; `all` looks in \
             every one: whoever may write a Secret somewhere then offers clusters",
        )
    );
    assert_eq!(namespace.expected, "all, or the name of a namespace: at most 63 of a-z, 0-9 and -");
}

#[test]
fn the_webhook_is_reached_in_one_way_that_can_be() {
    let empty = nothing();
    let resolve = |given: &[(&'static str, &str)]| {
        let flags = flags(given, Some(empty.path()));
        Sources { flags: &flags, env: BTreeMap::new() }.resolve()
    };
    let service = ("admission.service", "fairlead/webhook");
    let url = ("admission.url", "https://hook.example.com:7683/");
    let told = |given: &[(&'static str, &str)]| {
        let problems = resolve(given).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert!(told(&[service]).contains("needs store=kubernetes"));
    assert!(told(&[service, url, ("store", "kubernetes")]).contains("set one"));
    assert!(told(&[("admission.clusters", "prod")]).contains("needs admission.url"));
    assert!(told(&[("admission.url", "http://hook")]).contains("https, a host"));
    assert!(told(&[("admission.timeout", "1500ms")]).contains("whole seconds"));
    assert!(told(&[("admission.controllers", "argo/")]).contains("NAMESPACE/NAME"));
    assert!(told(&[("admission.exempt-sidecars", "yes")]).contains("true or false"));

    let config = resolve(&[service, ("store", "kubernetes")]).unwrap().config.admission;
    let Service { namespace, name, port } = config.service.unwrap();
    assert_eq!((namespace.as_str(), name.as_str(), port), ("fairlead", "webhook", 443));
    let config = resolve(&[url, ("admission.clusters", "a, b")]).unwrap().config.admission;
    let url = config.url.unwrap();
    assert_eq!(
        (url.base.as_str(), url.host.as_str()),
        ("https://hook.example.com:7683", "hook.example.com")
    );
    assert_eq!(config.clusters, ["a", "b"]);
}

#[test]
fn controllers_of_an_agent_have_a_host_and_a_port_each() {
    let empty = nothing();
    let take = |value| {
        let given = flags(&[("guard.controllers", value)], Some(empty.path()));
        let resolved = Sources { flags: &given, env: env(&[]) }.resolve();
        resolved.ok().map(|resolved| resolved.config.sense.controllers)
    };
    assert_eq!(take("none"), Some(Vec::new()));
    let two = ["fairlead.example.com:7681", "[fd00::1]:7681"].map(String::from);
    assert_eq!(take("fairlead.example.com:7681, [fd00::1]:7681"), Some(two.into()));
    for wrong in ["fairlead.example.com", ":7681", "a:0", "a:port", ""] {
        assert_eq!(take(wrong), None, "{wrong}");
    }
}

#[test]
fn a_routing_table_of_the_kernel_is_none_of_ours() {
    let empty = nothing();
    let take = |value| {
        let given = flags(&[("net.export-table", value)], Some(empty.path()));
        let resolved = Sources { flags: &given, env: env(&[]) }.resolve();
        resolved.ok().map(|resolved| resolved.config.net.export_table)
    };
    assert_eq!(take("none"), Some(None));
    assert_eq!(take("4294967295"), Some(Some(u32::MAX)));
    for wrong in ["0", "253", "254", "255", "4294967296", "main"] {
        assert_eq!(take(wrong), None, "{wrong}");
    }
}
