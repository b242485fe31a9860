use super::Name;

#[test]
fn symbols_come_apart() {
    let cases = [
        ("main.main", "main", None, "main", false),
        ("main.main.func14.1", "main", None, "main", true),
        ("main.(*Cache).Get", "main", Some("Cache"), "Get", false),
        ("main.(*Reg).Hold.func1", "main", Some("Reg"), "Hold", true),
        (
            "a.com/b/cache.CacheMethod.GetHostCount",
            "a.com/b/cache",
            Some("CacheMethod"),
            "GetHostCount",
            false,
        ),
        (
            "a.com/b/cache.cacheMutexRLock",
            "a.com/b/cache",
            None,
            "cacheMutexRLock",
            false,
        ),
        (
            "a.com/b.(*Map[...]).Load",
            "a.com/b",
            Some("Map"),
            "Load",
            false,
        ),
        ("a.com/b.Do[a.com/c.T]", "a.com/b", None, "Do", false),
        (
            "gopkg.in/yaml%2ev2.Unmarshal",
            "gopkg.in/yaml%2ev2",
            None,
            "Unmarshal",
            false,
        ),
        ("main.(*Reg).Hold-fm", "main", Some("Reg"), "Hold", false),
        ("main.glob..func1", "main", None, "glob", true),
        ("main.init.0", "main", None, "init", true),
        ("main.run.gowrap2", "main", None, "run", true),
    ];
    for (symbol, package, receiver, function, closure) in cases {
        let name = Name::of(symbol);
        assert_eq!(
            (name.package, name.receiver, name.function, name.closure),
            (package, receiver, function, closure),
            "{symbol}"
        );
    }
}

#[test]
fn any_text_has_a_name() {
    for text in [
        "",
        ".",
        "..",
        "(",
        "(*",
        "a.(",
        "a.(*",
        "a.()",
        "[",
        "/",
        "a/.b",
        "ß.(*ü).ö",
        "a.b.",
    ] {
        let _ = (Name::of(text), Name::short(text));
    }
}

#[test]
fn a_short_name_keeps_closures_and_receivers() {
    assert_eq!(
        Name::short("a.com/b/cache.(*T[a.com/x.Y]).M.func1"),
        "cache.(*T[a.com/x.Y]).M.func1"
    );
}
