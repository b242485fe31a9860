use super::super::leader::{PASS, PassClaims, stated_user, within};
use super::*;

/// What a replica has sealed, once.
enum Sealed<'a> {
    Home(IpAddr),
    Client(IpAddr),
    Pass(&'a str),
}

/// Lines: the user of a pass, a method and a path that a replica sealed something of; then the method, the path
/// and the header of whoever saw that seal. The first byte says what was sealed.
///
/// A seal is good for what it was made of and for nothing else: this kind of statement, this request, this client
/// or user.
pub fn replica_seals(bytes: &[u8]) {
    const SEAL: &str = "S";
    const UNTIL: i64 = 5;
    let Some((kind, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (user, first, second, shown) = (next(), next(), next(), next());
    let request = |line: &str| {
        let (method, path) = line.split_once(' ')?;
        http::Request::builder().method(method).uri(path).body(()).ok()
    };
    let (Some(first), Some(mut second)) = (request(first), request(second)) else { return };
    let Ok(shown) = HeaderValue::from_str(shown) else { return };
    let address = IpAddr::from([1, 2, 3, 4]);
    let (sealed, message) = match kind % 3 {
        0 => (Sealed::Home(address), home(address)),
        1 => (Sealed::Client(address), claim(UNTIL, address, &first)),
        _ => {
            let pass = PassClaims { until: UNTIL, user, method: first.method(), uri: first.uri() };
            (Sealed::Pass(user), pass.written())
        }
    };
    let is_sealed = |text: &[u8], seal: &str| seal == SEAL && text == message.as_bytes();
    let is_same = |within: fn(&http::Uri) -> String| {
        first.method() == second.method() && within(first.uri()) == within(second.uri())
    };
    let (as_client, as_pass) =
        (is_same(http::Uri::to_string), is_same(|uri| within(uri).to_owned()));
    let now = Timestamp::UNIX_EPOCH;
    if let Some(at) = shown.to_str().ok().and_then(|shown| stated_home(shown, is_sealed)) {
        assert!(matches!(sealed, Sealed::Home(of) if of == at), "{message:?} is no home");
    }
    second.headers_mut().insert(CLIENT, shown.clone());
    second.headers_mut().insert(PASS, shown);
    if let Some(client) = stated_client(&second, now, is_sealed) {
        let right = matches!(sealed, Sealed::Client(of) if of == client && as_client);
        assert!(right, "{message:?} does not say {client}");
    }
    if let Some(named) = stated_user(&second, now, is_sealed) {
        let right = matches!(sealed, Sealed::Pass(of) if of == named && as_pass);
        assert!(right, "{message:?} does not say {named:?}");
    }
    // What nobody sealed, and what is too late, is nothing.
    assert!(stated_client(&second, now, |_, _| false).is_none());
    assert!(stated_user(&second, Timestamp::MAX, |_, _| true).is_none());
}
