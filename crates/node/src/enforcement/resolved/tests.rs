use std::time::Duration;

use super::*;

#[test]
fn what_resolved_longest_ago_makes_room() {
    let (resolved, began) = (Resolved::default(), Instant::now());
    let address = |number: usize| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]);
    for number in 0..MOST {
        let at = began + Duration::from_secs(number as u64);
        resolved.add("a.example.com", [address(number)].into_iter(), at);
    }
    // The first is asked for again, and stays.
    let later = began + Duration::from_secs(MOST as u64);
    resolved.add("a.example.com", [address(0)].into_iter(), later);
    resolved.add("b.example.com", [address(0)].into_iter(), later);
    let all = resolved.all();
    assert_eq!(all.len(), MOST);
    let has =
        |number| all.contains_key::<(Arc<str>, IpAddr)>(&("a.example.com".into(), address(number)));
    assert!(has(0) && !has(1));
}
