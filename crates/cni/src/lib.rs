//! What a container runtime, the plugin and the daemon say to each other.
