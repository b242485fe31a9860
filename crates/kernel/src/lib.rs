//! System calls: what only the operating system can tell or do.
//!
//! ```text
//! threads      the stack of every thread of this process, also of stuck ones
//! profile      CPU profiles
//! heap         heap profiles               (feature `profiling`)
//! lock_file    one process per data directory
//! netns        network namespaces, and work inside them
//! netlink      links, addresses, neighbours, routes
//! conntrack    connections, what they carried, and when they end
//! nftables     packet filter rules, sets and maps, changed in atomic batches
//! packet_log   packets that a rule sent to a log group
//! sockets      the connections of this machine's own sockets, and limits of one
//! datagrams    many datagrams in one call
//! descriptors  how many files and sockets may be open
//! transparent  sockets that speak with addresses of others
//! sysctl       where network sysctls are, also in a container
//! echo         echo requests of IPv6
//! tun          an interface whose packets a program reads and writes
//! wireguard    keys and peers of the kernel's own WireGuard
//! ```
//!
//! Invariants:
//! 1. All `unsafe` of Fairlead is in this crate, each with its reason.
//! 2. Signal handlers take no lock and allocate nothing.
//! 3. No tasks, no domain: plain blocking calls, each with a time limit.

mod captured_stack;
pub mod conntrack;
pub mod datagrams;
pub mod descriptors;
pub mod echo;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
pub mod heap;
pub mod lock_file;
pub mod netlink;
pub mod netns;
pub mod nftables;
pub mod packet_log;
pub mod profile;
mod signal;
pub mod sockets;
mod symbols;
pub mod sysctl;
pub mod threads;
pub mod transparent;
pub mod tun;
mod unwind;
pub mod wireguard;
