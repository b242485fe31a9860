use std::env;
use std::process::Stdio;
use std::thread;

use super::*;
use crate::requires;

const VICTIM: &str = "TESTKIT_VICTIM";

/// A refusal proves that the packet went there and the answer came back.
fn reaches(host: &Host, address: &str) -> bool {
    let dial = format!("exec 3<>/dev/tcp/{address}/9");
    let output = host.command("timeout").args(["5", "bash", "-c", &dial]).output().unwrap();
    String::from_utf8_lossy(&output.stderr).contains("Connection refused")
}

#[test]
fn hosts_reach_each_other_only_over_a_link() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| sandbox.host(name));
    sandbox.link((&a, "10.9.0.1/24"), (&b, "10.9.0.2/24"));
    sandbox.link((&b, "fd09::1/64"), (&c, "fd09::2/64"));

    assert!(reaches(&a, "10.9.0.2"));
    assert!(reaches(&b, "10.9.0.1"));
    assert!(reaches(&c, "fd09::1"));
    assert!(!reaches(&c, "10.9.0.1"));
    assert!(reaches(&c, "127.0.0.1"));
}

#[test]
fn sandboxes_with_the_same_hosts_and_addresses_do_not_meet() {
    requires!(netns);
    let build = || {
        let sandbox = Sandbox::new();
        let [a, b] = ["a", "b"].map(|name| sandbox.host(name));
        sandbox.link((&a, "10.9.0.1/24"), (&b, "10.9.0.2/24"));
        assert!(reaches(&a, "10.9.0.2"));
        a.netns()
    };
    let netns: Vec<_> = thread::scope(|scope| {
        let builders: Vec<_> = (0..4).map(|_| scope.spawn(build)).collect();
        builders.into_iter().map(|builder| builder.join().unwrap()).collect()
    });
    assert!(netns.iter().all(|netns| !netns.exists()), "{netns:?}");
}

#[test]
fn a_test_that_panics_leaves_no_namespace_and_no_process() {
    requires!(netns);
    if env::var_os(VICTIM).is_some() {
        let sandbox = Sandbox::new();
        let host = sandbox.host("a");
        let stay = "sleep 1000 >/dev/null 2>&1 & echo $!";
        let sleeper = host.command("sh").args(["-c", stay]).output().unwrap().stdout;
        let sleeper = String::from_utf8(sleeper).unwrap();
        println!("victim {} {}", host.netns().display(), sleeper.trim());
        panic!("as planned");
    }

    let victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "sandbox::tests::a_test_that_panics_leaves_no_namespace_and_no_process"])
        .args(["--nocapture"])
        .env(VICTIM, "yes")
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(victim.stdout).unwrap();
    let left = said.lines().find(|line| line.starts_with("victim ")).expect(&said);
    let [_, netns, sleeper] = left.split(' ').collect::<Vec<_>>().try_into().unwrap();

    assert!(!victim.status.success());
    assert!(!Path::new(netns).exists());
    // A zombie, for whom nobody waits, has no command line.
    assert!(fs::read(format!("/proc/{sleeper}/cmdline")).unwrap_or_default().is_empty());
}

#[test]
fn what_a_dead_process_left_is_removed_by_the_next_sandbox() {
    requires!(netns);
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let stale = format!("{PREFIX}{}-0-a", dead.id());
    ip(&["netns", "add", &stale]);

    let _sandbox = Sandbox::new();
    assert!(!Path::new(NETNS).join(stale).exists());
}
