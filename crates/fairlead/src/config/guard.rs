//! Settings of a controller that counts conversations.

use objects::kinds::GroupMode;

use super::Setting;

#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// The cluster of the fleet whose pods, services and nodes are told apart.
    pub(crate) cluster: Option<String>,
    /// Of workloads in no group that has one.
    pub(crate) mode: GroupMode,
}

impl Default for Guard {
    fn default() -> Self {
        Self { cluster: None, mode: GroupMode::Discover }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "guard.cluster",
        metavar: "NAME",
        help: "Cluster of the fleet whose pods, services and nodes conversations are told apart by; `auto` takes that of the store, or what agents tell where the store is embedded",
        allowed: "auto, or the name of a cluster",
        take: |c, v| {
            c.guard.cluster = match v {
                "auto" => None,
                name => Some(named(name)?),
            };
            Some(())
        },
        show: |c| c.guard.cluster.clone().unwrap_or_else(|| "auto".to_owned()),
    },
    Setting {
        key: "guard.mode",
        metavar: "MODE",
        help: "Mode of workloads in no group that has one: `discover` learns rules from what is seen, `monitor` reports what no rule allows",
        allowed: "discover or monitor",
        take: |c, v| {
            c.guard.mode = match v {
                "discover" => GroupMode::Discover,
                "monitor" => GroupMode::Monitor,
                _ => return None,
            };
            Some(())
        },
        show: |c| c.guard.mode.to_string(),
    },
];

fn named(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains('/')).then(|| text.to_owned())
}
