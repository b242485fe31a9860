use super::*;

fn sighting(uid: &str, above: Option<&str>) -> ReviewedOwner {
    let owner = Owner { name: uid.to_owned(), ..Owner::default() };
    ReviewedOwner { uid: uid.to_owned(), above: above.map(str::to_owned), owner }
}

#[tokio::test(start_paused = true)]
async fn what_a_root_made_stands_for_it_and_no_longer_than_it() {
    let mut sightings = OwnerRecorder::default();
    let began = Instant::now();
    sightings.take(sighting("root", None), began);
    sightings.take(sighting("below", Some("root")), began + KEPT / 2);
    sightings.take(sighting("orphan", Some("never-seen")), began);
    let seen = sightings.seen();
    assert_eq!(seen.owner("below").unwrap().name, "root");
    assert!(seen.owner("orphan").is_none(), "nobody knows who made what is above it");

    assert!(!sightings.expire(began + KEPT - Duration::from_secs(1)));
    assert!(sightings.expire(began + KEPT));
    assert!(sightings.seen().owner("below").is_none());
    assert!(sightings.seen().owner("root").is_none());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_seen_again_begins_anew() {
    let mut sightings = OwnerRecorder::default();
    let began = Instant::now();
    sightings.take(sighting("root", None), began);
    sightings.take(sighting("root", None), began + KEPT / 2);
    assert!(!sightings.expire(began + KEPT));
    assert!(sightings.seen().owner("root").is_some());
    assert!(sightings.expire(began + KEPT / 2 * 3));
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_than_may_be_and_the_oldest_go() {
    let mut sightings = OwnerRecorder::default();
    let began = Instant::now();
    for i in 0..=MOST {
        sightings.take(sighting(&format!("{i}"), None), began + Duration::from_millis(i as u64));
    }
    assert_eq!(sightings.seen().0.len(), MOST);
    assert_eq!(sightings.order.len(), MOST);
    assert!(sightings.seen().owner("0").is_none());
    assert!(sightings.seen().owner(&MOST.to_string()).is_some());
}
