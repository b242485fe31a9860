use std::fs;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_token_is_made_once_and_only_its_owner_can_read_it() {
    let data = tempfile::tempdir().unwrap();
    assert!(LocalToken::read_from(data.path()).unwrap().is_none());
    let made = LocalToken::open(data.path()).unwrap();
    assert_eq!(mode(made.path()), 0o600);
    assert!(token::looks_like_one(made.secret().expose()));
    let again = LocalToken::open(data.path()).unwrap();
    assert!(again.secret().is(made.secret().expose()));
    let read = LocalToken::read_from(data.path()).unwrap().unwrap();
    assert!(read.secret().is(made.secret().expose()));
    // The draft is gone.
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
    assert!(!format!("{made:?}").contains(made.secret().expose()));

    let elsewhere = tempfile::tempdir().unwrap();
    assert!(!LocalToken::open(elsewhere.path()).unwrap().secret().is(made.secret().expose()));
}

#[test]
fn a_token_that_others_can_read_is_refused_and_left_alone() {
    let data = tempfile::tempdir().unwrap();
    let path = LocalToken::open(data.path()).unwrap().path().to_owned();
    for open in [0o644, 0o640, 0o602] {
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        let error = LocalToken::open(data.path()).unwrap_err();
        assert!(matches!(error, LocalTokenError::Open { mode, .. } if mode == open), "{error}");
        assert!(error.to_string().contains("delete it"), "{error}");
        assert_eq!(mode(&path), open);
    }
}

#[test]
fn what_is_not_a_token_is_refused_and_never_overwritten() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("token");
    for content in ["", "flt_local_short\n", "-----BEGIN PRIVATE KEY-----\n"] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = LocalToken::open(data.path()).unwrap_err();
        assert!(matches!(error, LocalTokenError::Unreadable { .. }), "{error}");
        assert!(content.is_empty() || !error.to_string().contains(content.trim()));
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn of_many_who_start_at_once_all_have_the_same_token() {
    let data = tempfile::tempdir().unwrap();
    let tokens: Vec<_> = std::thread::scope(|scope| {
        let open = || LocalToken::open(data.path()).unwrap().secret().expose().to_owned();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_that_is_not_there_is_an_error_that_names_it() {
    let error = LocalToken::open(Path::new("/nonexistent/fairlead")).unwrap_err();
    assert_eq!(error.to_string(), "cannot make /nonexistent/fairlead/token");
}

#[test]
fn a_token_that_is_old_is_replaced_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let first = LocalToken::open(data.path()).unwrap();
    let file = File::options().write(true).open(first.path()).unwrap();
    let written = |age: Duration| file.set_modified(std::time::SystemTime::now() - age).unwrap();
    written(OLDEST - Duration::from_secs(3600));
    assert!(LocalToken::open(data.path()).unwrap().secret().is(first.secret().expose()));
    written(OLDEST + Duration::from_secs(3600));
    // A client takes it as it is; only a start replaces it.
    let read = LocalToken::read_from(data.path()).unwrap().unwrap();
    assert!(read.secret().is(first.secret().expose()));
    let second = LocalToken::open(data.path()).unwrap();
    assert!(!second.secret().is(first.secret().expose()));
    assert_eq!(mode(second.path()), 0o600);
    assert!(LocalToken::open(data.path()).unwrap().secret().is(second.secret().expose()));
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
}
