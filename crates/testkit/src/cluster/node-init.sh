# shellcheck shell=bash
# First process of a node: makes its mounts and its network, then waits and reaps orphans. Its end
# is the end of every process in the node.
#
#   DIR      the node's directory on this machine: disk, log, daemon
#   CGROUP   the node's control group, below the root of every hierarchy
#   NAME, ADDRESS, PREFIX, GATEWAY   who and where the node is
#   BOOT_ID  another one at every boot
#   PLUGINS  directory of the reference CNI plugins
#   ROUTES   NETWORK=GATEWAY..., to the pods of other nodes, if the kit routes them
#   KEEP     directories of this machine that the node must see
set -euo pipefail
disk=$DIR/disk

# /proc still shows the outer PID namespace, in which others will look for us.
read -r pid _ </proc/self/stat

# --- control groups -----------------------------------------------------------------------------
# The daemons have one of their own, so that who cleans up finds them.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    at=/sys/fs/cgroup
    IFS=/ read -ra parts <<<"$CGROUP"
    for part in "${parts[@]}"; do
        for controller in $(<"$at/cgroup.controllers"); do
            echo "+$controller" >"$at/cgroup.subtree_control" || true
        done
        at=$at/$part
        mkdir -p "$at"
    done
    for controller in $(<"$at/cgroup.controllers"); do
        echo "+$controller" >"$at/cgroup.subtree_control" || true
    done
    daemons=$at/daemons
else
    for hierarchy in /sys/fs/cgroup/*/; do
        [ ! -e "${hierarchy}cgroup.controllers" ] || continue # version 2, unused
        at=${hierarchy%/}
        IFS=/ read -ra parts <<<"$CGROUP"
        for part in "${parts[@]}"; do
            above=$at at=$at/$part
            mkdir -p "$at"
            # A set of processors starts empty, and nothing can run in it.
            if [ -e "$at/cpuset.cpus" ]; then
                for file in cpus mems; do cat "$above/cpuset.$file" >"$at/cpuset.$file"; done
            fi
        done
    done
    daemons=/sys/fs/cgroup/pids/$CGROUP/daemons
fi
mkdir -p "$daemons"
echo 0 >"$daemons/cgroup.procs"

# --- disk: /etc, /opt and /var are the node's own, and stay over a reboot -----------------------
mkdir -p "$disk"/etc/cni/net.d "$disk"/opt/cni/bin "$disk"/var/{cache,lib,log,tmp}
if [ ! -e "$disk/etc/hostname" ]; then
    # What programs look up; alternatives tells which iptables there is.
    for file in alternatives ethertypes group iproute2 ld.so.cache ld.so.conf ld.so.conf.d localtime \
        nsswitch.conf passwd protocols rpc services xattr.conf; do
        [ ! -e "/etc/$file" ] || cp -a "/etc/$file" "$disk/etc/"
    done
    chmod 1777 "$disk/var/tmp"
    ln -s /run "$disk/var/run"
    ln -s /run/lock "$disk/var/lock"
    for plugin in loopback host-local ptp portmap; do cp "$PLUGINS/$plugin" "$disk/opt/cni/bin/"; done
    tr -d - </proc/sys/kernel/random/uuid >"$disk/etc/machine-id"
    printf 'nameserver %s\n' "$ADDRESS" >"$disk/etc/resolv.conf"
    printf '127.0.0.1 localhost\n::1 localhost\n%s %s\n' "$ADDRESS" "$NAME" >"$disk/etc/hosts"
    echo "$NAME" >"$disk/etc/hostname"
fi
# shellcheck disable=SC2153 # both are there
for keep in $KEEP; do
    case $keep in /etc/* | /opt/* | /var/*)
        mkdir -p "$disk$keep"
        mount --bind "$keep" "$disk$keep"
        ;;
    esac
done
for top in etc opt var; do mount --rbind "$disk/$top" "/$top"; done
# The machine's programs, which nobody in here may change.
mount --rbind /usr /usr
mount -o remount,bind,ro /usr
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns /run/daemons /run/sysctl

mount -t proc proc /proc
# A sysfs of this network namespace, with the machine's control groups put back.
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
umount -l /run/cgroup
rmdir /run/cgroup
# The kubelet insists on these and would set them for the whole machine: it reads what it wants from
# files, and the kernel's are left alone.
show() { # PATH VALUE
    mkdir -p "/run/sysctl/${1%/*}"
    echo "$2" >"/run/sysctl/$1"
    mount --bind "/run/sysctl/$1" "/proc/sys/$1"
}
show vm/overcommit_memory 1
show vm/panic_on_oom 0
show kernel/panic 10
show kernel/panic_on_oops 1
show kernel/keys/root_maxkeys 1000000
show kernel/keys/root_maxbytes 25000000
show kernel/random/boot_id "$BOOT_ID"
# As on a real node. The last of the mounts: unmounting above must not propagate.
mount --make-rshared /

# --- network: loopback, and the interface that the kit plugs in ----------------------------------
hostname "$NAME"
ip link set lo up
echo "$pid" >"$DIR/pid.new"
mv "$DIR/pid.new" "$DIR/pid"
for _ in {1..500}; do
    ip link show node0 >/dev/null 2>&1 && break
    sleep 0.02
done
ip address add "$ADDRESS/$PREFIX" dev node0
ip link set node0 up
ip route add default via "$GATEWAY"
for route in $ROUTES; do ip route add "${route%=*}" via "${route#*=}"; done
# kubeadm asks for it before it makes a node.
echo 1 >/proc/sys/net/ipv4/ip_forward

ulimit -n "$(ulimit -Hn)"
touch "$DIR/up"
# A process that ignores no signal but has no handler either gets none as the first of a namespace.
trap 'exit 0' TERM
while :; do
    sleep infinity &
    wait $! || true
done
