#!/bin/sh
#
# What a container runtime does with the plugin, in a mount namespace (and, but for cnitool, a
# process namespace) of its own: nothing of it is seen outside, and nothing is left.
#
#   run.sh WORK ASSETS PLUGIN CONFLIST cnitool NETNS VERSION
#   run.sh WORK ASSETS PLUGIN CONFLIST ports NETNS FROM PORTMAP
#   run.sh WORK ASSETS PLUGIN CONFLIST bandwidth NETNS BANDWIDTH
#   run.sh WORK ASSETS PLUGIN CONFLIST containerd

set -eu

work=$1 assets=$2 plugin=$3 conflist=$4
shift 4
export PATH="$assets:$PATH" LD_LIBRARY_PATH="$assets"

# Where runtimes look, which is not configurable everywhere.
mkdir -p "$work/etc"
cp -a /etc/. "$work/etc"
mkdir -p "$work/etc/cni/net.d"
rm -f "$work/etc/cni/net.d"/*
cp "$conflist" "$work/etc/cni/net.d/10-fairlead.conflist"
mount --bind "$work/etc" /etc
mount -t tmpfs none /opt
mkdir -p /opt/cni/bin
cp "$plugin" /opt/cni/bin/fairlead-cni
mount -t tmpfs none /var/lib

cnitool_run() {
    export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d
    cnitool add pods "$1"
    [ "$2" = 0.3.1 ] || cnitool check pods "$1"
    cnitool del pods "$1"
    cnitool del pods "$1"
}

# A host port, by a portmap that is chained: from outside to a server in the container, until DEL.
ports_run() {
    netns=$1 from=$2
    cp "$3" /opt/cni/bin/portmap
    export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d
    export CAP_ARGS='{"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}'
    cnitool add pods "$netns" >&2
    nsenter --net="$netns" busybox nc -ll -p 80 -e echo "through the host port" >/dev/null 2>&1 &
    server=$!
    trap 'kill "$server"' EXIT
    await nsenter --net="$netns" busybox nc -w 2 127.0.0.1 80
    nsenter --net="$from" busybox nc -w 10 192.0.2.1 8080
    # No CHECK: this portmap's own looks for the rules of one family in the tables of the other.
    cnitool del pods "$netns"
    cnitool del pods "$netns"
    if nsenter --net="$from" busybox nc -w 2 192.0.2.1 8080 >&2; then
        echo "the host port is there after the container" >&2
        return 1
    fi
}

# A limit of what comes to the container, by a bandwidth that is chained: the kernel has it until DEL.
bandwidth_run() {
    netns=$1
    cp "$2" /opt/cni/bin/bandwidth
    export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d
    export CAP_ARGS='{"bandwidth":{"ingressRate":8000000,"ingressBurst":80000}}'
    cnitool add pods "$netns" >&2
    tc qdisc show | grep tbf
    cnitool check pods "$netns"
    cnitool del pods "$netns"
    # Links go a moment after DEL was answered, and the limit with them.
    tries=0
    while tc qdisc show | grep tbf >&2; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { echo "the limit is there after the container" >&2; return 1; }
        sleep 0.1
    done
}

# A layer with one file and its names, and what makes it an image.
image() {
    mkdir -p "$work/root/bin" "$work/image"
    cp "$assets/busybox" "$work/root/bin/busybox"
    for name in sh ip ping sleep; do ln -s busybox "$work/root/bin/$name"; done
    tar -C "$work/root" -cf "$work/image/layer.tar" .
    layer=$(sha256sum "$work/image/layer.tar" | cut -d' ' -f1)
    arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
    printf '{"architecture":"%s","os":"linux","config":{"Env":["PATH=/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$arch" "$layer" >"$work/image/config.json"
    printf '[{"Config":"config.json","RepoTags":["docker.io/library/pod:1"],"Layers":["layer.tar"]}]' \
        >"$work/image/manifest.json"
    tar -C "$work/image" -cf "$work/image.tar" manifest.json config.json layer.tar
}

await() { # for something to succeed
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || { echo "gave up waiting for: $*" >&2; return 1; }
        sleep 0.1
    done
}

containerd_run() {
    mkdir -p "$work/c"
    cat >"$work/c/config.toml" <<END
version = 2
root = "$work/c/root"
state = "$work/c/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "$work/c/sock"
END
    containerd --config "$work/c/config.toml" >"$work/c/log" 2>&1 &
    export CONTAINERD_ADDRESS="$work/c/sock"
    await ctr version || { cat "$work/c/log" >&2; return 1; }
    image
    # The kernel of a machine that is itself a container may have no overlay to give.
    ctr image import --snapshotter native "$work/image.tar" >&2
    address_of() { ctr task exec --exec-id look "$1" ip -4 addr show eth0 | sed -n 's|.* inet \([0-9.]*\)/.*|\1|p'; }
    for pod in a b; do
        ctr run --rm --snapshotter native --cni docker.io/library/pod:1 "$pod" sleep 600 >&2 &
        await ctr task exec --exec-id up "$pod" ip link show eth0 || { cat "$work/c/log" >&2; return 1; }
        echo "$pod $(address_of "$pod")"
    done
    ctr task exec --exec-id ping a ping -c 2 -W 5 "$(address_of b)"
    ctr task exec --exec-id ping b ping -c 2 -W 5 "$(address_of a)"
    for pod in a b; do ctr task kill -s KILL "$pod"; done
    # Each takes its network down when its container has ended.
    await no_containers
}

no_containers() { [ -z "$(ctr container list -q)" ]; }

case $1 in
cnitool) shift; cnitool_run "$@" ;;
ports) shift; ports_run "$@" ;;
bandwidth) shift; bandwidth_run "$@" ;;
containerd) containerd_run ;;
esac
