//! What a pod network leaves on a node: to be compared before and after.

use std::collections::BTreeSet;

use super::Cluster;

/// One line a thing. What kube-proxy and the kubelet keep in iptables is not listed, except in which
/// tables it is.
const LOOK: &str = r#"
ip -oneline link show | while IFS=': ' read -r _ name _; do
    case ${name%%@*} in lo | node0) ;; *) echo "link ${name%%@*}" ;; esac
done
for family in -4 -6; do
    ip $family route show table all | grep -vE ' table local |^(local|broadcast|anycast|multicast) ' |
        sed -E "s/ (expires|metric|pref) [^ ]+//g; s/ +$//; s/^/route $family /"
    ip $family rule show | sed "s/^/rule $family /"
done
for netns in /run/netns/*; do [ ! -e "$netns" ] || echo "netns ${netns##*/}"; done
nft list tables 2>/dev/null | sed 's/^/nft /'
for save in iptables-save ip6tables-save; do
    $save 2>/dev/null | grep -iE 'fairlead|CNI-' | sed -E "s/ \[[0-9:]+\]//; s/^/$save /"
done
find /opt/cni /etc/cni /var/lib/cni /var/lib/fairlead /run/fairlead /run/cni 2>/dev/null | sed 's/^/file /'
true
"#;

impl Cluster {
    /// Links, routes, rules, network namespaces, nftables' tables, iptables' rules that are ours or a
    /// reference plugin's, and files of networks, on a node; one line each.
    #[track_caller]
    pub fn leftovers(&self, node: u32) -> BTreeSet<String> {
        self.in_node(node, &["bash", "-c", LOOK]).lines().map(str::to_owned).collect()
    }
}
