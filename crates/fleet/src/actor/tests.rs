use super::*;

fn actor(user: &str, roles: &[&str], groups: &[&str]) -> Actor {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Actor { user: user.to_owned(), roles: words(roles), groups: words(groups) }
}

fn headers(actor: &Actor) -> Result<Vec<String>, Error> {
    let acting = ActingAs::new("c", &Impersonation::default(), actor)?;
    let text =
        |(name, value): &(HeaderName, HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
    Ok(acting.0.iter().map(text).collect())
}

#[test]
fn users_roles_and_groups_have_names_of_their_own() {
    let ann = actor("corp:ann@shop.example", &["viewer"], &["corp:admin"]);
    assert_eq!(
        headers(&ann).unwrap(),
        [
            "impersonate-user: fairlead:corp:ann@shop.example",
            "impersonate-group: fairlead:role:viewer",
            "impersonate-group: fairlead:group:corp:admin",
        ]
    );
    // A group called as a role is not that role, and none is one of the cluster's.
    let sly = actor("ann", &[], &["corp:role:admin", "system:masters"]);
    assert_eq!(
        headers(&sly).unwrap()[1..],
        [
            "impersonate-group: fairlead:group:corp:role:admin",
            "impersonate-group: fairlead:group:system:masters",
        ]
    );
}

#[test]
fn who_cannot_be_named_does_nothing() {
    for odd in [actor("", &["admin"], &[]), actor("a\nb", &[], &[]), actor("ann", &[], &["\u{e4}"])]
    {
        assert!(matches!(headers(&odd), Err(Error::Impersonation { .. })), "{odd:?}");
    }
    let many = Actor { groups: vec!["g".to_owned(); MOST_GROUPS + 1], ..actor("ann", &[], &[]) };
    assert!(headers(&many).unwrap_err().to_string().contains("fewer"));
}

#[tokio::test]
async fn headers_of_others_do_not_pass() {
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let service = tower::service_fn(move |request: Request<Body>| {
        let said = request.headers().iter().map(|(name, value)| format!("{name}: {value:?}"));
        heard.lock().unwrap().extend(said.collect::<Vec<_>>());
        async { Ok::<_, std::io::Error>(Response::new(Body::empty())) }
    });
    let own = kube::Client::new(service, "default");
    let acting = ActingAs::new("c", &Impersonation::default(), &actor("ann", &["viewer"], &[]));
    let client = acting.unwrap().client(&own);
    let request = Request::get("/version")
        .header("Impersonate-User", "system:admin")
        .header("Impersonate-Group", "system:masters")
        .header("Impersonate-Extra-Scopes", "all");
    client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(
        *told.lock().unwrap(),
        ["impersonate-user: \"fairlead:ann\"", "impersonate-group: \"fairlead:role:viewer\""]
    );
}
