#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn the_kernel_replies_to_a_request_with_its_content() {
    testkit::requires!(root);
    let socket = socket(Ipv6Addr::LOCALHOST).unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let sent = request(77, b"who", 100);
    socket.send_to(&sent, (Ipv6Addr::LOCALHOST, 0)).unwrap();
    let mut buffer = [0; 2048];
    loop {
        // One that needs a capability hears the request as well.
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        let Some((sequence, content)) = reply(&buffer[..length]) else { continue };
        assert_eq!((sequence, from.ip()), (77, Ipv6Addr::LOCALHOST.into()));
        assert_eq!((content.len(), &content[..3]), (100, &b"who"[..]));
        break;
    }
}

#[test]
fn what_is_no_reply_gives_none() {
    assert_eq!(reply(&[]), None);
    assert_eq!(reply(&[REPLY; 7]), None);
    assert_eq!(reply(&request(1, b"", 0)), None);
}
