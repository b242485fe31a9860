use super::*;
use crate::kinds::Cluster;

/// The lines of a watch, as an API server sends them: an object says what it is and has none of the server's
/// bookkeeping; what a watch does with them is [`watching::fuzz::heard`].
pub fn watch_lines(bytes: &[u8]) {
    let of = Type::of::<Cluster>();
    let events =
        bytes.split(|byte| *byte == b'\n').map_while(|line| serde_json::from_slice(line).ok());
    let lines = events.map(|event: WatchEvent<DynamicObject>| line(&of, event, &|object| object));
    watching::fuzz::heard(lines.inspect(|line| {
        let (Line::Applied(changed) | Line::Deleted(changed)) = line else { return };
        for (object, _) in changed {
            assert!(object.types.is_some() && object.metadata.managed_fields.is_none());
        }
    }));
}
