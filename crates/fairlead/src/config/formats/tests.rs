use super::*;

#[test]
fn sizes_take_both_spellings_of_binary_units() {
    let mib = 1 << 20;
    let size = size(mib).or("auto");
    let read = |text| (size.read)(text);
    assert_eq!(read("auto"), Some(None));
    assert_eq!(read("512MiB"), Some(Some(512 * mib)));
    assert_eq!(read("512Mi"), Some(Some(512 * mib)));
    assert_eq!(read("1048576"), Some(Some(mib)));
    for text in ["", "1", "512MB", "512mib", "-1Gi", "99999999999Ti", "Mi"] {
        assert_eq!(read(text), None, "{text:?}");
    }
}

#[test]
fn a_list_is_read_as_it_is_shown_and_has_a_word_for_nothing() {
    let subnets = subnets();
    for text in ["none", "10.64.0.0/16", "10.64.0.0/16+fd64::/112,fd65::/112"] {
        assert_eq!((subnets.show)(&(subnets.read)(text).unwrap()), text);
    }
    for text in ["", ",", "10.64.0.0", "10.64.0.0/16+10.65.0.0/16", "10.64.0.0/16,none"] {
        assert!((subnets.read)(text).is_none(), "{text:?}");
    }
    let files = files();
    assert_eq!((files.read)("/a::/b"), Some(vec![PathBuf::from("/a"), PathBuf::from("/b")]));
    assert_eq!(files.expected, "none, or files separated by colons");
}

#[test]
fn a_choice_takes_what_yaml_makes_of_on_and_off_only_where_these_are_choices() {
    let serve = on_or_off();
    assert_eq!((serve.expected.as_str(), (serve.show)(&true)), ("on or off", "on".to_owned()));
    assert_eq!(
        ["on", "true", "off", "false"].map(|text| (serve.read)(text)),
        [Some(true), Some(true), Some(false), Some(false)]
    );
    let track = one_of([("auto", 1), ("never", 2), ("off", 3)]);
    assert_eq!(track.expected, "auto, never or off");
    assert_eq!((track.read)("false"), Some(3));
    assert_eq!((track.read)("true"), None);
}
