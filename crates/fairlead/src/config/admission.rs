//! The admission webhook.

use std::time::Duration;

use guard::admission::FailurePolicy;

use super::Setting;
use super::listen::{self, ListenAddress};
use crate::cli::values;

#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) webhook: Webhook,
    pub(crate) listen: ListenAddress,
    /// For deny rules without a mode of their own: whether they refuse, rather than record.
    pub(crate) protect: bool,
    /// Namespaces that no rule looks into.
    pub(crate) exempt: Vec<String>,
    /// Users whose word on owners is taken, beside Kubernetes' own controllers.
    pub(crate) controllers: Vec<String>,
    /// Whether injected sidecars are exempt from rules on images, variables and resources.
    pub(crate) exempt_sidecars: bool,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) timeout: Duration,
    /// How API servers reach the webhook: through a Service of their cluster, or by a URL.
    pub(crate) service: Option<Service>,
    pub(crate) url: Option<values::HttpsUrl>,
    /// Clusters of the fleet to register at, beside that of the store.
    pub(crate) clusters: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// Whether the webhook is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Webhook {
    /// In a pod whose store is its cluster, or as soon as somebody says how it is reached.
    Auto,
    On,
    /// Not served, and no longer registered.
    Off,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            webhook: Webhook::Auto,
            listen: ListenAddress::loopback(7683),
            protect: false,
            exempt: ["kube-system", "kube-public", "kube-node-lease"].map(String::from).into(),
            controllers: Vec::new(),
            exempt_sidecars: false,
            failure_policy: FailurePolicy::Ignore,
            timeout: Duration::from_secs(10),
            service: None,
            url: None,
            clusters: Vec::new(),
        }
    }
}

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: "admission.webhook",
        metavar: "WHETHER",
        help: "Serve the admission webhook: `auto` does in a pod whose store is its cluster, or when admission.service or admission.url is set; `off` also takes back the registration in the store's cluster",
        allowed: "auto, on or off",
        take: |c, v| {
            c.admission.webhook = match v {
                "auto" => Webhook::Auto,
                "on" | "true" => Webhook::On,
                "off" | "false" => Webhook::Off,
                _ => return None,
            };
            Some(())
        },
        show: |c| {
            match c.admission.webhook {
                Webhook::Auto => "auto",
                Webhook::On => "on",
                Webhook::Off => "off",
            }
            .to_owned()
        },
    },
    Setting {
        key: "admission.listen",
        metavar: "ADDR",
        help: "The admission webhook, always with TLS",
        allowed: listen::ALLOWED,
        take: |c, v| v.parse().ok().map(|v| c.admission.listen = v),
        show: |c| c.admission.listen.to_string(),
    },
    Setting {
        key: "admission.service",
        metavar: "NAMESPACE/NAME",
        help: "The Service by which the API server of the store's cluster reaches the webhook; registers it there",
        allowed: "none, or a namespace and a name, with a port other than 443 after a colon: fairlead/webhook, fairlead/webhook:7683",
        take: |c, v| {
            if v == "none" {
                c.admission.service = None;
                return Some(());
            }
            let (namespace, rest) = v.split_once('/')?;
            let (name, port) = match rest.split_once(':') {
                Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0)?),
                None => (rest, 443),
            };
            let (namespace, name) = (values::label(namespace)?, values::label(name)?);
            c.admission.service = Some(Service { namespace, name, port });
            Some(())
        },
        show: |c| {
            c.admission.service.as_ref().map_or_else(
                || "none".to_owned(),
                |Service { namespace, name, port }| format!("{namespace}/{name}:{port}"),
            )
        },
    },
    Setting {
        key: "admission.url",
        metavar: "URL",
        help: "Where API servers reach the webhook from outside; registers it in the store's cluster and in admission.clusters",
        allowed: "none, or https, a host and a port, such as https://fairlead.example.com:7683",
        take: |c, v| {
            c.admission.url = if v == "none" { None } else { Some(values::https_url(v)?) };
            Some(())
        },
        show: |c| {
            c.admission.url.as_ref().map_or_else(|| "none".to_owned(), |url| url.base.clone())
        },
    },
    Setting {
        key: "admission.clusters",
        metavar: "NAMES",
        help: "Clusters of the fleet whose API servers are to ask the webhook, by admission.url; `none` is none",
        allowed: "none, or names of clusters separated by commas",
        take: |c, v| {
            values::words(v, |name| (!name.contains('/')).then(|| name.to_owned()))
                .map(|v| c.admission.clusters = v)
        },
        show: |c| values::show_words(&c.admission.clusters),
    },
    Setting {
        key: "admission.mode",
        metavar: "MODE",
        help: "What deny rules without a mode of their own do: `monitor` records, `protect` refuses",
        allowed: "monitor or protect",
        take: |c, v| {
            c.admission.protect = match v {
                "monitor" => false,
                "protect" => true,
                _ => return None,
            };
            Some(())
        },
        show: |c| if c.admission.protect { "protect" } else { "monitor" }.to_owned(),
    },
    Setting {
        key: "admission.exempt",
        metavar: "NAMESPACES",
        help: "Namespaces that no rule looks into, separated by commas; `none` is none. That of admission.service always is one",
        allowed: "none, or names of namespaces separated by commas",
        take: |c, v| values::words(v, values::label).map(|v| c.admission.exempt = v),
        show: |c| values::show_words(&c.admission.exempt),
    },
    Setting {
        key: "admission.controllers",
        metavar: "ACCOUNTS",
        help: "Service accounts whose word on the owner of what they make is taken, as that of Kubernetes' own controllers is; `none` is none",
        allowed: "none, or service accounts as NAMESPACE/NAME, or names of users, separated by commas",
        take: |c, v| values::words(v, controller).map(|v| c.admission.controllers = v),
        show: |c| values::show_words(&c.admission.controllers),
    },
    Setting {
        key: "admission.exempt-sidecars",
        metavar: "WHETHER",
        help: "Spare sidecars of Istio and Linkerd that an injector added the rules on images, variables and resources",
        allowed: "true or false",
        take: |c, v| v.parse().ok().map(|v| c.admission.exempt_sidecars = v),
        show: |c| c.admission.exempt_sidecars.to_string(),
    },
    Setting {
        key: "admission.failure-policy",
        metavar: "POLICY",
        help: "What an API server does when the webhook does not answer: `ignore` admits, `fail` refuses",
        allowed: "ignore or fail",
        take: |c, v| {
            c.admission.failure_policy = match v {
                "ignore" | "Ignore" => FailurePolicy::Ignore,
                "fail" | "Fail" => FailurePolicy::Fail,
                _ => return None,
            };
            Some(())
        },
        show: |c| c.admission.failure_policy.name().to_lowercase(),
    },
    Setting {
        key: "admission.timeout",
        metavar: "TIME",
        help: "How long an API server waits for the webhook",
        allowed: "whole seconds from 1s to 30s",
        take: |c, v| {
            let time = values::time(v, "1s", "30s").filter(|time| time.subsec_nanos() == 0)?;
            c.admission.timeout = time;
            Some(())
        },
        show: |c| values::show_time(c.admission.timeout),
    },
];

/// A service account's name as an API server knows it; that of another user as it is.
fn controller(text: &str) -> Option<String> {
    match text.split_once('/') {
        Some((namespace, name)) => {
            let (namespace, name) = (values::label(namespace)?, values::label(name)?);
            Some(format!("system:serviceaccount:{namespace}:{name}"))
        }
        None => Some(text.to_owned()),
    }
}
