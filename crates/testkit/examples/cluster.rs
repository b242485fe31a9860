//! A cluster of three nodes to try things on by hand, as root:
//!
//! ```sh
//! KUBEBUILDER_ASSETS=$(scripts/kube-assets) cargo run -p testkit --example cluster -- [ptp] [IMAGE.tar …]
//! ```
//!
//! It prints where its kubeconfig is, loads the archives on every node, and is there until Enter is
//! pressed, or its standard input ends.

use std::path::Path;

use testkit::Cluster;
use testkit::cluster::Network;

fn main() {
    if let Err(why) = testkit::need::cluster() {
        return eprintln!("{why}");
    }
    let args: Vec<_> = std::env::args().skip(1).collect();
    let network = if args.iter().any(|arg| arg == "ptp") { Network::Ptp } else { Network::None };
    let cluster = Cluster::start(network);
    eprintln!("up in {:.1} s", cluster.took().as_secs_f64());
    for archive in args.iter().filter(|arg| *arg != "ptp") {
        cluster.load_archive(Path::new(archive));
        eprintln!("loaded {archive}");
    }
    eprintln!("export KUBECONFIG={}", cluster.kubeconfig().display());
    eprintln!("Enter ends it");
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}
