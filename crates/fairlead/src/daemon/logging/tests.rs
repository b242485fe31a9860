use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stallproof::Ledger;

use super::*;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is written by a call in a request, from level `warn` on.
fn written(human: bool) -> String {
    let (written, ledger) = (Written::default(), Ledger::default());
    let writer = written.clone();
    let lines = lines(move || writer.clone(), human, false);
    let subscriber = tracing_subscriber::registry().with(parse("warn").unwrap()).with(lines);
    tracing::subscriber::with_default(subscriber, || {
        let request = ledger.begin("rest", "GET /clusters", "fleet");
        let _request = request.span().entered();
        let call = ledger.begin("cluster-call", "list pods", "east");
        let _call = call.span().entered();
        tracing::info!("not logged");
        tracing::warn!(attempt = 2, "it failed");
    });
    String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn a_line_for_people_shows_the_operations_that_wrote_it() {
    let line = written(true);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("op{kind=rest key=GET /clusters tenant=fleet id="), "{line}");
    assert!(line.contains("}:op{kind=cluster-call key=list pods tenant=east id="), "{line}");
    assert!(line.contains("it failed attempt=2"), "{line}");
}

#[test]
fn a_line_of_json_lists_the_operations_that_wrote_it() {
    let line = written(false);
    assert_eq!(line.lines().count(), 1, "{line}");
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["message"], &line["attempt"]), (&json!("it failed"), &json!(2)), "{line}");
    let [request, call] = line["spans"].as_array().unwrap().as_slice() else { panic!("{line}") };
    assert_eq!((&request["kind"], &request["key"]), (&json!("rest"), &json!("GET /clusters")));
    assert_eq!((&call["kind"], &call["tenant"]), (&json!("cluster-call"), &json!("east")));
    assert!(call["id"].is_u64(), "{line}");
    assert!(line.get("span").is_none(), "{line}");
}

#[test]
fn what_somebody_else_said_is_no_line_of_its_own_and_does_not_speak_to_the_terminal() {
    let (written, ledger) = (Written::default(), Ledger::default());
    let writer = written.clone();
    let lines = lines(move || writer.clone(), true, true);
    let subscriber = tracing_subscriber::registry().with(parse("warn").unwrap()).with(lines);
    let said = "gone\n2026-01-01T00:00:00Z  WARN admin: password changed\u{1b}[2J\r";
    tracing::subscriber::with_default(subscriber, || {
        let call = ledger.begin("cluster-call", said, "east");
        let _call = call.span().entered();
        tracing::warn!(error = %said, "it failed: {said}");
    });
    let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("gone\\n2026") && !line.contains("\u{1b}[2J"), "{line}");
}
