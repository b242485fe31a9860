use super::super::line;
use super::*;

fn number(templates: &mut Templates, text: &str) -> Option<u32> {
    let mut scratch = Vec::new();
    let record = line::record(text.as_bytes(), None, &mut scratch).expect(text);
    templates.count(&record, || Evidence {
        text: text.to_owned(),
        ..Evidence::default()
    })
}

#[test]
fn lines_that_differ_in_ids_and_numbers_are_one() {
    let mut templates = Templates::default();
    let first = number(
        &mut templates,
        "2025-01-26T13:09:02.525|INFO|CTL|c.A: Receive - host=q0009381:6596a768-fb27 id=4cafd2b5",
    );
    let same = number(
        &mut templates,
        "2025-01-26T13:09:02.774|INFO|CTL|c.A: Receive - host=q0003320:df3b39de-ca8e id=24f3f72d",
    );
    let other = number(
        &mut templates,
        "2025-01-26T13:09:02.774|INFO|CTL|c.B: Receive - host=q0003320:df3b39de-ca8e id=24f3f72d",
    );
    assert_eq!(first, same);
    assert_ne!(first, other);
    assert_eq!(templates.get(0).text, "c.A: Receive - host=… id=…");
    // Lists of any length are one.
    let a = number(
        &mut templates,
        "2025-01-26T13:09:24.556|INFO|CTL|c.J: Retry - Addr=[10.42.57.244 10.42.55.36]",
    );
    let b = number(
        &mut templates,
        "2025-01-26T13:09:24.556|INFO|CTL|c.J: Retry - Addr=[10.42.57.244 10.42.55.36 10.1.1.1]",
    );
    assert_eq!(a, b);
}

#[test]
fn json_lines_are_told_apart_by_error_and_call() {
    let mut templates = Templates::default();
    let line = |code: &str, ms: u32| {
        format!(
            r#"{{"level":"info","msg":"finished call","grpc.code":"{code}","grpc.time_ms":{ms}}}"#
        )
    };
    let ok = number(&mut templates, &line("OK", 1));
    assert_eq!(ok, number(&mut templates, &line("OK", 2)));
    assert_ne!(ok, number(&mut templates, &line("Internal", 2)));
}

#[test]
fn the_number_of_templates_is_bounded() {
    let mut templates = Templates::default();
    let letters = |mut n: usize| {
        let mut word = String::new();
        while n > 0 {
            word.push(char::from(b'a' + (n % 26) as u8));
            n /= 26;
        }
        word
    };
    for n in 1..MOST + 100 {
        number(&mut templates, &format!("[ERROR] a: word {}", letters(n)));
    }
    assert!(templates.beyond > 0);
    assert_eq!(templates.iter().count(), MOST);
}

#[test]
fn what_goes_round_is_folded() {
    let mut templates = Templates::default();
    for _ in 0..50 {
        number(&mut templates, "[ERROR] agent: no leader");
        number(&mut templates, "[ERROR] agent.rpc: refused");
        number(&mut templates, "[ERROR] agent.rpc: again");
    }
    number(&mut templates, "[INFO] agent: bye");
    assert_eq!(templates.loops(), vec![(vec![0, 1, 2], 50)]);
}
