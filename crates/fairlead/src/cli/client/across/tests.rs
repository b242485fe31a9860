use super::*;

fn cluster(name: &str, code: Option<&str>) -> ClusterOutcome {
    let problem = code.map(|code| Problem {
        code: code.to_owned(),
        detail: "no answer\n  within 5 s".to_owned(),
        ..Problem::default()
    });
    ClusterOutcome {
        name: name.to_owned(),
        ok: problem.is_none(),
        problem,
        ..ClusterOutcome::default()
    }
}

#[test]
fn who_did_not_answer_is_one_line() {
    assert_eq!(missing(&cluster("prod-eu", Some("unreachable"))), "prod-eu: no answer within 5 s");
    let silent = ClusterOutcome { name: "a".to_owned(), ..ClusterOutcome::default() };
    assert_eq!(missing(&silent), "a: did not answer");
}

#[test]
fn some_missing_is_one_and_all_missing_is_two() {
    let (up, down) = (cluster("a", None), cluster("b", Some("too-late")));
    assert_eq!(exit_code(&[]), ExitCode::SUCCESS);
    assert_eq!(exit_code(&[up.clone(), up.clone()]), ExitCode::SUCCESS);
    assert_eq!(exit_code(&[up, down.clone()]), ExitCode::from(NO));
    assert_eq!(exit_code(&[down.clone(), down]), ExitCode::from(FAILED));
}

#[test]
fn progress_names_few_and_counts_the_rest() {
    let waiting =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    assert_eq!(
        waited_for(3, Some(4), &waiting(&["prod-eu"])),
        "3 of 4 clusters answered, waiting for prod-eu"
    );
    assert_eq!(
        waited_for(0, Some(5), &waiting(&["a", "b", "c", "d", "e"])),
        "0 of 5 clusters answered, waiting for a, b, c and 2 more"
    );
    assert_eq!(waited_for(2, Some(2), &[]), "2 of 2 clusters answered");
}

#[tokio::test]
async fn a_cluster_that_fails_holds_up_no_other() {
    let names: Vec<String> = (0..40).map(|i| format!("c{i}")).collect();
    let mut done = Vec::new();
    let code = each(
        &names,
        async |name: &str| match name {
            "c7" => Err(crate::output::Failure("broken".to_owned()).into()),
            _ => Ok(name.to_owned()),
        },
        |name, value| {
            assert_eq!(name, value);
            done.push(value);
            Ok(0)
        },
    )
    .await;
    assert_eq!(code.unwrap(), ExitCode::from(FAILED));
    assert_eq!(done.len(), 39);
}
