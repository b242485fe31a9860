use objects::kinds::{Ports, Protocol};

use super::canonical;

#[test]
fn ports_that_touch_are_one_range_and_protocols_stay_apart() {
    let ports = |protocol, first, last| Ports { protocol, first, last };
    let given = vec![
        ports(Protocol::UDP, 81, 90),
        ports(Protocol::TCP, 80, 80),
        ports(Protocol::TCP, 81, 81),
        ports(Protocol::TCP, 70, 75),
        ports(Protocol::TCP, 72, u16::MAX),
    ];
    let expected = vec![ports(Protocol::TCP, 70, u16::MAX), ports(Protocol::UDP, 81, 90)];
    assert_eq!(canonical(given), expected);
}
