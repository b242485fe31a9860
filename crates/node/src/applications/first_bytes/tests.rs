use proptest::prelude::*;
use traffic::conversations::told_by_bytes;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

const TCP_CLIENT: (Protocol, Sender) = (Protocol::TCP, Sender::Client);
const TCP_SERVER: (Protocol, Sender) = (Protocol::TCP, Sender::Server);
const UDP_CLIENT: (Protocol, Sender) = (Protocol::UDP, Sender::Client);
const UDP_SERVER: (Protocol, Sender) = (Protocol::UDP, Sender::Server);

/// The first bytes that real clients and servers send, cut off where the agent would cut off long ones.
fn real() -> Vec<(&'static str, (Protocol, Sender), Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        // `openssl s_client` 3.0 with TLS 1.3, and its server's answer.
        (
            "tls",
            TCP_CLIENT,
            hex(
                "1603010131010001 2d03039f6c7e2f1a4b0c5d 8e11223344556677 8899aabbccddeeff 0011223344556677",
            ),
        ),
        ("tls", TCP_SERVER, hex("160303007a 020000760303 8f1d2c3b4a596877 8695a4b3c2d1e0f1")),
        // A greeting with a post-quantum key, longer than a packet.
        ("tls", TCP_CLIENT, hex("16030106c9 010006c50303 8f1d2c3b4a596877 8695a4b3c2d1e0f1")),
        // SSLv3's version in the record, as some clients still write it.
        ("tls", TCP_CLIENT, hex("16030000b4 010000b00303 8f1d2c3b4a596877 8695a4b3c2d1e0f1")),
        // `grpcurl -plaintext`: the preface and settings.
        (
            "http2",
            TCP_CLIENT,
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat(),
        ),
        (
            "http",
            TCP_CLIENT,
            text("GET /healthz HTTP/1.1\r\nHost: 10.0.0.9:8080\r\nUser-Agent: kube-probe/1.33\r\n"),
        ),
        ("http", TCP_CLIENT, text("POST /v1/traces HTTP/1.1\r\nHost: otel\r\n")),
        ("http", TCP_CLIENT, text("OPTIONS * HTTP/1.1\r\n")),
        ("http", TCP_CLIENT, text("GET http://example.com/ HTTP/1.1\r\n")),
        ("http", TCP_CLIENT, text("CONNECT example.com:443 HTTP/1.1\r\n")),
        ("http", TCP_CLIENT, text("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n")),
        ("http", TCP_SERVER, text("HTTP/1.1 400 Bad Request\r\n")),
        ("ssh", TCP_SERVER, text("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n")),
        ("ssh", TCP_CLIENT, text("SSH-2.0-Go\r\n")),
        ("redis", TCP_CLIENT, text("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n")),
        ("redis", TCP_CLIENT, text("*1\r\n$4\r\nPING\r\n")),
        ("redis", TCP_CLIENT, text("PING\r\n")),
        // libpq: a request for TLS, for GSSAPI, and the startup without either.
        ("postgresql", TCP_CLIENT, hex("00000008 04d2162f")),
        ("postgresql", TCP_CLIENT, hex("00000008 04d21630")),
        (
            "postgresql",
            TCP_CLIENT,
            [&hex("0000004f 00030000")[..], b"user\0app\0database\0shop\0"].concat(),
        ),
        (
            "mysql",
            TCP_SERVER,
            [&hex("4a0000000a")[..], b"8.0.36\0", &hex("0800000012345678")].concat(),
        ),
        (
            "mysql",
            TCP_SERVER,
            [&hex("6e0000000a")[..], b"5.5.5-10.11.6-MariaDB-log\0", &hex("2a000000")].concat(),
        ),
        // `hello` as OP_QUERY to `admin.$cmd`, and OP_MSG.
        (
            "mongodb",
            TCP_CLIENT,
            [&hex("3b010000 01000000 00000000 d4070000 00000000")[..], b"admin.$cmd\0"].concat(),
        ),
        ("mongodb", TCP_CLIENT, hex("9d000000 02000000 00000000 dd070000 00000000 00")),
        ("amqp", TCP_CLIENT, hex("414d5150 00000901")),
        ("amqp", TCP_CLIENT, hex("414d5150 03010000")),
        ("mqtt", TCP_CLIENT, [&hex("1021 0004")[..], b"MQTT", &hex("04c2003c")].concat()),
        ("mqtt", TCP_CLIENT, [&hex("108001 0006")[..], b"MQIsdp\x03"].concat()),
        (
            "nats",
            TCP_SERVER,
            text("INFO {\"server_id\":\"NDFG\",\"version\":\"2.10.12\",\"proto\":1"),
        ),
        ("nats", TCP_CLIENT, text("CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n")),
        // A session of 30 seconds with no password yet.
        (
            "zookeeper",
            TCP_CLIENT,
            hex(
                "0000002d 00000000 0000000000000000 00007530 0000000000000000 00000010 00000000000000000000000000000000 00",
            ),
        ),
        ("zookeeper", TCP_CLIENT, text("ruok")),
        ("zookeeper", TCP_CLIENT, text("mntr\n")),
        ("cassandra", TCP_CLIENT, hex("04 00 0000 05 00000000")),
        (
            "cassandra",
            TCP_CLIENT,
            [&hex("04 00 0001 01 00000016 0001 000b")[..], b"CQL_VERSION\0\x053.4.5"].concat(),
        ),
        ("memcached", TCP_CLIENT, text("get session:42\r\n")),
        ("memcached", TCP_CLIENT, text("set session:42 0 900 5\r\nhello\r\n")),
        ("memcached", TCP_CLIENT, text("version\r\n")),
        ("memcached", TCP_CLIENT, hex("80 0b 0000 00 00 0000 00000000 00000001 0000000000000000")),
        // Kafka's Java client, and franz-go: ApiVersions.
        (
            "kafka",
            TCP_CLIENT,
            [&hex("00000035 0012 0003 00000000 000a")[..], b"consumer-1", &hex("0012")].concat(),
        ),
        (
            "kafka",
            TCP_CLIENT,
            [&hex("00000020 0003 0009 00000007 0003")[..], b"kgo", &hex("00")].concat(),
        ),
        ("sqlserver", TCP_CLIENT, hex("12 01 002f 0000 01 00 0000 1a 0006 01 0020 0001")),
        ("smb", TCP_CLIENT, hex("000000f8 fe534d42 4000 0000 00000000 0000")),
        // An anonymous bind of version 3, a search of the root, and StartTLS.
        ("ldap", TCP_CLIENT, hex("300c 020101 6007 020103 0400 8000")),
        ("ldap", TCP_CLIENT, hex("3025 020101 6320 0400 0a0100 0a0100 020100 020100 010100 870b")),
        (
            "ldap",
            TCP_CLIENT,
            [&hex("301d 020101 7718 8016")[..], b"1.3.6.1.4.1.1466.20037"].concat(),
        ),
        ("smtp", TCP_SERVER, text("220 mail.example.com ESMTP Postfix (Debian/GNU)\r\n")),
        ("smtp", TCP_CLIENT, text("EHLO client.example.com\r\n")),
        ("ftp", TCP_SERVER, text("220 (vsFTPd 3.0.5)\r\n")),
        ("ftp", TCP_SERVER, text("220 ProFTPD Server ready.\r\n")),
        (
            "dns",
            TCP_CLIENT,
            hex("001d 2a01 0120 0001 0000 0000 0000 07 6578616d706c65 03 636f6d 00 0001 0001"),
        ),
        (
            "dns",
            UDP_CLIENT,
            hex(
                "2a01 0120 0001 0000 0000 0001 07 6578616d706c65 03 636f6d 00 0001 0001 00 0029 04d0",
            ),
        ),
        (
            "dns",
            UDP_SERVER,
            hex("2a01 8180 0001 0001 0000 0000 07 6578616d706c65 03 636f6d 00 0001 0001 c00c"),
        ),
        // NXDOMAIN of a service, cut off within the name.
        (
            "dns",
            UDP_SERVER,
            hex("2a01 8583 0001 0000 0001 0000 02 6462 04 73686f70 03 737663 07 636c75"),
        ),
        ("quic", UDP_CLIENT, hex("c3 00000001 08 8394c8f03e515708 00 00 449e 7b9aec34")),
        ("quic", UDP_CLIENT, hex("d3 6b3343cf 08 8394c8f03e515708 00 00 449e a0c95e82")),
    ]
}

