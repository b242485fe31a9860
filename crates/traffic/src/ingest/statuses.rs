//! Writes the status of each group: how many members it has, and that nothing is enforced.

use std::time::Duration;

use objects::kinds::{Group, GroupMode, GroupStatus};
use objects::{Attempt, Error, Expected, Next, Objects, Pace, Reconciler, Within, reconcile};
use stallproof::Tasks;
use stallproof::snapshot::Changes;

use super::{Ingest, Inventory, NOT_ENFORCED};

/// The least time from one round to the next: pods come and go all the time.
const SETTLE: Duration = Duration::from_secs(5);

struct GroupStatuses {
    ingest: Ingest,
    objects: Objects,
    changes: Changes<Inventory>,
}

impl Ingest {
    /// Writes the groups' statuses until `tasks` stops. `objects` are those of the term.
    pub fn keep_statuses(&self, objects: &Objects, tasks: &Tasks) {
        let changes = self.0.inventory.subscribe();
        let statuses = GroupStatuses { ingest: self.clone(), objects: objects.clone(), changes };
        let (pace, ledger) = (Pace { settle: SETTLE, ..Pace::default() }, self.0.ledger.clone());
        let (key, stop) = ("all".to_owned(), tasks.stopping());
        let work = reconcile("group-status", key, pace, statuses, ledger, stop);
        tasks.spawn("guard-statuses", work);
    }
}

impl Reconciler for GroupStatuses {
    type Error = Error;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, Error> {
        let groups = self.objects.list::<Group>(&Within::default(), attempt.deadline).await?;
        for group in groups.items {
            let status = self.status_of(&group);
            if group.status.as_ref() == Some(&status) {
                continue;
            }
            let wanted = Group { status: Some(status), ..group };
            match self.objects.apply_status(&wanted, Expected::Any, attempt.deadline).await {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Next::OnChange)
    }

    async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

impl GroupStatuses {
    fn status_of(&self, group: &Group) -> GroupStatus {
        let name = group.metadata.name.as_deref().unwrap_or_default();
        let inventory = self.ingest.inventory();
        let enforcement = match group.spec.mode {
            Some(GroupMode::Protect) => NOT_ENFORCED,
            _ => "none is asked for",
        };
        GroupStatus {
            members: u32::try_from(inventory.groups.members(name).count()).unwrap_or(u32::MAX),
            enforcement: enforcement.to_owned(),
        }
    }
}
