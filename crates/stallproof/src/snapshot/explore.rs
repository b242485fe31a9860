use shuttle::{check_pct, check_random, future, thread};

use super::*;

#[test]
fn no_update_is_lost_and_readers_see_generations_in_order() {
    fn race() {
        let snapshot = Snapshot::new((0_u64, 0_u64));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let snapshot = snapshot.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        snapshot.update(|(one, two)| {
                            *one += 1;
                            *two += 1;
                            true
                        });
                    }
                })
            })
            .collect();
        let reader = thread::spawn({
            let snapshot = snapshot.clone();
            move || {
                let mut last = 0;
                for _ in 0..4 {
                    let view = snapshot.load();
                    let (one, two) = *view;
                    assert_eq!(one, two, "a torn view");
                    assert_eq!(one, view.generation(), "a value of another generation");
                    assert!(view.generation() >= last);
                    last = view.generation();
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        reader.join().unwrap();
        assert_eq!(*snapshot.load(), (4, 4));
    }
    check_random(race, 2000);
    check_pct(race, 1000, 3);
}

#[test]
fn the_last_publish_is_always_heard() {
    fn race() {
        let snapshot = Snapshot::new(0);
        let mut changes = snapshot.subscribe();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let snapshot = snapshot.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        snapshot.update(|value| {
                            *value += 1;
                            true
                        });
                    }
                })
            })
            .collect();
        // A missed wake-up would leave nobody to run, which shuttle reports as a deadlock.
        future::block_on(async {
            let mut last = 0;
            while last < 4 {
                let view = changes.changed().await;
                assert!(view.generation() > last, "told of the same generation twice");
                last = view.generation();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
    }
    check_random(race, 2000);
    check_pct(race, 1000, 3);
}
