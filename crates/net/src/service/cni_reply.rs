//! Translates results and errors to CNI's own, for the runtime.

use std::net::IpAddr;

use cni::spec::{Code, Error, Interface, Ip, Prefix, Route, Success};
use cni::wire::Reply;
use kernel::netlink::Mac;

use super::RequestError;
use crate::Attachment;
use crate::addresses::AssignError;
use crate::datapath::PodInterfaces;
use crate::wiring::WiringError;

const INFLIGHT: &str =
    "`fairlead inflight` on this node shows what it does; the runtime tries again";
const READYZ: &str = "the agent serves as soon as it is reconciled; see its /readyz";

/// Describes the interfaces, the node's first, with the addresses on the container's.
pub(super) fn success(attachment: &Attachment, pair: PodInterfaces) -> Success {
    let PodInterfaces { host_interface, host_mac, pod_interface, pod_mac, mtu, .. } = pair;
    let interface =
        |name, mac: Mac, sandbox| Interface { name, mac: mac.to_string(), mtu, sandbox };
    let gateway_of = |own: IpAddr| match own {
        IpAddr::V4(_) => (IpAddr::from([0; 4]), pair.gateway_v4.map(IpAddr::V4)),
        IpAddr::V6(_) => (IpAddr::from([0; 16]), pair.gateway_v6.map(IpAddr::V6)),
    };
    let ip = |own| Ip { address: Prefix::host(own), gateway: gateway_of(own).1, interface: 1 };
    let route = |own| {
        let (address, gateway) = gateway_of(own);
        Route { destination: Prefix { address, length: 0 }, gateway }
    };
    Success {
        interfaces: vec![
            interface(host_interface, host_mac, None),
            interface(pod_interface, pod_mac, Some(attachment.netns.clone())),
        ],
        ips: attachment.addresses().map(ip).collect(),
        routes: attachment.addresses().map(route).collect(),
        ..Success::default()
    }
}

pub(super) fn failed(error: &RequestError) -> Reply {
    let told = Error::new(error.code(), stallproof::sentence(error));
    Reply::Failed(told.details(error.details()))
}

impl RequestError {
    pub(super) fn code(&self) -> Code {
        match self {
            Self::NamespaceMissing | Self::NotForARuntime => Code::Io,
            Self::NotANamespace(_) => Code::InvalidEnvironment,
            Self::Assign(
                AssignError::NoPool { .. }
                | AssignError::Exhausted { .. }
                | AssignError::Fixed { .. },
            ) => Code::NoAddress,
            Self::Assign(AssignError::Journal { .. }) => Code::Record,
            Self::Wiring(_) | Self::Thread(_) | Self::StaleLeft(_) => Code::Wiring,
            Self::UnknownAttachment(_) => Code::UnknownContainer,
            Self::Differs { .. } => Code::Differs,
            Self::NotAvailable(_) => Code::NotAvailable,
            Self::LimitedConnectivity(_) => Code::LimitedConnectivity,
            Self::UnknownNamespace(_)
            | Self::Assign(_)
            | Self::Release(_)
            | Self::Stuck { .. }
            | Self::NoThread { .. }
            | Self::TooLate
            | Self::NotBegun(_)
            | Self::Reconciling => Code::TryAgainLater,
        }
    }

    pub(super) fn is_retryable(&self) -> bool {
        self.code() == Code::TryAgainLater
    }

    /// Says what to do, or what happens next.
    fn details(&self) -> String {
        let fixed = match self {
            Self::Differs { differences, .. } => return differences.join("; "),
            Self::StaleLeft(left) => {
                let told =
                    |(key, error): &(_, Self)| format!("{key}: {}", stallproof::sentence(error));
                return left.iter().map(told).collect::<Vec<_>>().join("; ");
            }
            Self::Wiring(WiringError { left: Some(_), .. }) => {
                "its address is kept until a DEL or reconciling has removed what is left"
            }
            Self::Wiring(_) => "what was begun is undone; the runtime tries again",
            Self::Thread(_) => "see the agent's log",
            Self::Stuck { .. } => {
                "the agent gave up on it, and undoes it when the kernel lets go of it; until then \
                 requests about it are refused"
            }
            Self::NoThread { .. } | Self::TooLate | Self::NotBegun(_) => INFLIGHT,
            Self::Reconciling | Self::NotAvailable(_) => READYZ,
            Self::LimitedConnectivity(_) => "`fairlead net check` on this node says what is wrong",
            Self::UnknownAttachment(_) => {
                "it was never added here, or was deleted; restart the container"
            }
            Self::NamespaceMissing
            | Self::NotANamespace(_)
            | Self::UnknownNamespace(_)
            | Self::Assign(_)
            | Self::Release(_)
            | Self::NotForARuntime => "",
        };
        fixed.to_owned()
    }
}
