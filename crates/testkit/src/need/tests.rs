use std::process::Output;

use super::*;

const VICTIM: &str = "TESTKIT_VICTIM";

/// Runs the test below in a process of its own, on a machine that has no tools at all.
fn run_bare(ci: &str) -> Output {
    let test = "need::tests::a_test_that_cannot_run_says_so_and_fails_only_in_ci";
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .envs([(VICTIM, "yes"), ("CI", ci), ("PATH", "/nonexistent")])
        .output()
        .unwrap()
}

#[test]
fn a_test_that_cannot_run_says_so_and_fails_only_in_ci() {
    if env::var_os(VICTIM).is_some() {
        requires!(netns);
        unreachable!("network namespaces without ip");
    }

    let skipped = run_bare("");
    let said = String::from_utf8(skipped.stderr).unwrap();
    let sentence = "SKIPPED: testkit::need::tests::\
        a_test_that_cannot_run_says_so_and_fails_only_in_ci: ";
    assert!(skipped.status.success(), "{said}");
    assert!(said.contains(sentence), "{said}");

    let failed = run_bare("true");
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(!failed.status.success());
    assert!(said.contains("in CI every test runs"), "{said}");
}

#[test]
fn an_async_test_is_named_without_its_closures() {
    assert_eq!(test_name("a::tests::name::{{closure}}::{{closure}}::here"), "a::tests::name");
    assert_eq!(test_name("a::tests::name::here"), "a::tests::name");
}
