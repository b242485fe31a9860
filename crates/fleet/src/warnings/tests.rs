use std::future::{Ready, ready};

use super::*;

#[test]
fn a_header_has_one_or_more_texts() {
    let deprecated = r#"299 - "v1 ComponentStatus is deprecated in v1.19+""#;
    assert_eq!(parse(deprecated), ["v1 ComponentStatus is deprecated in v1.19+"]);
    let two = r#"299 - "one, \"quoted\" and \\", 299 - "two" "Wed, 21 Oct 2015 07:28:00 GMT""#;
    assert_eq!(parse(two), [r#"one, "quoted" and \"#, "two"]);
    assert_eq!(parse("no quotes at all"), Vec::<String>::new());
    assert_eq!(parse(r#"299 - "never ends"#), ["never ends"]);
}

#[test]
fn what_a_terminal_would_obey_is_not_in_it() {
    assert_eq!(parse("299 - \"a\x1b[31mb\tc\x7f\""), ["a [31mb c"]);
    assert_eq!(parse(&format!("299 - \"{}\"", "x".repeat(10_000)))[0].len(), LONGEST);
}

/// Answers every request with one warning for each of its words.
#[derive(Clone)]
struct Warning;

impl Service<&'static str> for Warning {
    type Response = Response<()>;
    type Error = ();
    type Future = Ready<Result<Response<()>, ()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, words: &'static str) -> Self::Future {
        let mut answer = Response::new(());
        for word in words.split(' ') {
            let value = format!("299 - \"{word}\"").parse().unwrap();
            answer.headers_mut().append(header::WARNING, value);
        }
        ready(Ok(answer))
    }
}

#[tokio::test]
async fn work_hears_its_own_warnings_and_no_others() {
    let ask = async |words| {
        let _ = ListenLayer.layer(Warning).call(words).await;
        tokio::task::yield_now().await;
        let _ = ListenLayer.layer(Warning).call("again").await;
    };
    // Nobody listens.
    ask("unheard").await;
    let ((_, one), (_, other)) = tokio::join!(listen(ask("a b a")), listen(ask("c")));
    assert_eq!(one, ["a", "b", "again"]);
    assert_eq!(other, ["c", "again"]);
}

#[tokio::test]
async fn a_server_that_warns_of_everything_is_heard_so_far() {
    let many: &str = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(" ").leak();
    let (_, warnings) = listen(ListenLayer.layer(Warning).call(many)).await;
    assert_eq!(warnings.len(), MOST);
}
