#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn program(names: &[&str]) -> Program {
    let mut program = Program::default();
    for name in names {
        let kind = SetKind::Domains(vec![(*name).into()]);
        program.sets.insert(SetId::of(name), Set::new(kind));
    }
    program
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, number])
}

#[test]
fn a_name_is_learned_by_every_set_that_has_it_and_by_no_other() {
    let program = program(&["*.example.com", "api.example.com", "example.com"]);
    let lives = Duration::from_secs(5);
    let wanted = Learned::wanted(&program, "api.example.com", &[(address(1), lives)]);
    let mut sets: Vec<_> = wanted.iter().map(|it| it.set).collect();
    sets.sort();
    let mut expected = [SetId::of("*.example.com"), SetId::of("api.example.com")];
    expected.sort();
    assert_eq!(sets, expected);
    assert!(wanted.iter().all(|it| it.lives == lives + GRACE));
}

#[test]
fn an_address_ends_with_its_time_and_is_asked_about_before() {
    let (program, now) = (program(&["a.b"]), Instant::now());
    let set = SetId::of("a.b");
    let mut learned = Learned::default();
    let short = Learned::wanted(&program, "a.b", &[(address(1), Duration::from_secs(1))]);
    learned.add(&short, now);
    assert!(learned.set(set).unwrap().elements.contains(&Element::Address(address(1))));
    assert_eq!(learned.look_after(&program, now), []);
    let later = now + Duration::from_secs(40);
    assert_eq!(learned.look_after(&program, later), [(set, address(1))]);
    // A shorter answer takes nothing away from a longer one.
    learned.add(&[LearnedAddress { set, address: address(1), lives: GRACE }], later);
    learned.add(&[LearnedAddress { set, address: address(1), lives: Duration::ZERO }], later);
    assert_eq!(learned.look_after(&program, now + Duration::from_secs(69)), []);
    assert_eq!(learned.look_after(&program, later + GRACE), []);
    assert!(learned.is_empty() && learned.set(set).is_none());
}

#[test]
fn what_no_rule_names_any_more_is_forgotten() {
    let (before, now) = (program(&["a.b"]), Instant::now());
    let mut learned = Learned::default();
    learned.add(&Learned::wanted(&before, "a.b", &[(address(1), GRACE)]), now);
    learned.look_after(&program(&[]), now);
    assert!(learned.is_empty());
}
