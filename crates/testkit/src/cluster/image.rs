//! Images out of static files, as OCI archives; no builder and no registry is asked.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Writes to `archive` an image called `reference`: busybox with all its commands in `/bin`, and
/// `files`, each with its absolute path in the image. Without a command, a container of it sleeps until
/// it is told to stop.
pub(super) fn write(
    archive: &Path,
    reference: &str,
    busybox: &Path,
    files: &[(&Path, &str)],
) -> io::Result<()> {
    let mut layer = tar::Builder::new(Vec::new());
    for dir in ["bin/", "dev/", "etc/", "proc/", "run/", "sys/", "tmp/"] {
        let mut header =
            header(tar::EntryType::Directory, if dir == "tmp/" { 0o1777 } else { 0o755 });
        layer.append_data(&mut header, dir, io::empty())?;
    }
    append(&mut layer, "bin/busybox", &fs::read(busybox)?)?;
    for applet in applets(busybox)?.lines().filter(|applet| *applet != "busybox") {
        let mut header = header(tar::EntryType::Symlink, 0o777);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    append(&mut layer, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")?;
    for (file, path) in files {
        append(&mut layer, path.trim_start_matches('/'), &fs::read(file)?)?;
    }
    let layer = layer.into_inner()?;

    let stay = ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"];
    let platform = json!({ "architecture": architecture(), "os": "linux" });
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Env": ["PATH=/bin:/usr/local/bin"], "Cmd": stay },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json", config.as_bytes()),
        "layers": [descriptor("layer.v1.tar", &layer)],
    })
    .to_string();
    let mut image = descriptor("manifest.v1+json", manifest.as_bytes());
    image["platform"] = platform;
    image["annotations"] = json!({ "io.containerd.image.name": full(reference) });

    let mut oci = tar::Builder::new(File::create(archive)?);
    append(&mut oci, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let index = json!({ "schemaVersion": 2, "manifests": [image] }).to_string();
    append(&mut oci, "index.json", index.as_bytes())?;
    for blob in [&layer[..], config.as_bytes(), manifest.as_bytes()] {
        append(&mut oci, &format!("blobs/{}", digest(blob).replace(':', "/")), blob)?;
    }
    oci.into_inner().map(drop)
}

/// The name by which containerd looks an image up: with its registry and its tag.
fn full(reference: &str) -> String {
    let (first, rest) = reference.split_once('/').unwrap_or(("", reference));
    let with_registry = if first.contains(['.', ':']) || first == "localhost" {
        reference.to_owned()
    } else if first.is_empty() {
        format!("docker.io/library/{reference}")
    } else {
        format!("docker.io/{reference}")
    };
    if rest.contains(':') { with_registry } else { format!("{with_registry}:latest") }
}

fn applets(busybox: &Path) -> io::Result<String> {
    let output = Command::new(busybox).arg("--list").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn header(kind: tar::EntryType, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header
}

fn append<W: io::Write>(tar: &mut tar::Builder<W>, path: &str, content: &[u8]) -> io::Result<()> {
    let mut header = header(tar::EntryType::Regular, 0o755);
    header.set_size(content.len() as u64);
    tar.append_data(&mut header, path, content)
}

fn descriptor(kind: &str, blob: &[u8]) -> serde_json::Value {
    json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": digest(blob),
        "size": blob.len(),
    })
}

fn digest(blob: &[u8]) -> String {
    let hex: String = Sha256::digest(blob).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_gets_the_registry_and_the_tag_that_it_lacks() {
        for (reference, expected) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("local/busybox:1", "docker.io/local/busybox:1"),
            ("example.com/a/b", "example.com/a/b:latest"),
            ("localhost:5000/b:2", "localhost:5000/b:2"),
        ] {
            assert_eq!(full(reference), expected);
        }
    }
}
