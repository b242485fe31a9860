//! Kubernetes' Pod Security Standards, latest version. Pod and container are both checked: a good
//! value on one does not excuse a bad one on the other.

use objects::kinds::admission_rule::PssLevel;

use crate::pod::{Container, Handler, Profile, SeLinux};
use crate::request::Pod;

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const SYSCTLS: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The first check that fails.
pub(super) fn violation(level: PssLevel, pod: &Pod, container: &Container) -> Option<&'static str> {
    baseline(pod, container).or_else(|| match level {
        PssLevel::Baseline => None,
        PssLevel::Restricted => restricted(pod, container),
    })
}

fn baseline(pod: &Pod, container: &Container) -> Option<&'static str> {
    let spec = &pod.spec;
    let (around, own) = (&spec.security_context, &container.security_context);
    let has_host = |handler: &Handler| {
        !handler.http_get.host.is_empty() || !handler.tcp_socket.host.is_empty()
    };
    let handlers = [
        &container.liveness_probe,
        &container.readiness_probe,
        &container.startup_probe,
        &container.lifecycle.post_start,
        &container.lifecycle.pre_stop,
    ];
    let bad_profile = |profile: &Option<Profile>| {
        profile.as_ref().is_some_and(|p| !matches!(p.kind.as_str(), "RuntimeDefault" | "Localhost"))
    };
    let bad_annotation = |(key, value): (&String, &String)| {
        key.starts_with(APP_ARMOR)
            && !(value.is_empty() || value == "runtime/default" || value.starts_with("localhost/"))
    };
    let bad_selinux = |options: &Option<SeLinux>| {
        options.as_ref().is_some_and(|options| {
            let types =
                ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
            !types.contains(&options.kind.as_str())
                || !options.user.is_empty()
                || !options.role.is_empty()
        })
    };
    let added =
        |names: &[&str]| own.capabilities.add.iter().any(|name| !names.contains(&name.as_str()));
    let checks = [
        (spec.host_network || spec.host_pid || spec.host_ipc, "host namespaces"),
        (own.privileged == Some(true), "privileged"),
        (added(&CAPABILITIES), "capabilities"),
        (spec.volumes.iter().any(|volume| volume.host_path().is_some()), "hostPath volumes"),
        (container.ports.iter().any(|port| port.host_port != 0), "host ports"),
        (handlers.into_iter().any(has_host), "a host in a probe or hook"),
        (
            bad_profile(&around.app_armor_profile)
                || bad_profile(&own.app_armor_profile)
                || pod.pod_annotations.iter().any(bad_annotation),
            "AppArmor",
        ),
        (
            bad_selinux(&around.se_linux_options) || bad_selinux(&own.se_linux_options),
            "SELinux options",
        ),
        (bad_proc_mount(container) && spec.host_users != Some(false), "procMount"),
        (bad_profile(&around.seccomp_profile) || bad_profile(&own.seccomp_profile), "seccomp"),
        (around.sysctls.iter().any(|sysctl| !SYSCTLS.contains(&sysctl.name.as_str())), "sysctls"),
        (
            around.windows_options.host_process == Some(true)
                || own.windows_options.host_process == Some(true),
            "Windows HostProcess",
        ),
    ];
    checks.into_iter().find(|(violated, _)| *violated).map(|(_, check)| check)
}

fn restricted(pod: &Pod, container: &Container) -> Option<&'static str> {
    let spec = &pod.spec;
    let (around, own) = (&spec.security_context, &container.security_context);
    let linux = spec.os.name != "windows";
    let host_users = spec.host_users != Some(false);
    let non_root = around.run_as_non_root != Some(false)
        && own.run_as_non_root.or(around.run_as_non_root) == Some(true);
    let bad_capabilities = !own.capabilities.drop.iter().any(|name| name == "ALL")
        || own.capabilities.add.iter().any(|name| name != "NET_BIND_SERVICE");
    let checks = [
        (spec.volumes.iter().any(|volume| !volume.is_one_of(&VOLUMES)), "volume types"),
        (linux && own.allow_privilege_escalation != Some(false), "privilege escalation"),
        (host_users && !non_root, "runAsNonRoot"),
        (host_users && (around.run_as_user == Some(0) || own.run_as_user == Some(0)), "runAsUser"),
        (
            linux && around.seccomp_profile.is_none() && own.seccomp_profile.is_none(),
            "seccomp is not set",
        ),
        (linux && bad_capabilities, "capabilities"),
        (bad_proc_mount(container), "procMount"),
    ];
    checks.into_iter().find(|(violated, _)| *violated).map(|(_, check)| check)
}

fn bad_proc_mount(container: &Container) -> bool {
    container.security_context.proc_mount.as_ref().is_some_and(|mount| mount != "Default")
}
