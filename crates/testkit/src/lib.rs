//! What Fairlead's tests stand on: the real thing, and ways to break it. For tests only.
//!
//! ```text
//! test ── kube::Client ── Proxy (faults) ── KubeServer (kube-apiserver ── etcd)
//!   ├──── IdentityProvider (OpenID Connect, under Node.js)
//!   ├──── receivers (rsyslog, Alertmanager, a mail server)
//!   ├──── killed (a process of this test, SIGKILLed again and again)
//!   ├──── Sandbox (network namespaces, veths between them)
//!   └──── Cluster (control plane and nodes, with kubelet, containerd, kube-proxy)
//! ```
//!
//! - Nothing outlives the test process, however that ends: return, panic, abort, `kill -9`.
//! - Everything may run in parallel: ports, directories and namespaces are never shared.
//! - What cannot be set up is a panic with a sentence; what cannot run *here* is a skip, declared
//!   first thing with [`requires!`]. In CI a skip is a failure.
//!
//! nextest runs every test in a process of its own, so a server belongs to one test: put steps that
//! can share one into one test, or tell them apart by [`KubeServer::namespace`]. Tests with `kube`
//! in their path run a few at a time (`.config/nextest.toml`).

mod access;
pub mod cluster;
mod deploy;
mod identity_provider;
pub mod killed;
mod kube_server;
mod leash;
pub mod need;
mod port;
mod proxy;
pub mod receivers;
mod sandbox;

pub use access::Access;
pub use cluster::Cluster;
pub use deploy::deploy_permissions;
pub use identity_provider::IdentityProvider;
pub use killed::{acknowledge, killed};
pub use kube_server::KubeServer;
pub use proxy::{Fault, Proxy};
pub use sandbox::{Host, Sandbox};
