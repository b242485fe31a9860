use super::*;

fn chosen(server: &str, no_proxy: &str) -> bool {
    choose(&server.parse().unwrap(), "proxy:3128".to_owned(), no_proxy).is_some()
}

#[test]
fn what_no_proxy_lists_is_reached_directly() {
    for (server, no_proxy, expected) in [
        ("https://a.example.com:6443", "", true),
        ("https://a.example.com:6443", "*", false),
        ("https://a.example.com:6443", "example.com", false),
        ("https://a.example.com:6443", ".example.com", false),
        ("https://a.example.com:6443", "*.example.com", false),
        ("https://example.com", ".example.com", true),
        ("https://badexample.com", "example.com", true),
        ("https://a.example.com:6443", "example.com:443", true),
        ("https://a.example.com:6443", "other, EXAMPLE.com:6443", false),
        ("https://10.1.2.3", "10.0.0.0/8", false),
        ("https://11.1.2.3", "10.0.0.0/8", true),
        ("https://11.1.2.3", "0.0.0.0/0", false),
        ("https://10.1.2.3", "10.1.2.3", false),
        ("https://[fd00::1]:6443", "fd00::/8", false),
        ("https://[fd00::1]:6443", "fd00::1", false),
        ("https://[fd00::1]:6443", "fe00::/8", true),
        ("https://127.0.0.1:6443", "", false),
        ("https://localhost", "", false),
    ] {
        assert_eq!(chosen(server, no_proxy), expected, "{server} with {no_proxy:?}");
    }
}

#[test]
fn a_proxy_without_a_scheme_is_an_http_proxy() {
    let server = "https://a".parse().unwrap();
    assert_eq!(choose(&server, "p:1".to_owned(), "").as_deref(), Some("http://p:1"));
    assert_eq!(choose(&server, "socks5://p".to_owned(), "").as_deref(), Some("socks5://p"));
}
