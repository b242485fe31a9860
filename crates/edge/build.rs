//! Embeds the console: lists the files of `console/dist`, which Vite builds, and compresses each of
//! them once. Without that directory the list is empty, and the binary says how to get the console.
//!
//! `FAIRLEAD_CONSOLE` names another directory.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FAIRLEAD_CONSOLE");
    let dist = env::var_os("FAIRLEAD_CONSOLE").map_or_else(|| console.join("dist"), PathBuf::from);
    // A path that is not there would be taken for changed each time, so the directory that `dist`
    // will appear in is watched until it does.
    match [&dist, &console].into_iter().find_map(|path| path.canonicalize().ok()) {
        Some(watched) => println!("cargo::rerun-if-changed={}", watched.display()),
        None => println!("cargo::rerun-if-changed=src"),
    }
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let mut files = Vec::new();
    if let Ok(dist) = dist.canonicalize()
        && dist.join("index.html").is_file()
    {
        walk(&dist, "", &mut files)?;
        files.sort();
    }

    let mut source = String::from("&[\n");
    for (number, (name, path)) in files.iter().enumerate() {
        let bytes = fs::read(path)?;
        let etag = Sha256::digest(&bytes)[..12].iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let gzip = match compressed(&bytes)? {
            // What is compressed already only grows.
            Some(gzip) => {
                let place = out.join(format!("console-{number}.gz"));
                fs::write(&place, gzip)?;
                format!("Some(include_bytes!({place:?}))")
            }
            None => "None".to_owned(),
        };
        let _ = writeln!(
            source,
            "    ConsoleFile {{ path: {name:?}, etag: \"\\\"{etag}\\\"\", \
             plain: include_bytes!({path:?}), gzip: {gzip} }},"
        );
    }
    source.push(']');
    fs::write(out.join("console_files.rs"), source)
}

fn compressed(bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    let gzip = encoder.finish()?;
    Ok((gzip.len() * 10 < bytes.len() * 9).then_some(gzip))
}

fn walk(dir: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            walk(&path, &format!("{prefix}/{name}"), files)?;
        } else {
            files.push((format!("{prefix}/{name}"), path));
        }
    }
    Ok(())
}
