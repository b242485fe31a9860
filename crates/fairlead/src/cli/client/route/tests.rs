use super::Route;

#[test]
fn no_word_can_be_more_than_one() {
    let route = Route::to(["clusters", "a/b?c", "resources", "pods"])
        .with("labels", "app in (a,b)&x=ü")
        .maybe("limit", Some(5))
        .maybe("continue", None::<&str>)
        .when("force", true);
    assert_eq!(
        route.to_string(),
        "/api/v1/clusters/a%2Fb%3Fc/resources/pods?labels=app%20in%20%28a%2Cb%29%26x%3D%C3%BC&limit=5&force=true"
    );
}

#[test]
fn a_path_cannot_climb() {
    assert_eq!(Route::to(["clusters", ".."]).to_string(), "/api/v1/clusters/%2E%2E");
}