#[test]
fn real_first_bytes_are_known_whatever_the_port() {
    let mut seen = std::collections::BTreeSet::new();
    for (name, (protocol, sender), bytes) in real() {
        let found = application(protocol, sender, &bytes);
        assert_eq!(found, Some(name), "{:?}", String::from_utf8_lossy(&bytes));
        seen.insert(name);
    }
    let all = TCP.iter().chain(&UDP).map(|(name, _)| *name);
    for name in all {
        assert!(seen.contains(name), "there are no first bytes of {name}");
        assert_eq!(told_by_bytes(name), Some(name), "controllers know it");
    }
}

#[test]
fn bytes_that_only_look_like_it_are_nobodys() {
    for (who, bytes) in [
        (TCP_CLIENT, &b""[..]),
        (TCP_CLIENT, b"G"),
        (TCP_CLIENT, b"GET"),
        (TCP_CLIENT, b"GET me a coffee"),
        (TCP_CLIENT, b"GETTING / started"),
        (TCP_CLIENT, b"CONNECT me:now"),
        (TCP_CLIENT, b"\x16\x03\x01"),
        // An application's record, not a greeting's.
        (TCP_CLIENT, b"\x17\x03\x03\x00\x50\x01\x00\x00\x4c\x03\x03"),
        // The client's greeting, from the server.
        (TCP_SERVER, b"\x16\x03\x01\x01\x31\x01\x00\x01\x2d\x03\x03"),
        (TCP_CLIENT, b"*two\r\n$4\r\nPING\r\n"),
        (TCP_CLIENT, b"*2\r\n"),
        (TCP_CLIENT, b"\0\0\0\x08\x04\xd2\x16\x2e"),
        (TCP_SERVER, b"220 welcome\r\n"),
        (TCP_SERVER, b"+OK ready\r\n"),
        (TCP_CLIENT, b"get \r\n"),
        (TCP_CLIENT, b"hello, is anybody there?\r\n"),
        (TCP_CLIENT, &[0; 64]),
        (TCP_CLIENT, &[0xff; 64]),
        (TCP_SERVER, &[0; 64]),
        (UDP_CLIENT, &[0; 64]),
        (UDP_CLIENT, &[0xff; 64]),
        (UDP_CLIENT, b"ping ping ping ping"),
        // A probe that asks for the versions of QUIC is no connection.
        (UDP_CLIENT, b"\xc0\x0a\x0a\x0a\x0a\x08\x01\x02\x03\x04"),
    ] {
        let (protocol, sender) = who;
        assert_eq!(application(protocol, sender, bytes), None, "{who:?} {bytes:?}");
    }
    assert_eq!(application(Protocol::SCTP, Sender::Client, b"SSH-2.0-Go\r\n"), None);
}

fn senders() -> impl Strategy<Value = (Protocol, Sender)> {
    prop_oneof![Just(TCP_CLIENT), Just(TCP_SERVER), Just(UDP_CLIENT), Just(UDP_SERVER)]
}

proptest! {
    #[test]
    fn any_bytes_can_be_looked_at(
        (protocol, sender) in senders(),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = application(protocol, sender, &bytes);
    }

    /// Real bytes, cut off anywhere, with some of them changed: deeper than chance goes.
    #[test]
    fn any_bytes_that_were_real_can_be_looked_at(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        (protocol, sender) in senders(),
    ) {
        let real = real();
        let (_, (own, by), mut bytes) = real[which.index(real.len())].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = application(own, by, &bytes);
        let _ = application(protocol, sender, &bytes);
    }

    /// Bytes without order have a name almost never: what is random is most of what is encrypted.
    #[test]
    fn random_bytes_are_nobodys(
        (protocol, sender) in senders(),
        bytes in proptest::collection::vec(any::<u8>(), 64),
    ) {
        prop_assert_eq!(application(protocol, sender, &bytes), None);
    }
}
