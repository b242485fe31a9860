//! `Report` of `openreports.io/v1alpha1`, the form in which policy engines say what they found. It is
//! another project's kind, written where a cluster serves it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::store::{Invalid, Kind};

/// What was found in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct OpenReport {
    pub metadata: ObjectMeta,
    pub source: String,
    pub summary: OpenReportSummary,
    pub results: Vec<OpenReportResult>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct OpenReportSummary {
    pub pass: usize,
    pub fail: usize,
    pub warn: usize,
    pub error: usize,
    pub skip: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct OpenReportResult {
    pub source: String,
    pub policy: String,
    pub category: String,
    /// `fail`, or `warn` for what is only recorded.
    pub result: String,
    pub timestamp: OpenReportTime,
    pub resources: Vec<ObjectReference>,
    pub message: String,
    pub properties: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct OpenReportTime {
    pub seconds: i64,
    pub nanos: i32,
}

impl kube::Resource for OpenReport {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Report".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "openreports.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "reports".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Another project's kind: its own server checks it.
impl Kind for OpenReport {
    const NAME: &'static str = "Report";
    const NAMESPACED: bool = true;

    fn check(&self) -> Result<(), Invalid> {
        Ok(())
    }
}
