//! `kill -9` at any instant: what agents were told is durable is known to the next controller, in the same epoch,
//! and is counted once.

use testkit::{acknowledge, killed};

use super::*;

/// The conversations, each of which has as many bytes as the number of the last report that told of it.
const PORTS: u16 = 8;
/// Reports of one life are numbered within so many.
const LIFE: u64 = 1_000_000;

fn said(sequence: u64) -> Report {
    report(sequence, (1..=PORTS).map(|port| record(1, 2, port, sequence)).collect())
}

/// Reports and saves without end; says what is durable.
fn write(dir: &Path, life: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let controller = Controller::start(dir, 2).await;
        assert!(controller.save().await);
        acknowledge(format_args!("epoch {}", controller.ingest.epoch()));
        let report = async {
            let mut known = 0;
            for sequence in LIFE * (life + 1).. {
                let counted = controller.offer(&said(sequence)).await.unwrap();
                if counted.durable > known {
                    known = counted.durable;
                    acknowledge(format_args!("durable {known}"));
                }
            }
        };
        let save = async {
            loop {
                assert!(controller.save().await);
            }
        };
        tokio::join!(report, save);
    });
}

async fn look(dir: &Path, life: u64, epoch: Option<u64>, durable: u64) {
    let controller = Controller::start(dir, 3).await;
    if let Some(epoch) = epoch {
        assert_eq!(controller.ingest.epoch(), epoch, "the checkpoint is lost, in life {life}");
    }
    if durable > 0 {
        let all = controller.until(|all| all.len() == usize::from(PORTS)).await;
        for it in all {
            let bytes = it.totals.bytes;
            assert!(bytes >= durable, "{bytes} where {durable} was durable, in life {life}");
        }
    }
    // What an agent has not heard to be durable it sends again, and what it has by now.
    let last = LIFE * (life + 1) + LIFE / 2;
    for sequence in [durable.max(1), last] {
        controller.offer(&said(sequence)).await.unwrap();
    }
    controller.until_bytes(last * u64::from(PORTS)).await;
}

#[test]
fn what_is_durable_survives_kill_9() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (mut epoch, mut durable) = (None, 0);
    let test = "ingest::tests::killed::what_is_durable_survives_kill_9";
    killed(test, write, |dir, killed| {
        for line in &killed.acknowledged {
            match line.split_once(' ').map(|(what, number)| (what, number.parse().unwrap())) {
                Some(("epoch", number)) => {
                    assert_eq!(*epoch.get_or_insert(number), number, "in life {}", killed.life);
                }
                Some(("durable", number)) => durable = durable.max(number),
                _ => panic!("{line}"),
            }
        }
        runtime.block_on(look(dir, killed.life, epoch, durable));
    });
}
