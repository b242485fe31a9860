use crate::Target;

mod cni;
mod doctor;
mod documents;
mod protocol;
mod texts;

/// The name of a target, what it runs, the longest input that is tried, and how many bytes may be allocated at
/// once for each byte of input.
const fn target(name: &'static str, run: fn(&[u8]), longest: usize, memory: usize) -> Target {
    Target { name, run, longest, memory }
}

/// Every parser of bytes that come from outside, by who sends them. A value of JSON takes up to two hundred times
/// the bytes of its text (`[[],[]]`).
pub const TARGETS: &[Target] = &[
    // The kernel.
    target("conntrack", kernel::fuzz::conntrack, 512, 32),
    target("netlink", kernel::fuzz::netlink, 512, 64),
    target("nftables", kernel::fuzz::nftables, 512, 64),
    target("packet_log", kernel::fuzz::packet_log, 256, 32),
    target("sockets", kernel::fuzz::sockets, 512, 32),
    target("wireguard_netlink", kernel::fuzz::wireguard, 1024, 64),
    // A container runtime.
    target("cni_configuration", cni::configuration, 1024, 256),
    target("cni_environment", cni::environment, 256, 64),
    target("cni_previous", cni::previous, 512, 512),
    target("cni_wire", cni::wire, 1024, 256),
    // Pods, and servers that they talk to.
    target("dns_message", node::fuzz::dns_message, 1024, 64),
    target("first_bytes", node::fuzz::first_bytes, 256, 16),
    // Agents and controllers.
    target("agent_frames", edge::fuzz::agent_frames, 256, 64),
    target("agent_report", protocol::report, 1024, 32),
    target("agent_token", pki::fuzz::agent_token, 256, 64),
    target("program_change", protocol::program, 1024, 256),
    target("rule_change", protocol::rules, 1024, 256),
    // A disk after a crash.
    target("address_journal", net::fuzz::address_journal, 1024, 256),
    target("checkpoint", traffic::fuzz::checkpoint, 512, 256),
    target("history_frame", traffic::fuzz::history_frame, 512, 256),
    target("outbox_record", notify::fuzz::outbox_record, 1024, 256),
    target("program_file", node::fuzz::program_file, 1024, 256),
    target("sensor_file", node::fuzz::sensor_file, 512, 256),
    target("stored_objects", objects::fuzz::stored_objects, 1024, 512),
    // Users and their clients.
    target("http_request", edge::fuzz::http_request, 512, 256),
    target("id_token", access::fuzz::id_token, 512, 256),
    target("key_set", access::fuzz::key_set, 1024, 256),
    target("kube_path", access::fuzz::kube_path, 256, 64),
    target("kube_token", access::fuzz::kube_token, 256, 64),
    target("replica_seals", edge::fuzz::replica_seals, 256, 64),
    target("session_token", access::fuzz::session_token, 256, 64),
    target("shell_query", edge::fuzz::shell_query, 256, 256),
    target("socket_message", edge::fuzz::socket_message, 1024, 512),
    target("timeouts", texts::timeouts, 64, 64),
    target("websocket", edge::fuzz::websocket, 512, 64),
    // Documents, and texts in them.
    target("certificate", documents::certificate, 1024, 256),
    target("expression", texts::expression, 64, 1 << 20),
    target("fields", texts::fields, 128, 64),
    target("image_report", documents::image_report, 1024, 256),
    target("kubeconfig", fleet::fuzz::kubeconfig, 1024, 512),
    target("manifests", documents::manifests, 1024, 512),
    target("neuvector", documents::neuvector, 1024, 1 << 16),
    target("policies", documents::policies, 1024, 512),
    target("review", documents::review, 1024, 512),
    target("selector", texts::selector, 256, 128),
    target("signature", documents::signature, 1024, 512),
    target("signature_layer", documents::signature_layer, 1024, 512),
    // Clusters.
    target("helm_release", fleet::fuzz::helm_release, 1024, 2048),
    target("watch_lines", objects::fuzz::watch_lines, 1024, 512),
    target("watch_table_lines", fleet::fuzz::watch_table_lines, 1024, 512),
    // What events say to receivers, and what those answer.
    target("messages", notify::fuzz::messages, 1024, 256),
    target("receiver_answer", notify::fuzz::receiver_answer, 512, 64),
    // Evidence that people upload.
    target("doctor_examine", doctor::examine, 4096, 4096),
    target("doctor_goroutines", doctor::goroutines, 2048, 512),
    target("doctor_kinds", doctor::kinds, 2048, 4096),
    target("doctor_pprof", doctor::pprof, 1024, 4096),
];
