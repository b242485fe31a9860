//! Describes an object: its YAML, its events, its owners and the objects that it owns. Parts that could
//! not be read are listed in `incomplete`.

use kube::core::DynamicObject;
use serde::Serialize;
use stallproof::{Deadline, sentence};

use super::events::{About, Event, events};
use super::get::get;
use super::state::state;
use super::tree::{Tree, tree};
use crate::connection::Connection;
use crate::error::Error;

#[derive(Clone, Debug, Serialize)]
pub struct Description {
    pub object: DynamicObject,
    /// The state in a word, from [`state`].
    pub state: String,
    /// The events, the latest first.
    pub events: Vec<Event>,
    pub tree: Tree,
    /// The parts that are missing, and why.
    pub incomplete: Vec<String>,
}

pub async fn describe(
    connection: &Connection,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
    deadline: Deadline,
) -> Result<Description, Error> {
    let mut object = get(connection, kind, namespace, name, deadline).await?;
    object.metadata.managed_fields = None;
    let (events, mut tree) = futures::join!(
        events(connection, About::Object(&object), deadline),
        tree(connection, &object, deadline),
    );
    let mut incomplete = std::mem::take(&mut tree.incomplete);
    let events = match events {
        Ok(page) => {
            if page.continue_token.is_some() {
                incomplete.push("events: there are more than could be read".to_owned());
            }
            page.items
        }
        Err(error) => {
            incomplete.push(format!("events: {}", sentence(&error)));
            Vec::new()
        }
    };
    Ok(Description { state: state(&object), object, events, tree, incomplete })
}
