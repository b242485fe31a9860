use super::*;

#[test]
fn one_that_only_waits_for_an_answer_gives_its_slot_back() {
    let slots = Slots::new();
    let mut open: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
    assert_eq!(open.len(), AT_ONCE);
    assert!(open[0].half_close() && open[0].half_close(), "twice is once");
    let more = slots.take().unwrap();
    assert!(slots.take().is_none());
    drop(more);
    assert!(open.iter_mut().all(Slot::half_close), "{HALF_CLOSED} may");
    let mut one = slots.take().unwrap();
    assert!(!one.half_close(), "more may not");
    drop((one, open));
    assert_eq!(slots.open.available_permits(), AT_ONCE);
    assert_eq!(slots.half_closed.available_permits(), HALF_CLOSED);
}
