use std::fs;

use super::*;

const CA: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

fn kubeconfig(text: &str) -> Kubeconfig {
    Kubeconfig::parse(text).unwrap()
}

fn access_in(text: &str, context: &str) -> Result<Access, String> {
    let parsed = kubeconfig(text);
    Merged::new([(Path::new("/etc/kube/config"), &parsed)]).access(context, Trust::Local)
}

const GOOD: &str = r#"
current-context: a
clusters:
- name: one
  cluster: { server: "https://one:6443", tls-server-name: uno, proxy-url: "socks5://p:1080" }
users:
- name: tok
  user: { token: s3cret }
- name: pw
  user: { username: me, password: s3cret }
- name: file
  user: { tokenFile: tok/en }
contexts:
- name: a
  context: { cluster: one, user: tok, namespace: ns }
- name: b
  context: { cluster: one, user: pw }
- name: c
  context: { cluster: one, user: file }
- name: nobody
  context: { cluster: one, user: absent }
- name: nowhere
  context: { cluster: absent, user: tok }
- name: shapeless
  context: { cluster: [1, 2] }
"#;

#[test]
fn a_context_becomes_an_access() {
    let a = access_in(GOOD, "a").unwrap();
    assert_eq!(a.endpoint.address(), "https://one:6443");
    assert_eq!(a.endpoint.tls_server_name.as_deref(), Some("uno"));
    assert_eq!(a.namespace, "ns");
    assert_eq!(a.auth.bearer, Bearer::Token(Redacted("s3cret".to_owned())));
    let c = access_in(GOOD, "c").unwrap();
    assert_eq!(c.auth.bearer, Bearer::TokenFile("/etc/kube/tok/en".into()));
}

#[test]
fn one_bad_entry_is_an_error_of_its_own_contexts_alone() {
    for good in ["a", "b", "c"] {
        assert!(access_in(GOOD, good).is_ok(), "{good}");
    }
    let why = |context| access_in(GOOD, context).unwrap_err();
    assert_eq!(why("nobody"), "its context names the user \"absent\", which is not there");
    assert_eq!(why("nowhere"), "its context names the cluster \"absent\", which is not there");
    assert!(why("shapeless").contains("wrong type"), "{}", why("shapeless"));
}

#[test]
fn no_secret_is_ever_printed_nor_quoted_in_a_sentence() {
    let access = access_in(GOOD, "a").unwrap();
    assert!(!format!("{access:?}").contains("s3cret"));
    let config = kubeconfig(GOOD);
    assert!(!format!("{config:?}").contains("s3cret"));
    let typed = "users: [{name: u, user: {token: {a: s3cret}}}]\nclusters: [{name: c, cluster: \
                 {server: 'https://s'}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]";
    assert!(!access_in(typed, "x").unwrap_err().contains("s3cret"));
    let broken = "users:\n- name: u\n  user: {token: s3cret";
    let why = Kubeconfig::parse(broken).unwrap_err();
    assert!(!why.contains("s3cret") && why.contains("line"), "{why}");
    let proxied = GOOD.replace("socks5://p:1080", "http://user:s3cret@p:1080");
    assert!(!format!("{:?}", access_in(&proxied, "a").unwrap()).contains("s3cret"));
}

#[test]
fn files_are_merged_as_kubectl_does() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("one/config"), dir.path().join("two/config"));
    for path in [&first, &second] {
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(path.parent().unwrap().join("ca.pem"), CA).unwrap();
    }
    let one = kubeconfig(
        "clusters: [{name: c, cluster: {server: 'https://first', certificate-authority: ca.pem}}]\n\
         contexts: [{name: x, context: {cluster: c, user: u}}]",
    );
    let two = kubeconfig(
        "clusters: [{name: c, cluster: {server: 'https://second'}}, {name: d, cluster: {server: \
         'https://d', certificate-authority: ca.pem}}]\n\
         users: [{name: u, user: {token: t}}]\n\
         contexts: [{name: x, context: {cluster: d}}, {name: y, context: {cluster: c}}]",
    );
    let merged = Merged::new([(first.as_path(), &one), (second.as_path(), &two)]);
    let contexts = merged.contexts();
    assert_eq!(contexts, [(first.as_path(), "x"), (second.as_path(), "y")]);
    let x = merged.access("x", Trust::Local).unwrap();
    assert_eq!(x.endpoint.address(), "https://first");
    assert_eq!(x.endpoint.authorities, Some(vec![vec![1, 2, 3]]));
    // A user of the second file for a context of the first.
    assert_eq!(x.auth.bearer, Bearer::Token(Redacted("t".to_owned())));
    let y = merged.access("y", Trust::Local).unwrap();
    assert_eq!(y.endpoint.address(), "https://first");
    fs::remove_file(first.with_file_name("ca.pem")).unwrap();
    let why = merged.access("x", Trust::Local).unwrap_err();
    assert!(why.contains("one/ca.pem cannot be read"), "{why}");
}

