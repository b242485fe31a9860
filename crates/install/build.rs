//! Lists the files of the chart, links followed, so that the library can embed every one of them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart").canonicalize()?;
    let mut files = Vec::new();
    walk(&chart, "", &mut files)?;
    files.sort();

    let mut source = String::from("&[\n");
    for (name, path) in &files {
        let _ = writeln!(source, "    ({name:?}, include_str!({path:?})),");
    }
    source.push(']');
    let out = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    fs::write(out.join("chart_files.rs"), source)
}

fn walk(dir: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    // The real place behind a link: a change there must be noticed too.
    println!("cargo::rerun-if-changed={}", dir.canonicalize()?.display());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // A link whose target is not there yet has no metadata.
        let Ok(meta) = fs::metadata(&path) else { continue };
        if meta.is_dir() {
            walk(&path, &format!("{prefix}{name}/"), files)?;
        } else {
            files.push((format!("{prefix}{name}"), path.canonicalize()?));
        }
    }
    Ok(())
}
