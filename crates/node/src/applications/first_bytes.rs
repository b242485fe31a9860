//! Which application the first bytes of a connection are of.
//!
//! Contract: total over any bytes, and as short as they are: the first packet that carries something, cut off
//! somewhere. A name is given where the bytes leave little doubt, whatever the port; else there is none. Nothing
//! of the bytes is kept. The names are those of [`told_by_bytes`](traffic::conversations::told_by_bytes).

use traffic::conversations::Protocol;

/// Who sent the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    Server,
}

/// Whether bytes of this sender are of the application.
type Test = fn(Sender, &[u8]) -> bool;

/// Whoever is asked first answers: those that ask for more come before those that ask for less.
const TCP: [(&str, Test); 21] = [
    ("tls", is_tls),
    ("http2", is_http2),
    ("http", is_http),
    ("ssh", is_ssh),
    ("redis", is_redis),
    ("postgresql", is_postgresql),
    ("mysql", is_mysql),
    ("mongodb", is_mongodb),
    ("amqp", is_amqp),
    ("mqtt", is_mqtt),
    ("nats", is_nats),
    ("zookeeper", is_zookeeper),
    ("cassandra", is_cassandra),
    ("memcached", is_memcached),
    ("sqlserver", is_sqlserver),
    ("smb", is_smb),
    ("ldap", is_ldap),
    ("smtp", is_smtp),
    ("ftp", is_ftp),
    ("dns", is_dns_over_tcp),
    ("kafka", is_kafka),
];
const UDP: [(&str, Test); 2] = [("quic", is_quic), ("dns", is_dns)];

/// The application whose first bytes these are.
pub(crate) fn application(
    protocol: Protocol,
    sender: Sender,
    bytes: &[u8],
) -> Option<&'static str> {
    let tests = match protocol {
        Protocol::TCP => &TCP[..],
        Protocol::UDP => &UDP[..],
        _ => return None,
    };
    tests.iter().find(|(_, is)| is(sender, bytes)).map(|(name, _)| *name)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|it| u16::from_be_bytes(*it))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|it| u32::from_be_bytes(*it))
}

/// The first line without its end; none if it does not end here.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|it| it == b"\r\n")?;
    bytes.get(..end)
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|it| it.eq_ignore_ascii_case(word))
}

fn is_number(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len() <= 10 && bytes.iter().all(u8::is_ascii_digit)
}

/// A record of a handshake (RFC 8446): the client's greeting, or the server's.
fn is_tls(sender: Sender, bytes: &[u8]) -> bool {
    let greeting = if sender == Sender::Client { 1 } else { 2 };
    let (Some(length), Some(message)) = (u16_at(bytes, 3), u32_at(bytes, 5)) else { return false };
    // The smallest greeting has a version, a random number and a suite.
    bytes.starts_with(&[22, 3])
        && bytes[2] <= 4
        && (42..=16_384 + 2048).contains(&length)
        && message >> 24 == greeting
        && (38..1 << 17).contains(&(message & 0xff_ffff))
}

/// The preface of RFC 9113. What is asked for comes later: gRPC looks the same.
fn is_http2(sender: Sender, bytes: &[u8]) -> bool {
    sender == Sender::Client && bytes.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
}

/// A request line or a status line (RFC 9112).
fn is_http(sender: Sender, bytes: &[u8]) -> bool {
    const METHODS: [&[u8]; 10] = [
        b"GET",
        b"POST",
        b"PUT",
        b"HEAD",
        b"DELETE",
        b"OPTIONS",
        b"PATCH",
        b"TRACE",
        b"PROPFIND",
        b"REPORT",
    ];
    if sender == Sender::Server {
        return bytes.starts_with(b"HTTP/1.");
    }
    // To a proxy: an address and a port, and no braces as NATS has.
    if let Some(target) = bytes.strip_prefix(b"CONNECT ") {
        let target = target.split(|it| *it == b' ').next().unwrap_or_default();
        let port = target.iter().rposition(|it| *it == b':');
        return port.is_some_and(|at| is_number(&target[at + 1..]));
    }
    METHODS.iter().any(|method| {
        let target = bytes.strip_prefix(*method).and_then(|it| it.strip_prefix(b" "));
        target
            .is_some_and(|it| [&b"/"[..], b"* ", b"http://"].iter().any(|as_| it.starts_with(as_)))
    })
}

