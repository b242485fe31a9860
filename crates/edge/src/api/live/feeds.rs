//! Topics that are one document: clusters, what is in flight, meshes, violations.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use objects::{Event, Id};
use serde_json::Value;
use stallproof::Deadline;
use tokio::time::{MissedTickBehavior, interval};

use super::{Frames, frames, guarded, rights_in_fleet};
use crate::api::inflight::{INFLIGHT, Now};
use crate::api::leader::LeaderPoll;
use crate::api::meshes::MESHES;
use crate::api::traffic::violations::{self, VIOLATIONS, ViolationParams};
use crate::api::{
    Api, Caller, ErrorCode, Problem, Rights, clusters as fleet_clusters, meshes as fleet_meshes,
    sse,
};

/// How often the fleet is told: a change of one cluster tells of all.
const CLUSTERS: Duration = Duration::from_millis(500);
const INFLIGHT_EVERY: Duration = Duration::from_secs(1);
const MESHES_EVERY: Duration = Duration::from_millis(500);
const VIOLATIONS_EVERY: Duration = Duration::from_millis(200);

pub(super) fn clusters(api: &Api, caller: &Caller, id: u64) -> Result<Frames, Problem> {
    // What they may see may change; whether they may look at all is who they are.
    let rights = Rights::new(api, caller, |_| true);
    let (told, who) = (api.clone(), caller.who.clone());
    let frames = sse::follow_every(CLUSTERS, api.fleet.changes(), move || {
        Some(frames::data(id, fleet_clusters::document(&told, &who), None))
    });
    guarded((api, caller), id, ("clusters", rights), frames)
}

pub(super) fn inflight(api: &Api, caller: &Caller, id: u64) -> Result<Frames, Problem> {
    let rights = rights_in_fleet(api, caller, INFLIGHT)?;
    let mut every = interval(INFLIGHT_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let told = api.clone();
    let frames = stream::unfold(every, move |mut every| {
        let told = told.clone();
        async move {
            every.tick().await;
            Some((frames::data(id, Now::of(&told), None), every))
        }
    });
    guarded((api, caller), id, ("inflight", rights), frames)
}

pub(super) fn meshes(api: &Api, caller: &Caller, id: u64) -> Result<Frames, Problem> {
    let rights = rights_in_fleet(api, caller, MESHES)?;
    let watch = (api.meshes.watch(), BTreeMap::new());
    let frames = stream::unfold(watch, move |(mut watch, mut known)| async move {
        let mut changed = watch.next().await?;
        let together = Deadline::after(MESHES_EVERY);
        loop {
            match changed {
                Event::Restarted(all) => {
                    known = all.into_iter().map(|mesh| (Id::of(&mesh), mesh)).collect();
                }
                Event::Applied(mesh) => {
                    known.insert(Id::of(&mesh), mesh);
                }
                Event::Deleted(mesh) => {
                    known.remove(&Id::of(&mesh));
                }
            }
            // Whatever comes meanwhile is told together.
            match together.bound(watch.next()).await {
                Ok(Some(next)) => changed = next,
                Ok(None) | Err(_) => break,
            }
        }
        let all = known.values().cloned().collect();
        Some((frames::data(id, fleet_meshes::document(all), None), (watch, known)))
    });
    guarded((api, caller), id, ("meshes", rights), frames)
}

/// What was against the rules: all that is kept or came after `resume`, then what comes.
pub(super) fn violations(
    api: &Api,
    caller: &Caller,
    id: u64,
    resume: Option<&Value>,
) -> Result<Frames, Problem> {
    let rights = rights_in_fleet(api, caller, VIOLATIONS)?;
    let resume = resume.and_then(Value::as_str).and_then(|token| token.parse().ok());
    let mut told = resume.unwrap_or_default();
    let ingest = match (violations::document(api, told), LeaderPoll::begin(api, &caller.who)) {
        (Ok((ingest, ..)), _) => ingest,
        (Err(_), Some(leader)) => {
            let told = violations::relayed(leader, &ViolationParams::default(), told);
            let frames = told.map(move |told| match told {
                Ok((document, change)) => frames::data(id, document, Some(&change.to_string())),
                Err(why) => frames::end(Some(id), None, &Problem::new(ErrorCode::NotReady, why)),
            });
            return guarded((api, caller), id, ("violations", rights), frames);
        }
        (Err(problem), None) => return Err(problem),
    };
    let (asked, mine, mut first) = (api.clone(), ingest.clone(), true);
    let frames = sse::follow_every(VIOLATIONS_EVERY, ingest.violation_changes(), move || {
        let (now, document, change, is_new) = violations::document(&asked, told).ok()?;
        if !now.is(&mine) || !(std::mem::take(&mut first) || is_new) {
            return None;
        }
        told = change;
        Some(frames::data(id, document, Some(&change.to_string())))
    });
    let active = api.traffic.as_ref().map(|traffic| traffic.active.clone());
    let over = async move {
        let Some(active) = active else { return };
        // Looked at after subscribing: the term may have ended before.
        let mut terms = active.changes();
        while active.ingest().is_some_and(|now| now.is(&ingest)) {
            terms.changed().await;
        }
    };
    let last = async move {
        let detail = "another replica leads now; subscribe again";
        frames::end(Some(id), None, &Problem::new(ErrorCode::NotReady, detail))
    };
    guarded(
        (api, caller),
        id,
        ("violations", rights),
        frames.take_until(over).chain(stream::once(last)),
    )
}
