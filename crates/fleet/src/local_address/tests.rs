use super::*;

#[test]
fn addresses_of_this_machine_and_its_link_are_local_however_they_are_written() {
    for local in [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
    ] {
        assert!(local_kind(local.parse().unwrap()).is_some(), "{local}");
    }
    for other in [
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "8.8.8.8",
        "100.64.0.1",
        "2001:db8::1",
        "fd00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ] {
        assert_eq!(local_kind(other.parse().unwrap()), None, "{other}");
    }
}

#[test]
fn a_number_in_a_uri_is_found() {
    let literal = |uri: &str| literal(&uri.parse().unwrap());
    assert_eq!(literal("https://127.0.0.1:6443"), Some([127, 0, 0, 1].into()));
    assert_eq!(literal("https://[::1]:6443/x"), Some(Ipv6Addr::LOCALHOST.into()));
    assert_eq!(literal("https://localhost:6443"), None);
}