/// RFC 4253: either side says so.
fn is_ssh(_: Sender, bytes: &[u8]) -> bool {
    bytes.starts_with(b"SSH-2.0-") || bytes.starts_with(b"SSH-1.")
}

/// A command as an array of strings; or the one that a person types.
fn is_redis(sender: Sender, bytes: &[u8]) -> bool {
    let count = bytes.strip_prefix(b"*").and_then(line);
    let command = count.and_then(|it| bytes.get(it.len() + 3..));
    let length = command.and_then(|it| line(it.strip_prefix(b"$")?));
    let is_array = count.is_some_and(is_number) && length.is_some_and(is_number);
    sender == Sender::Client && (is_array || bytes.eq_ignore_ascii_case(b"PING\r\n"))
}

/// A request for TLS or for GSSAPI, a cancellation, or a startup of protocol 3.
fn is_postgresql(sender: Sender, bytes: &[u8]) -> bool {
    let (Some(length), Some(code)) = (u32_at(bytes, 0), u32_at(bytes, 4)) else { return false };
    let fits = match code {
        80_877_103 | 80_877_104 => length == 8,
        80_877_102 => (16..=268).contains(&length),
        code if code >> 16 == 3 && code & 0xffff < 16 => {
            let parameter = bytes.get(8).is_some_and(u8::is_ascii_lowercase);
            (9..=10_000).contains(&length) && parameter
        }
        _ => false,
    };
    sender == Sender::Client && fits
}

/// The server's greeting of protocol 10: its version as text, ended by a zero.
fn is_mysql(sender: Sender, bytes: &[u8]) -> bool {
    let (Some(header), Some(rest)) = (bytes.first_chunk::<5>(), bytes.get(5..)) else {
        return false;
    };
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let version = rest.split(|it| *it == 0).next().unwrap_or_default();
    sender == Sender::Server
        && (32..=1024).contains(&length)
        && header[3..] == [0, 10]
        && version.len() < rest.len()
        && version.first().is_some_and(u8::is_ascii_digit)
        && version.iter().all(u8::is_ascii_graphic)
}

/// A message that answers none, as a query, as it is today or compressed.
fn is_mongodb(sender: Sender, bytes: &[u8]) -> bool {
    let number = |at: usize| {
        bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |it| i32::from_le_bytes(*it))
    };
    sender == Sender::Client
        && bytes.len() >= 16
        && (20..=48_000_000).contains(&number(0))
        && number(8) == 0
        && [2004, 2012, 2013].contains(&number(12))
}

/// The header of AMQP 0-9-1 or 1.0, with TLS or SASL to come or without.
fn is_amqp(_: Sender, bytes: &[u8]) -> bool {
    let version = bytes.strip_prefix(b"AMQP").and_then(<[u8]>::first_chunk);
    version.is_some_and(|it| {
        matches!(it, [0, 0, 9, 1] | [0 | 2 | 3, 1, 0, 0] | [1, 1, 0 | 8 | 9, 0 | 10])
    })
}

/// `CONNECT` with the protocol's name behind its length.
fn is_mqtt(sender: Sender, bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(&[0x10]) else { return false };
    // A length of one to four bytes, the last of which has no bit on top.
    let end = rest.iter().take(4).position(|it| it & 0x80 == 0);
    let name = end.and_then(|end| rest.get(end + 1..)).unwrap_or_default();
    let is_named = name.starts_with(b"\0\x04MQTT") || name.starts_with(b"\0\x06MQIsdp");
    sender == Sender::Client && is_named
}

fn is_nats(sender: Sender, bytes: &[u8]) -> bool {
    match sender {
        Sender::Server => bytes.starts_with(b"INFO {\""),
        Sender::Client => bytes.starts_with(b"CONNECT {"),
    }
}

