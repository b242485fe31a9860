//! What the leader tells each group of itself: how many are in it, and that nothing is enforced.

use std::time::Duration;

use objects::kinds::{Group, GroupMode, GroupStatus};
use objects::{Error, Expected, Objects, Within};
use stallproof::{Deadline, Tasks};
use tracing::debug;

use super::{Ingest, NOT_ENFORCED};

/// For one request to the store.
const REQUEST: Duration = Duration::from_secs(10);
/// The least time from one round to the next: pods come and go all the time.
const PACE: Duration = Duration::from_secs(5);

impl Ingest {
    /// Until `tasks` stops. `objects` are those of the term.
    pub fn keep_statuses(&self, objects: &Objects, tasks: &Tasks) {
        let (ingest, objects) = (self.clone(), objects.clone());
        let stop = tasks.stopping();
        tasks.spawn("guard-statuses", async move {
            let mut changes = ingest.0.inventory.subscribe();
            loop {
                let round = async {
                    if let Err(error) = ingest.tell_groups(&objects).await {
                        let error = stallproof::sentence(&error);
                        debug!(error, "cannot tell groups what became of them");
                    }
                    tokio::time::sleep(PACE).await;
                    changes.changed().await;
                };
                if stop.bound(round).await.is_none() {
                    return;
                }
            }
        });
    }

    async fn tell_groups(&self, objects: &Objects) -> Result<(), Error> {
        let groups = objects.list::<Group>(&Within::default(), Deadline::after(REQUEST)).await?;
        for group in groups.items {
            let status = self.status_of(&group);
            if group.status.as_ref() == Some(&status) {
                continue;
            }
            let wanted = Group { status: Some(status), ..group };
            match objects.apply_status(&wanted, Expected::Any, Deadline::after(REQUEST)).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn status_of(&self, group: &Group) -> GroupStatus {
        let name = group.metadata.name.as_deref().unwrap_or_default();
        let members = self.0.inventory.read(|inventory| inventory.groups.members(name).count());
        let enforcement = match group.spec.mode {
            Some(GroupMode::Protect) => NOT_ENFORCED,
            _ => "none is asked for",
        };
        GroupStatus {
            members: u32::try_from(members).unwrap_or(u32::MAX),
            enforcement: enforcement.to_owned(),
        }
    }
}
