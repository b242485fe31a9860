use super::*;

fn told(name: &str, last: u16) -> ResolvedName {
    let [high, low] = last.to_be_bytes();
    ResolvedName { name: name.into(), address: [203, 0, high, low].into() }
}

fn at(last: u16) -> IpAddr {
    told("", last).address
}

#[test]
fn a_name_counts_on_the_node_that_told_it_and_one_that_told_nothing_is_not_known() {
    let names = Names::default();
    let patterns = ["*.example.com".into()];
    assert_eq!(names.fits("one", at(7), &patterns), None);
    names.tell("one", &[], Moment(0));
    assert_eq!(names.fits("one", at(7), &patterns), Some(false));
    names.tell("one", &[told("api.example.com", 7), told("example.com", 8)], Moment(0));
    assert_eq!(names.fits("one", at(7), &patterns), Some(true));
    assert_eq!(names.fits("one", "::ffff:203.0.0.7".parse().unwrap(), &patterns), Some(true));
    assert_eq!(names.fits("one", at(8), &patterns), Some(false), "not below it");
    assert_eq!(names.fits("two", at(7), &patterns), None);
    names.tell("one", &[told("www.example.com", 7)], Moment(1));
    assert_eq!(
        names.of("one", at(7)).unwrap(),
        ["www.example.com".into(), "api.example.com".into()]
    );
    names.forget("one");
    assert_eq!(names.of("one", at(7)), None);
}

#[test]
fn what_was_told_longest_ago_makes_room() {
    let names = Names::default();
    let day = u64::try_from(KEPT.as_millis()).unwrap();
    for last in 0..u16::try_from(MOST).unwrap() + 1 {
        names.tell("one", &[told("a.example.com", last)], Moment(u64::from(last)));
    }
    assert_eq!(names.of("one", at(0)).unwrap().len(), 0);
    assert_eq!(names.of("one", at(1)).unwrap().len(), 1);
    // Names of one address too, and those that nobody told for long.
    for number in 0..MOST_NAMES + 1 {
        names.tell("one", &[told(&format!("{number}.example.com"), 1)], Moment(9999));
    }
    assert_eq!(names.of("one", at(1)).unwrap().len(), MOST_NAMES);
    names.tell("one", &[told("new.example.com", 1)], Moment(9999 + day));
    assert_eq!(names.of("one", at(1)).unwrap(), ["new.example.com".into()]);
}