/// A request to connect, by its fixed fields; or one of its commands of four letters.
fn is_zookeeper(sender: Sender, bytes: &[u8]) -> bool {
    const COMMANDS: [&[u8]; 6] = [b"ruok", b"stat", b"srvr", b"mntr", b"conf", b"cons"];
    let number = |at| u32_at(bytes, at).unwrap_or(u32::MAX);
    let connects = [44, 45].contains(&number(0))
        && number(4) == 0
        && (1..=86_400_000).contains(&number(16))
        && number(28) == 16;
    let command = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    sender == Sender::Client && (connects || COMMANDS.contains(&command))
}

/// Its options are asked for, or a session is begun with the language's version.
fn is_cassandra(sender: Sender, bytes: &[u8]) -> bool {
    let Some([version, flags, _, _, code]) = bytes.first_chunk() else { return false };
    let length = u32_at(bytes, 5).unwrap_or(u32::MAX);
    let begins = match code {
        5 => length == 0 && bytes.len() == 9,
        1 => length <= 4096 && contains(bytes, b"CQL_VERSION"),
        _ => false,
    };
    sender == Sender::Client && (3..=6).contains(version) && *flags < 32 && begins
}

/// A line of the text protocol, or a header of the binary one.
fn is_memcached(sender: Sender, bytes: &[u8]) -> bool {
    if sender == Sender::Server {
        return false;
    }
    if let Some([0x80, code, key, key_low, extras, 0]) = bytes.first_chunk() {
        let needs = u32::from(u16::from_be_bytes([*key, *key_low])) + u32::from(*extras);
        let body = u32_at(bytes, 8).unwrap_or(0);
        return bytes.len() >= 24
            && *code <= 0x26
            && *extras <= 20
            && (needs..1 << 26).contains(&body);
    }
    let Some(line) = line(bytes) else { return false };
    let words: Vec<&[u8]> = line.split(|it| *it == b' ').collect();
    let is_key = |it: &[u8]| (1..=250).contains(&it.len()) && it.iter().all(u8::is_ascii_graphic);
    match &words[..] {
        [b"version" | b"stats"] => true,
        [b"get" | b"gets", keys @ ..] => !keys.is_empty() && keys.iter().all(|it| is_key(it)),
        [b"set" | b"add" | b"replace", key, flags, time, length, ..] => {
            is_key(key) && [flags, time, length].iter().all(|it| is_number(it))
        }
        _ => false,
    }
}

/// TDS: what comes before the login.
fn is_sqlserver(sender: Sender, bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<9>() else { return false };
    let length = u16::from_be_bytes([header[2], header[3]]);
    sender == Sender::Client
        && header[..2] == [0x12, 1]
        && (20..=4096).contains(&length)
        && header[4..6] == [0, 0]
        && header[6] <= 1
        && header[7..] == [0, 0]
}

/// Of version 1, 2 or 3, in a frame of NetBIOS.
fn is_smb(_: Sender, bytes: &[u8]) -> bool {
    bytes.first() == Some(&0) && matches!(bytes.get(4..8), Some([0xfe | 0xff, b'S', b'M', b'B']))
}

/// A message in BER whose operation is to bind, to search or an extended one.
fn is_ldap(sender: Sender, bytes: &[u8]) -> bool {
    let Some([0x30, length]) = bytes.first_chunk() else { return false };
    let skip = match *length {
        0..=0x7f => 2,
        0x81..=0x84 => 2 + usize::from(length & 7),
        _ => return false,
    };
    let body = bytes.get(skip..).unwrap_or_default();
    let Some([2, width @ 1..=4]) = body.first_chunk() else { return false };
    let operation = body.get(2 + usize::from(*width)..).unwrap_or_default();
    let is_known = match operation.first() {
        Some(0x60) => operation.windows(3).take(6).any(|it| it == [2, 1, 3] || it == [2, 1, 2]),
        Some(0x63) => operation.windows(2).take(6).any(|it| it == [4, 0] || it[0] == 4),
        Some(0x77) => operation.windows(8).any(|it| it == b"1.3.6.1."),
        _ => false,
    };
    sender == Sender::Client && is_known
}

