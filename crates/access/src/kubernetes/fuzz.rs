use super::*;

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"];

/// A request to a cluster's API: the first byte chooses the method, the rest is a path with a query.
///
/// What is passed on means the same to every reader of paths, and what changes something needs a right to
/// change something.
pub fn kube_path(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let method = METHODS[usize::from(*first) % METHODS.len()];
    let (path, query) =
        text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    let Ok(request) = KubeRequest::parse(method, path, query, first & 0x80 != 0) else { return };
    let parts: Vec<&str> = path.split('/').collect();
    for part in &parts {
        assert!(!part.is_empty() && *part != "." && *part != "..", "{path}");
        assert!(!part.contains(['%', '\\', ';', '#', ' ']) && part.is_ascii(), "{path}");
    }
    let reads = matches!(method, "GET" | "HEAD");
    let KubeRequest::Resource(asked) = request else {
        assert!(reads || matches!(request, KubeRequest::Review(_)) && method == "POST");
        return;
    };
    assert!(reads || asked.verb.writes(), "{method} {path} needs {:?}", asked.verb);
    let asks = asked.asks();
    assert!(
        asks.first()
            .is_some_and(|(resource, verb)| *resource == asked.resource() && *verb == asked.verb)
    );
    // A shell, a port and a log are never had for the right to read or make an object.
    let streams = match asked.subresource {
        Some("exec" | "attach") => Some(Verb::Exec),
        Some("portforward") => Some(Verb::Forward),
        Some("log") if reads => Some(Verb::Log),
        _ => None,
    };
    if let Some(verb) = streams.filter(|_| asked.group.is_empty() && asked.plural == "pods") {
        assert_eq!(asked.verb, verb, "{method} {path}");
    }
    assert_ne!(asked.subresource, Some("proxy"), "{path}");
    // The request is the whole path, and nothing else.
    let namespace = asked.namespace.map(|namespace| ["namespaces", namespace]);
    let named = [Some(asked.plural), asked.name, asked.subresource].into_iter().flatten();
    let whole: Vec<&str> = namespace.into_iter().flatten().chain(named).collect();
    let before = if asked.group.is_empty() { 2 } else { 3 };
    assert_eq!(parts[before..], whole, "{path}: {asked:?}");
}
