use super::*;

const PLACE: &str = "here";

/// The file of a sensor. One that was read and saved again is read as the same.
pub fn sensor_file(bytes: &[u8]) {
    let (agent, now): (Arc<str>, _) = ("a".into(), Moment(1_000));
    let limits = Limits { totals: 64, flows: 64, records: 16, named: 16, ..Limits::default() };
    let Ok(Loaded::Whole(sensor)) = load(bytes, &agent, PLACE, limits, now) else { return };
    let saved = sensor.save(PLACE);
    let Ok(Loaded::Whole(again)) = load(&saved, &agent, PLACE, limits, now) else {
        panic!("what was saved cannot be read")
    };
    assert_eq!(again.save(PLACE).len(), saved.len());
    assert_eq!(again.totals.len(), sensor.totals.len());
    assert_eq!(again.flows.len(), sensor.flows.len());
}
