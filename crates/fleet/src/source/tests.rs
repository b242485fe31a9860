use super::*;

fn offer(name: &str, kind: SourceKind, place: &str) -> Offer {
    Offer {
        name: name.into(),
        source: Source { kind, place: place.to_owned() },
        labels: BTreeMap::new(),
        enabled: true,
        access: Err("none".to_owned()),
    }
}

#[test]
fn of_two_with_one_name_the_first_wins_and_the_other_is_shown() {
    let found = [
        offer("a", SourceKind::Imported, "a"),
        offer("b", SourceKind::Kubeconfig, "/one"),
        offer("c", SourceKind::Kubeconfig, "/one"),
        offer("a", SourceKind::Secret, "ns/a"),
        offer("b", SourceKind::Secret, "ns/b"),
    ];
    let shown = |merged: &Merged| -> (Vec<String>, Vec<(String, String)>) {
        let winners = merged.wanted.values().map(|offer| offer.source.place.clone());
        let losers = merged.shadowed.iter();
        let losers = losers.map(|(loser, by)| (loser.source.place.clone(), by.place.clone()));
        (winners.collect(), losers.collect())
    };
    let pair = |loser: &str, by: &str| (loser.to_owned(), by.to_owned());
    let (winners, shadowed) = shown(&merge(&found, |_| None, |_| false));
    assert_eq!(winners, ["a", "/one", "/one"]);
    assert_eq!(shadowed, [pair("ns/a", "a"), pair("ns/b", "/one")]);

    // Who has a name keeps it, whoever comes; who had it and is gone has not.
    let holder = |name: &str| match name {
        "b" => Some(Source { kind: SourceKind::Secret, place: "ns/b".to_owned() }),
        "a" => Some(Source { kind: SourceKind::Secret, place: "ns/gone".to_owned() }),
        _ => None,
    };
    let (winners, shadowed) = shown(&merge(&found, holder, |_| false));
    assert_eq!(winners, ["a", "ns/b", "/one"]);
    assert_eq!(shadowed, [pair("ns/a", "a"), pair("/one", "ns/b")]);
}

#[test]
fn the_list_of_disabled_clusters_is_for_those_that_cannot_say_so_themselves() {
    let found = [
        offer("a", SourceKind::Imported, "a"),
        offer("b", SourceKind::Kubeconfig, "/one"),
        offer("c", SourceKind::Kubeconfig, "/one"),
    ];
    let merged = merge(&found, |_| None, |name| name != "c");
    let enabled: Vec<_> = merged.wanted.values().map(|offer| offer.enabled).collect();
    assert_eq!(enabled, [true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_tells_the_same_again_wakes_nobody() {
    let output = SourceOutput { found: Snapshot::new(None), told: Arc::default() };
    let heard = async || {
        let wait = std::time::Duration::from_secs(1);
        tokio::time::timeout(wait, output.told.notified()).await.is_ok()
    };
    output.tell(vec![offer("a", SourceKind::Secret, "ns/a")]);
    assert!(heard().await);
    output.tell(vec![offer("a", SourceKind::Secret, "ns/a")]);
    assert!(!heard().await);
    output.tell(Vec::new());
    assert!(heard().await);
}
