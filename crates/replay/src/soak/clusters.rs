//! Clusters come and go and change their credentials, a whole set at a time, beside some that are dead. A
//! view is of one generation, those that are well become usable, and the dead never do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use flow::Tasks;

use super::{Rounds, Soak};
use crate::incident::Cannot;
use crate::new::cluster_sync::{start, write};
use crate::stage::fleet::Fleet as _;
use crate::stage::stand_in::{Manner, StandIns};

/// In every generation: those that stay, and those that are of that generation alone.
const STAYING: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
enum Fault {
    Nothing,
    Rotate,
    Replace,
}

const FAULTS: [(&str, Fault); 3] = [
    ("none", Fault::Nothing),
    ("credentials rotated", Fault::Rotate),
    ("clusters replaced", Fault::Replace),
];

pub(super) fn run(soak: &Soak, rounds: &Rounds<'_>) -> Result<(), Cannot> {
    let runtime = tokio::runtime::Runtime::new()?;
    let tasks = Tasks::new("clusters");
    let torn = Arc::<AtomicU64>::default();
    let done = Arc::<AtomicBool>::default();
    let ran = runtime.block_on(change(soak, rounds, &tasks, &torn, &done));
    done.store(true, Relaxed);
    runtime.block_on(tasks.shutdown(Duration::from_secs(10)));
    ran
}

/// Those that stay, one of each manner that is dead, and as many of this generation.
fn clusters(generation: u32) -> Vec<(String, Manner)> {
    let staying = (0..STAYING).map(|i| (format!("stays-{i}"), Manner::Rotates));
    let dead = [Manner::Refuses, Manner::BlackHole];
    let dead = dead.into_iter().enumerate().map(|(i, manner)| (format!("dead-{i}"), manner));
    let own = (0..STAYING).map(|i| (format!("of-{generation}-{i}"), Manner::Well));
    staying.chain(dead).chain(own).collect()
}

async fn change(
    soak: &Soak,
    rounds: &Rounds<'_>,
    tasks: &Tasks,
    torn: &Arc<AtomicU64>,
    done: &Arc<AtomicBool>,
) -> Result<(), Cannot> {
    let stand_ins = StandIns::start(tasks)?;
    let file = soak.dir.join("kubeconfig");
    let (mut generation, mut token) = (1, 1);
    write(&file, &clusters(generation), token, &stand_ins)?;
    let fleet = start(&soak.dir.join("store"), file.clone(), tasks)?;
    let reader = {
        let (fleet, torn, done) = (fleet.clone(), Arc::clone(torn), Arc::clone(done));
        std::thread::spawn(move || {
            while !done.load(Relaxed) {
                if is_torn(&fleet) {
                    torn.fetch_add(1, Relaxed);
                }
                // A reader that leaves the machine to the others.
                std::thread::sleep(Duration::from_micros(200));
            }
        })
    };
    let ran = async {
        while rounds.next() {
            match rounds.fault(&FAULTS) {
                Fault::Nothing => {}
                Fault::Rotate => token += 1,
                Fault::Replace => generation += 1,
            }
            write(&file, &clusters(generation), token, &stand_ins)?;
            let until = Instant::now() + PATIENCE;
            while !all_well(&fleet, generation) {
                if Instant::now() > until {
                    return Err("a cluster that is well is not usable".into());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            for i in 0..STAYING {
                let connection = fleet.look_up(&format!("stays-{i}")).ok_or("a cluster is gone")?;
                fleet.call(&connection).await?;
            }
            if torn.load(Relaxed) > 0 {
                return Err("a reader saw two generations at once".into());
            }
        }
        Ok::<_, Cannot>(())
    };
    let ran = ran.await;
    done.store(true, Relaxed);
    let _ = reader.join();
    ran
}

fn all_well(fleet: &fleet::Fleet, generation: u32) -> bool {
    let view = fleet.view();
    let well = clusters(generation);
    let mut well = well.iter().filter(|(_, m)| matches!(m, Manner::Well | Manner::Rotates));
    well.all(|(name, _)| view.clusters.get(name.as_str()).is_some_and(|c| c.is_usable()))
}

/// More than one generation, half of one, or a dead cluster that is called usable.
fn is_torn(fleet: &fleet::Fleet) -> bool {
    let view = fleet.view();
    let mut generations = std::collections::BTreeMap::<&str, usize>::new();
    let mut dead = false;
    for (name, cluster) in &view.clusters {
        if let Some(own) = name.strip_prefix("of-") {
            *generations.entry(own.split('-').next().unwrap_or_default()).or_default() += 1;
        }
        dead |= name.starts_with("dead-") && cluster.is_usable();
    }
    dead || generations.len() > 1 || generations.values().any(|count| *count != STAYING)
}
