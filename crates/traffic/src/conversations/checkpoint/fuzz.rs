use super::*;
use crate::rules::Learned;
use crate::violations::Violations;

/// A checkpoint whose sum is right, its sections, and the same bytes as a section alone. What was read and
/// saved again is read as the same.
pub fn checkpoint(bytes: &[u8]) {
    let _ = Checkpoint::from_bytes(bytes);
    let summed = [bytes, &Sha256::digest(bytes)].concat();
    if let Ok(checkpoint) = Checkpoint::from_bytes(&summed) {
        let _ = checkpoint.restore(2, limits());
        let again = Checkpoint::from_bytes(&checkpoint.to_bytes()).expect("it was just written");
        assert_eq!(again.to_bytes(), checkpoint.to_bytes());
    }
    let (Some((which, section)), seed) = (bytes.split_first(), [1, 2]) else { return };
    match which % 3 {
        0 => {
            let of_shard = |shards| Checkpoint {
                seed,
                progress: Vec::new(),
                shards,
                learned: Vec::new(),
                violations: Vec::new(),
            };
            let one = of_shard(vec![section.to_vec()]);
            if let Ok((_, shards, _)) = one.restore(1, limits()) {
                let again = of_shard(vec![shards[0].save()]);
                assert!(again.restore(1, limits()).is_ok(), "what was saved cannot be read");
            }
        }
        1 => {
            if let Ok(learned) = Learned::load(section) {
                let again = Learned::load(&learned.save()).expect("it was just saved");
                assert_eq!(again.save(), learned.save());
            }
        }
        _ => {
            if let Ok(violations) = Violations::load(section, 8) {
                let again = Violations::load(&violations.save(), 8).expect("it was just saved");
                assert_eq!(again.save(), violations.save());
            }
        }
    }
}

fn limits() -> Limits {
    Limits { rows: 64, rows_per_pair: 4, totals: 64, totals_per_agent: 32, ..Limits::default() }
}