#[test]
fn what_was_sent_neither_reads_our_files_nor_runs_our_programs() {
    let with = |user: &str| {
        format!(
            "clusters: [{{name: c, cluster: {{server: 'https://s'}}}}]\n\
             users: [{{name: u, user: {user}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]"
        )
    };
    assert!(sent(&with("{token: t}"), None).is_ok());
    for (user, word) in [
        ("{tokenFile: /etc/shadow}", "tokenFile"),
        ("{client-certificate: /etc/shadow, client-key: k}", "client-certificate"),
        ("{exec: {apiVersion: client.authentication.k8s.io/v1, command: rm}}", "exec"),
    ] {
        let why = sent(&with(user), None).unwrap_err();
        assert!(why.contains(word), "{why}");
    }
    let ca = with("{token: t}").replace("'https://s'", "'https://s', certificate-authority: /ca");
    assert!(sent(&ca, None).unwrap_err().contains("--flatten"));
    assert!(sent(&with("{token: t}"), Some("y")).unwrap_err().contains("no context \"y\""));
}

#[test]
fn addresses_and_plugins_that_cannot_work_are_sentences() {
    let with = |server: &str| GOOD.replace("https://one:6443", server);
    for bad in ["one:6443", "ftp://one", "https://", ""] {
        assert!(access_in(&with(bad), "a").is_err(), "{bad}");
    }
    let proxy = GOOD.replace("socks5://p", "ftp://p");
    assert!(access_in(&proxy, "a").unwrap_err().contains("proxy-url"));
    let exec = |fields: &str| {
        let user = format!("user: {{ exec: {{ command: aws, {fields} }} }}");
        access_in(&GOOD.replace("user: { token: s3cret }", &user), "a")
    };
    let v1 = "apiVersion: client.authentication.k8s.io/v1";
    assert!(exec(v1).is_ok());
    assert!(exec("apiVersion: client.authentication.k8s.io/v1alpha1").unwrap_err().contains("v1"));
    assert!(exec(&format!("{v1}, interactiveMode: Always")).unwrap_err().contains("terminal"));
    let provider = GOOD.replace("token: s3cret", "auth-provider: {name: oidc}");
    assert!(access_in(&provider, "a").unwrap_err().contains("auth-provider"));
}

#[test]
fn a_name_that_yaml_takes_for_something_else_is_still_a_name() {
    let text = |name: &str| {
        format!(
            "clusters: [{{name: {name}, cluster: {{server: 'https://s'}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: '{name}'}}}}]"
        )
    };
    for name in ["y", "no", "on", "true", "123"] {
        assert!(access_in(&text(name), name).is_ok(), "{name}");
    }
}

#[test]
fn what_is_sent_is_bounded_also_when_it_multiplies_itself() {
    assert!(sent(&" ".repeat(MOST_SENT + 1), None).unwrap_err().contains("1 MiB"));
    let mut bomb = "a: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        bomb += &format!("b{level}: &a{level} [{}]\n", [before.as_str(); 9].join(","));
    }
    assert!(sent(&bomb, None).is_err());
}

#[test]
fn of_contexts_with_one_name_the_first_counts_also_across_documents() {
    let text = "contexts:\n- {name: a, context: {cluster: one}}\n- {name: a}\n---\n\
                contexts:\n- {name: b}\n- {name: a}\n";
    let read = kubeconfig(text);
    let names: Vec<_> = read.contexts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(read.contexts[0].1.is_ok());
}
