//! `PodDisruptionBudget` of `policy/v1beta1`, for API servers before 1.21, which have no other. It was removed
//! in 1.25.

use std::borrow::Cow;

use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::store::{Invalid, Kind};

/// Its fields are those of `policy/v1`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BetaPodDisruptionBudget {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodDisruptionBudgetSpec,
}

impl kube::Resource for BetaPodDisruptionBudget {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Self::NAME.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "policy".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1beta1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "poddisruptionbudgets".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Kind for BetaPodDisruptionBudget {
    const NAME: &'static str = "PodDisruptionBudget";
    const NAMESPACED: bool = true;

    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
