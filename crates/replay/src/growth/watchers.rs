//! Users who watch: one object's change, told to all of them.

use std::path::Path;
use std::time::Duration;

use objects::kinds::AdmissionRule;
use objects::{Event, Expected, Objects, Watch, Within};
use serde_json::json;
use stallproof::{Deadline, Tasks};

use super::meter::{Grows, Meter};
use crate::incident::Cannot;

/// Objects beside the one that changes.
const OBJECTS: usize = 20;

pub(super) fn measure(watchers: usize, dir: &Path, meter: &mut Meter) -> Result<(), Cannot> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = Tasks::new("growth");
    let watched = runtime.block_on(async {
        let objects = Objects::embedded(&dir.join("objects"), &tasks)?;
        for number in 0..OBJECTS {
            objects.apply(&object(number, 0)?, Expected::Any, soon()).await?;
        }
        Ok::<_, Cannot>(objects)
    });
    let objects = watched?;
    let mut watches: Vec<Watch<AdmissionRule>> = meter.standing("store: watches, memory", || {
        runtime.block_on(async {
            let mut watches = Vec::new();
            for _ in 0..watchers {
                let mut watch = objects.watch::<AdmissionRule>(Within::default());
                watch.next().await;
                watches.push(watch);
            }
            watches
        })
    });
    let mut failed = None;
    // Each is told: the work of one watcher is the same however many there are.
    meter.change("store: an object changes, told to each watcher", Grows::Linearly, |i| {
        let told = runtime.block_on(async {
            objects.apply(&object(0, i + 1)?, Expected::Any, soon()).await?;
            for watch in &mut watches {
                if !matches!(watch.next().await, Some(Event::Applied(_))) {
                    return Err("a watcher was told something else than a change".into());
                }
            }
            Ok::<_, Cannot>(())
        });
        failed = failed.take().or(told.err());
    });
    let _ = runtime.block_on(tasks.shutdown(Duration::from_secs(5)));
    failed.map_or(Ok(()), Err)
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn object(number: usize, turn: usize) -> Result<AdmissionRule, Cannot> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
        "metadata": {"name": format!("rule-{number:05}")},
        "spec": {"action": "deny", "criteria": [
            {"name": "image", "op": "containsAny", "value": format!("bad{turn}/*")}]},
    }))?)
}
