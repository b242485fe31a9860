//! The socket by which `wg show` asks a WireGuard that is not the kernel's: WireGuard's cross-platform
//! configuration protocol, of which questions are answered and changes are refused. Peers follow from
//! objects; what is changed by hand would be changed back.
//!
//! Contract: the socket is for its owner alone, is removed with the interface, answers at most
//! [`CONNECTIONS`] at once, and gives each [`ANSWERED_WITHIN`].

use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stallproof::Tasks;
use stallproof::accept::{ConnectionLimits, WhenFull, accept};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::userspace::Shared;

const CONNECTIONS: usize = 8;
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// A question is one line and an empty one. Of a change, which is refused, no more is read.
const LONGEST_REQUEST: u64 = 4 << 10;
/// `-EPERM` and `-EPROTO`: the protocol has them negative.
const NOT_PERMITTED: i32 = -1;
const NOT_UNDERSTOOD: i32 = -71;

/// A socket that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct UapiSocket {
    listener: Option<UnixListener>,
    path: PathBuf,
}

impl UapiSocket {
    /// Takes the place of a socket that a process before this one left. Must be called in a runtime.
    pub(crate) fn bind(directory: &Path, name: &str) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let path = directory.join(format!("{name}.sock"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let socket = Self { listener: Some(listener), path };
        fs::set_permissions(&socket.path, fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    }
}

impl Drop for UapiSocket {
    fn drop(&mut self) {
        // If it stays, the next interface of this name removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Answers until `tasks` stops.
pub(crate) async fn serve(mut socket: UapiSocket, device: &Arc<Shared>, tasks: &Tasks) {
    let Some(listener) = socket.listener.take() else { return };
    let limits =
        ConnectionLimits { when_full: WhenFull::CutOldest, ..ConnectionLimits::total(CONNECTIONS) };
    let serve = |connection: stallproof::accept::Connection<UnixStream>| {
        let device = Arc::clone(device);
        async move {
            let answering = answer(connection.stream, &device);
            // Whoever asks and does not listen has no answer.
            let _ = tokio::time::timeout(ANSWERED_WITHIN, answering).await;
        }
    };
    accept(listener, "uapi", limits, tasks, serve, drop).await;
}

async fn answer(stream: UnixStream, device: &Shared) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read.take(LONGEST_REQUEST)).lines();
    while let Some(first) = lines.next_line().await? {
        let answer = match first.as_str() {
            "" => continue,
            "get=1" => get(device),
            "set=1" => error(NOT_PERMITTED),
            _ => error(NOT_UNDERSTOOD),
        };
        while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}
        write.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

fn error(number: i32) -> String {
    format!("errno={number}\n\n")
}

fn get(device: &Shared) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{key}={value}");
    };
    line("private_key", &hex(&device.private_key()));
    line("listen_port", &device.port());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    for peer in device.views() {
        line("public_key", &hex(&peer.key.0));
        if let Some(key) = peer.preshared_key {
            line("preshared_key", &hex(&key));
        }
        line("protocol_version", &1);
        if let Some(endpoint) = peer.endpoint {
            line("endpoint", &endpoint);
        }
        if let Some(ago) = peer.last_handshake {
            let then = now.saturating_sub(ago);
            line("last_handshake_time_sec", &then.as_secs());
            line("last_handshake_time_nsec", &then.subsec_nanos());
        }
        line("tx_bytes", &peer.sent_bytes);
        line("rx_bytes", &peer.received_bytes);
        line("persistent_keepalive_interval", &peer.keepalive.unwrap_or(0));
        for network in &peer.networks {
            line("allowed_ip", network);
        }
    }
    out + &error(0)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
