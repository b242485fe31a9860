//! The store that objects live in: opened in one place, looked at now and then.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use objects::kinds::{
    AccessRole, AccessToken, Cluster, ClusterMesh, IdentityProvider, RoleMapping, User,
};
use objects::{Kind, Objects, Within};
use prometheus_client::registry::Registry;
use stallproof::readiness::Component;
use stallproof::{Deadline, Readiness, Tasks};
use tokio::sync::OnceCell;

use crate::config::{Config, Store};
use crate::daemon::process;
use crate::output::Failure;

/// Owns what we write in an API server, whichever replica writes.
const MANAGER: &str = "fairlead";
/// How often a store that is not well is looked at, and how long it may take to answer.
const LOOK: Duration = Duration::from_secs(5);
/// How often one that is well is looked at: what depends on it notices sooner by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Opens the store that is configured.
pub(crate) fn open(
    config: &Config,
    tasks: &Tasks,
    registry: &mut Registry,
) -> Result<Objects, Failure> {
    let objects = match config.store {
        Store::Embedded => {
            let dir = config.data.join("objects");
            Objects::embedded(&dir, tasks).map_err(|e| process::explain(&e))?
        }
        Store::Kubernetes => kubernetes(tasks),
    };
    objects.register(registry);
    Ok(objects)
}

/// The API server of this process's cluster, whatever the store is.
pub(crate) fn kubernetes(tasks: &Tasks) -> Objects {
    Objects::kubernetes(lazy_client(tasks), MANAGER)
}

/// A client that is made when it is first used, and again as long as that fails: a kubeconfig that
/// is not there yet, or whose plugin hangs, holds up no start.
pub(crate) fn lazy_client(tasks: &Tasks) -> kube::Client {
    let client = Arc::new(OnceCell::<kube::Client>::new());
    let tasks = tasks.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, tasks) = (client.clone(), tasks.clone());
        async move {
            let client = client.get_or_try_init(|| connect(tasks)).await?;
            client.send(request).await.map_err(io::Error::other)
        }
    });
    kube::Client::new(service, "default")
}

async fn connect(tasks: Tasks) -> io::Result<kube::Client> {
    let mut config = kube::Config::infer().await.map_err(io::Error::other)?;
    // kube would wait out a "come back later" by itself, beyond any deadline of ours.
    config.default_retry = false;
    // On a thread of its own: a credential plugin runs there for as long as it likes.
    let make = move || {
        let builder = kube::client::ClientBuilder::try_from(config)?;
        Ok::<_, kube::Error>(builder.build())
    };
    let deadline = Deadline::after(LOOK);
    let making = tasks.spawn_blocking("store-client", deadline, make).await;
    let made = deadline.bound(making.map_err(io::Error::other)?).await;
    made.map_err(io::Error::other)?.map_err(io::Error::other)?.map_err(io::Error::other)
}

/// Says from now on whether the store answers, and what to do if not.
pub(crate) fn announce(objects: &Objects, readiness: &Readiness, tasks: &Tasks) {
    let stored = readiness.announce("store");
    tasks.spawn("store-readiness", say_whether_stored(objects.clone(), stored, tasks.clone()));
}

async fn say_whether_stored(objects: Objects, stored: Component, tasks: Tasks) {
    let stop = tasks.stopping();
    loop {
        let wait = match look(&objects).await {
            Ok(()) => {
                stored.ready();
                LOOK_AGAIN
            }
            Err(error) => {
                stored.not_ready(stallproof::sentence(&error));
                LOOK
            }
        };
        if stop.bound(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

/// Every kind of ours can be read.
async fn look(objects: &Objects) -> Result<(), objects::Error> {
    async fn one<K: Kind>(objects: &Objects) -> Result<(), objects::Error> {
        objects.list::<K>(&Within::default(), Deadline::after(LOOK)).await.map(|_| ())
    }
    one::<User>(objects).await?;
    one::<AccessRole>(objects).await?;
    one::<AccessToken>(objects).await?;
    one::<IdentityProvider>(objects).await?;
    one::<RoleMapping>(objects).await?;
    one::<Cluster>(objects).await?;
    one::<ClusterMesh>(objects).await
}
