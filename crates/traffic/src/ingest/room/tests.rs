use super::Room;

#[test]
fn there_is_room_until_it_is_taken_and_again_when_it_is_given_back() {
    let room = Room::new(100);
    let first = room.take(60).unwrap();
    assert!(room.take(50).is_none());
    let second = room.take(40).unwrap();
    assert_eq!(room.taken(), 100);
    drop(first);
    assert_eq!(room.taken(), 40);
    assert!(room.take(60).is_some());
    drop(second);
    assert_eq!(room.taken(), 0);
}

#[test]
fn what_is_larger_than_the_room_has_it_alone() {
    let room = Room::new(100);
    let large = room.take(1000).unwrap();
    assert!(room.take(1).is_none());
    drop(large);
    let small = room.take(1).unwrap();
    assert!(room.take(1000).is_none());
    drop(small);
}
