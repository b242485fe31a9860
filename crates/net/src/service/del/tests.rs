use super::*;

#[test]
fn links_go_when_no_other_comes_for_a_moment_and_in_time() {
    let began = Instant::now();
    let at = |ms| began + Duration::from_millis(ms);
    let mut gathering = Gathering::default();
    assert_eq!(gathering.due(0, at(0)), None);
    assert_eq!(gathering.due(1, at(0)), Some(at(20)));
    assert_eq!(gathering.due(1, at(10)), Some(at(20)), "nothing came");
    assert_eq!(gathering.due(2, at(15)), Some(at(35)));
    for came in 3..13 {
        let now = at(15 * came as u64);
        assert!(gathering.due(came, now).unwrap() > now);
    }
    assert_eq!(gathering.due(13, at(190)), Some(at(200)), "the first has waited for long enough");
    assert_eq!(gathering.due(TOGETHER, at(191)), Some(at(191)), "they are enough");
    assert_eq!(gathering.due(0, at(192)), None);
    assert_eq!(gathering.due(1, at(300)), Some(at(320)), "a new beginning");
    gathering.hurry();
    assert_eq!(gathering.due(1, at(301)), Some(at(301)));
}
