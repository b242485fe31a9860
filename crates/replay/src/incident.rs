//! The incidents there are: what each needs, the load it makes of a plan, the two designs, and what
//! must hold.

pub(crate) mod cluster_sync;
pub(crate) mod cni_burst;
pub(crate) mod controller_stall;
pub(crate) mod late_crd;
pub(crate) mod late_node;

use std::path::Path;
use std::time::Duration;

use crate::outcome::{Ended, Parameters, Requirement};
use crate::plan::{Design, Plan};
use crate::record::Recorder;

/// What kept a design from being run: a sentence.
pub(crate) type Cannot = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Ran = Result<(), Cannot>;

pub struct Incident {
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    pub needs: &'static [Need],
    /// What the samples' level counts.
    pub level: &'static str,
    /// How long the old design is watched, unless the plan says otherwise.
    pub(crate) limit: fn(&Plan) -> Duration,
    pub(crate) parameters: fn(&Plan) -> Parameters,
    pub(crate) old: fn(&Plan, &Recorder) -> Ran,
    pub(crate) new: fn(&Plan, &Recorder) -> Ran,
    pub(crate) requirements: fn(&Plan, &Ended) -> Vec<Requirement>,
    /// Why the run shows nothing, if it does not.
    pub(crate) void: fn(&Plan, &Ended, &Ended) -> Option<String>,
}

pub static INCIDENTS: &[Incident] = &[
    controller_stall::INCIDENT,
    cluster_sync::INCIDENT,
    cni_burst::INCIDENT,
    late_crd::INCIDENT,
    late_node::INCIDENT,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The user root, and the right to make network namespaces.
    Root,
    /// kube-apiserver and etcd, in the directory that `KUBEBUILDER_ASSETS` names.
    Kube,
    /// The CNI plugin beside this program.
    Plugin,
}

impl Need {
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Kube => "kube-apiserver",
            Self::Plugin => "fairlead-cni",
        }
    }

    /// What is missing here, and what to do about it.
    pub fn missing(self, plugin: &Path) -> Option<String> {
        match self {
            Self::Root => testkit::need::netns()
                .err()
                .map(|why| format!("network namespaces cannot be made here ({why}): run it as root")),
            Self::Kube => testkit::need::kube().err().map(|why| {
                format!(
                    "{why}: put kube-apiserver and etcd in a directory and set KUBEBUILDER_ASSETS to it"
                )
            }),
            Self::Plugin => (!plugin.is_file()).then(|| {
                format!(
                    "{} is not there: build it (`cargo build -p cni`), or name it with --plugin",
                    plugin.display()
                )
            }),
        }
    }
}

impl Incident {
    pub fn named(name: &str) -> Option<&'static Self> {
        INCIDENTS.iter().find(|incident| incident.name == name)
    }

    pub(crate) fn run(&self, design: Design, plan: &Plan, recorder: &Recorder) -> Ran {
        match design {
            Design::Old => (self.old)(plan, recorder),
            Design::New => (self.new)(plan, recorder),
        }
    }
}

impl std::fmt::Debug for Incident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incident").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