/// The server's greeting names the protocol (RFC 5321), or the client greets.
fn is_smtp(sender: Sender, bytes: &[u8]) -> bool {
    match sender {
        Sender::Server => is_welcome(bytes) && contains(bytes, b"SMTP"),
        Sender::Client => bytes.starts_with(b"EHLO ") || bytes.starts_with(b"HELO "),
    }
}

fn is_ftp(sender: Sender, bytes: &[u8]) -> bool {
    sender == Sender::Server && is_welcome(bytes) && contains(bytes, b"FTP")
}

fn is_welcome(bytes: &[u8]) -> bool {
    bytes.starts_with(b"220 ") || bytes.starts_with(b"220-")
}

/// A request that a client begins with. Nothing in it says Kafka, so that all that is fixed has to hold.
fn is_kafka(sender: Sender, bytes: &[u8]) -> bool {
    /// Produce, Fetch, Metadata, FindCoordinator, SaslHandshake, ApiVersions, with their latest versions.
    const KEYS: [(u16, u16); 6] = [(0, 15), (1, 20), (3, 15), (10, 10), (17, 3), (18, 8)];
    let (Some(length), Some(key), Some(version), Some(name)) =
        (u32_at(bytes, 0), u16_at(bytes, 4), u16_at(bytes, 6), u16_at(bytes, 12))
    else {
        return false;
    };
    let named = bytes.get(14..).unwrap_or_default();
    let client = named.get(..usize::from(name)).unwrap_or(named);
    sender == Sender::Client
        && KEYS.iter().any(|(known, latest)| *known == key && version <= *latest)
        && (u32::from(name) + 10..=1 << 16).contains(&length)
        && (1..=249).contains(&name)
        && !client.is_empty()
        && client.iter().all(u8::is_ascii_graphic)
}

/// A message of RFC 1035 with one question that is well formed as far as it is here.
fn is_dns(sender: Sender, bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk::<12>() else { return false };
    let (flags, count) = (u16::from_be_bytes([header[2], header[3]]), |at: usize| {
        u16::from_be_bytes([header[at], header[at + 1]])
    });
    let is_answer = flags >> 15 == 1;
    let fits = if is_answer {
        sender == Sender::Server && count(6) <= 512 && count(8) <= 64 && count(10) <= 64
    } else {
        // No answers, no code of an error.
        sender == Sender::Client
            && flags & 0x8f == 0
            && count(6) == 0
            && count(8) == 0
            && count(10) <= 2
    };
    // A query, and none of the bits that have no meaning.
    if !fits || flags & 0x7840 != 0 || count(4) != 1 {
        return false;
    }
    let mut rest = &bytes[12..];
    let mut length = 0;
    loop {
        match rest {
            [] => return length > 0,
            [0, kind @ ..] => {
                // Its class is the internet's, or any.
                let class = u16_at(kind, 2);
                return class.is_none_or(|it| [1, 255].contains(&(it & 0x7fff)));
            }
            [size @ 1..=63, label @ ..] => {
                let size = usize::from(*size);
                let here = label.get(..size).unwrap_or(label);
                let is_text = here.iter().all(u8::is_ascii_graphic);
                length += size + 1;
                if !is_text || length > 254 {
                    return false;
                }
                rest = label.get(size..).unwrap_or_default();
            }
            _ => return false,
        }
    }
}

fn is_dns_over_tcp(sender: Sender, bytes: &[u8]) -> bool {
    let length = u16_at(bytes, 0).unwrap_or(0);
    let message = bytes.get(2..).unwrap_or_default();
    usize::from(length) >= message.len().max(17) && is_dns(sender, message)
}

/// A long header of version 1 or 2 (RFC 9000, RFC 9369), or of a draft, with an identifier that fits.
fn is_quic(_: Sender, bytes: &[u8]) -> bool {
    let (Some(version), Some(first)) = (u32_at(bytes, 1), bytes.first()) else { return false };
    let is_known = matches!(version, 1 | 0x6b33_43cf) || version >> 8 == 0xff_0000;
    let length = bytes.get(5).copied().unwrap_or(u8::MAX);
    first & 0xc0 == 0xc0 && is_known && length <= 20
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
