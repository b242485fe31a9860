//! Teaches an API server our kinds.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::Value;
use stallproof::Deadline;

use crate::kinds;
use crate::store::Error;

const FIELD_MANAGER: &str = "fairlead";
/// Between two looks whether a definition is served: a server takes some tenths of a second.
const LOOK: Duration = Duration::from_millis(100);
/// The first minor version of Kubernetes 1 that knows CEL rules. An older one refuses a definition
/// that has them, so it gets one without; our own checks hold all the same.
const CEL_SINCE: u32 = 25;

/// Installs the definitions of all our kinds on a cluster, or brings them up to date; returns when
/// their objects can be written.
pub async fn install(client: Client, deadline: Deadline) -> Result<(), Error> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let doing = "asking for the server's version";
    let version = bound(doing, deadline, client.apiserver_version()).await?;
    let digits = version.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
    let knows_cel =
        version.major != "1" || digits.parse().is_ok_and(|minor: u32| minor >= CEL_SINCE);
    for definition in kinds::definitions() {
        let name = definition.name_any();
        let doing = format!("installing {name}");
        let json = kinds::manifest(&definition).map_err(|error| unavailable(&doing, error));
        let mut json = json?;
        if !knows_cel {
            without_cel(&mut json);
        }
        let params = PatchParams::apply(FIELD_MANAGER).force();
        bound(&doing, deadline, api.patch(&name, &params, &Patch::Apply(json))).await?;
    }
    for definition in kinds::definitions() {
        let name = definition.name_any();
        let doing = format!("waiting for {name} to be served");
        while !is_established(&bound(&doing, deadline, api.get(&name)).await?) {
            let slept = deadline.bound(tokio::time::sleep(LOOK)).await;
            slept.map_err(|_| Error::TooLate { doing: doing.clone() })?;
        }
    }
    Ok(())
}

async fn bound<T>(
    doing: &str,
    deadline: Deadline,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Error> {
    match deadline.bound(call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            Err(Error::Forbidden { doing: doing.to_owned(), why: status.message.clone() })
        }
        Ok(Err(error)) => Err(unavailable(doing, error)),
        Err(_) => Err(Error::TooLate { doing: doing.to_owned() }),
    }
}

fn unavailable(doing: &str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Unavailable { doing: doing.to_owned(), source: Box::new(source) }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().filter_map(|status| status.conditions.as_ref());
    conditions
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
}

fn without_cel(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_cel);
        }
        Value::Array(items) => items.iter_mut().for_each(without_cel),
        _ => {}
    }
}
