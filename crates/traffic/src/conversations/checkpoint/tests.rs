use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Checkpoint, CheckpointError, Progress, load};
use crate::conversations::codec::Reader;
use crate::conversations::{
    Directory, Limits, Moment, Protocol, Record, Report, Router, Shard, Totals, shards,
};

fn checkpoint() -> Checkpoint {
    let seed = [11, 22];
    let router = Router::new(seed, 2);
    let limits = Limits { rows_per_pair: 2, age: Duration::from_secs(20), ..Limits::default() };
    let (mut shards, _) = shards(router, limits);
    let records = (1..40_u16).map(|n| Record {
        client: ([10, 0, 0, (n % 5) as u8]).into(),
        server: if n % 2 == 0 { "fd00::1".parse().unwrap() } else { [192, 0, 2, 1].into() },
        port: n,
        protocol: Protocol::TCP,
        application: (n % 3 == 0).then(|| Arc::from("http")),
        totals: Totals { bytes: u64::from(n) << 40, packets: 3, sessions: 2 },
        first: Moment(1000),
        last: Moment(u64::from(n) * 1000),
    });
    let report = Report {
        agent: "a".into(),
        incarnation: 5,
        sequence: 1,
        records: records.collect(),
        ..Report::default()
    };
    let routed = router.route(&report, &Directory::new(), |_| false);
    for (shard, batch) in shards.iter_mut().zip(&routed.parts) {
        shard.apply(batch, Moment(50_000));
        // Folds the first pair, which was last seen before.
        shard.age(Moment(60_000), 1);
    }
    Checkpoint {
        seed,
        progress: vec![Progress { agent: "a".into(), incarnation: 5, through: 1 }],
        shards: shards.iter().map(Shard::save).collect(),
        learned: vec![1, 2, 3],
        violations: Vec::new(),
    }
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conversations");
    assert!(Checkpoint::read(&path).unwrap().is_none());
    let checkpoint = checkpoint();
    Checkpoint { shards: Vec::new(), ..checkpoint.clone() }.write(&path).unwrap();
    checkpoint.write(&path).unwrap();
    assert!(Checkpoint::read(&path).unwrap() == Some(checkpoint));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(dir.path().read_dir().unwrap().count(), 1, "no draft is left");
}

#[test]
fn shards_are_the_same_after_a_restart_and_may_be_others() {
    let limits = Limits { rows_per_pair: 2, ..Limits::default() };
    let saved = checkpoint();
    let lines = |count| {
        let (_, shards, readers) = saved.restore(count, limits).unwrap();
        let view = readers.view();
        let mut lines: Vec<_> =
            view.conversations(|_| true, Moment(0)).map(|it| format!("{it:?}")).collect();
        lines.sort();
        let marks: usize = shards.iter().map(Shard::totals).sum();
        (lines, view.folded(), view.totals(), marks)
    };
    let two = lines(2);
    assert!(two.0.len() > 10 && !two.1.is_empty() && two.3 == 39);
    assert_eq!(lines(1), two);
    assert_eq!(lines(7), two);
}

#[test]
fn a_file_that_is_not_whole_is_refused_with_a_sentence() {
    let bytes = checkpoint().to_bytes();
    let why = |bytes: &[u8]| Checkpoint::from_bytes(bytes).unwrap_err().to_string();
    assert_eq!(why(b"{}"), "it is no checkpoint of conversations");
    assert!(why(&bytes[..bytes.len() - 1]).contains("damaged"));
    assert!(why(&bytes[..20]).contains("damaged"));
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    assert!(matches!(Checkpoint::from_bytes(&changed), Err(CheckpointError::Damaged)));
    let mut newer = bytes;
    newer[8] = 9;
    assert!(why(&newer).contains("version 9"), "{}", why(&newer));
}

#[test]
fn the_seed_is_not_shown() {
    let checkpoint = Checkpoint { seed: [987_654_321, 123_456_789], ..checkpoint() };
    let shown = format!("{checkpoint:?} {:?}", Router::new(checkpoint.seed, 1));
    assert!(!shown.contains("987654321") && !shown.contains("123456789"), "{shown}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let router = Router::new([1, 2], 2);
        let (mut shards, _) = shards(router, Limits::default());
        let _ = load(&mut Reader(&bytes), router, &mut shards);
        let _ = Checkpoint::from_bytes(&bytes);
    }

    /// Past the sum, as an attacker with the program could make it.
    #[test]
    fn a_section_with_changed_bytes_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let section = &checkpoint().shards[0];
        let mut bytes = section.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let router = Router::new([1, 2], 2);
        let (mut shards, _) = shards(router, Limits::default());
        let _ = load(&mut Reader(&bytes), router, &mut shards);
        for shard in &mut shards {
            shard.publish();
            let _ = shard.age(Moment(5_000), 100);
        }
    }
}
