use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use regex::Regex;

use super::{IPV4, IPV6, IPV6_NO_HOST_BITS};

/// What a rule has between `matches('` and `')`.
fn regex_of(rule: &str) -> Regex {
    let (_, rest) = rule.split_once("matches('").unwrap();
    Regex::new(rest.strip_suffix("')").unwrap()).unwrap()
}

/// The same address, written in another way: all groups, with zeros before them, in capitals.
fn written_out(address: Ipv6Addr) -> String {
    address.segments().map(|group| format!("{group:04X}")).join(":")
}

#[test]
fn patterns_take_what_can_be_read_and_nothing_else() {
    let (ipv4, ipv6) = (Regex::new(IPV4).unwrap(), Regex::new(IPV6).unwrap());
    for right in ["10.64.0.0/16", "10.0.0.0/8", "255.255.255.255/32", "1.2.3.4/9"] {
        assert!(ipv4.is_match(right) && right.parse::<Ipv4Net>().is_ok(), "{right}");
    }
    for wrong in ["hello", "10.0.0/16", "10.0.0.0", "10.0.0.256/16", "010.0.0.0/8", "10.0.0.0/08"] {
        assert!(!ipv4.is_match(wrong), "{wrong}");
    }
    for right in
        ["fd00:64::/112", "::/128", "::1/128", "1:2:3:4:5:6:7:8/128", "1:2:3:4:5:6:7::/112"]
    {
        assert!(ipv6.is_match(right) && right.parse::<Ipv6Net>().is_ok(), "{right}");
    }
    for wrong in
        ["hello", "fd00::", "fd00:::/112", "1:2:3:4:5:6:7:8:9/128", "fd00::/64", "1::2::/112"]
    {
        assert!(!ipv6.is_match(wrong), "{wrong}");
    }
}

proptest! {
    #[test]
    fn an_ipv4_network_is_taken_as_it_is_printed(bits: u32, prefix in 8..=32_u8) {
        let net = Ipv4Net::new(Ipv4Addr::from_bits(bits), prefix).unwrap();
        prop_assert!(Regex::new(IPV4).unwrap().is_match(&net.to_string()), "{net}");
    }

    /// Few groups are not zero, so that all ways to write an address come up.
    #[test]
    fn bits_after_the_prefix_of_an_ipv6_network_are_seen(
        groups in proptest::collection::vec(prop_oneof![Just(0_u16), any::<u16>()], 6),
        low: u32,
        zeros in 0..=32_u32,
        prefix in 104..=128_u8,
    ) {
        let low = low.checked_shl(zeros).unwrap_or(0);
        let mut all = groups;
        all.extend([u16::try_from(low >> 16).unwrap(), u16::try_from(low & 0xffff).unwrap()]);
        let address = Ipv6Addr::from(<[u16; 8]>::try_from(all).unwrap());
        let net = Ipv6Net::new(address, prefix).unwrap();
        let right = net.addr() == net.network();
        let (pattern, rule) = (Regex::new(IPV6).unwrap(), regex_of(IPV6_NO_HOST_BITS));
        for text in [net.to_string(), format!("{}/{prefix}", written_out(address))] {
            prop_assert!(pattern.is_match(&text), "{text}");
            prop_assert_eq!(rule.is_match(&text), right, "{}", text);
        }
    }
}
