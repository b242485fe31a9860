//! The variables of a container that can be told from the object.

use super::Around;
use crate::images::ImageConfig;
use crate::pod::Env;
use crate::request::Request;

pub(super) fn variables<'r>(
    around: &Around<'r>,
    request: &'r Request,
    known: Option<&'r ImageConfig>,
) -> Vec<(&'r str, &'r str)> {
    let env = &around.container.env;
    let mut variables: Vec<(&str, &str)> = Vec::with_capacity(env.len());
    for variable in env {
        let Some(value) = value(variable, around, request) else { continue };
        match variables.iter_mut().find(|(name, _)| *name == variable.name) {
            Some((_, before)) => *before = value,
            None => variables.push((&variable.name, value)),
        }
    }
    let of_image = known.map(|known| &known.env).into_iter().flatten();
    let unset = of_image.filter(|(name, _)| env.iter().all(|variable| variable.name != **name));
    variables.extend(unset.map(|(name, value)| (name.as_str(), value.as_str())));
    variables
}

/// None where only the running pod knows.
fn value<'r>(variable: &'r Env, around: &Around<'r>, request: &'r Request) -> Option<&'r str> {
    if !variable.value.is_empty() {
        return Some(&variable.value);
    }
    let Some(from) = &variable.value_from else { return Some("") };
    match from.field_ref.as_ref()?.field_path.as_str() {
        "metadata.name" => Some(&request.name),
        "metadata.namespace" => Some(&request.namespace),
        "spec.nodeName" => Some(&around.pod.spec.node_name),
        "spec.serviceAccountName" => Some(&around.pod.spec.service_account_name),
        "status.hostIP" | "status.podIP" => Some(""),
        _ => None,
    }
}
