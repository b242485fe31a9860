# shellcheck shell=sh
# Ends what is left in the control group $1, removes it and the directory $2.
for _ in $(seq 300); do
    left=
    for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*; do
        group=$hierarchy/$1
        [ -d "$group" ] || continue
        find "$group" -name cgroup.procs -exec cat {} + | while read -r pid; do kill -KILL "$pid"; done
        find "$group" -depth -type d -exec rmdir {} +
        [ ! -d "$group" ] || left=yes
    done
    [ -n "$left" ] || break
    sleep 0.1
done
[ -n "$2" ] || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf --one-file-system "$2" && exit
    sleep 0.1
done
