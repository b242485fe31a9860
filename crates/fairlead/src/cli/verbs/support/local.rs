//! The sources on this machine: the running Fairlead, and what it left on disk.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::archive::{Archive, LARGEST_FILE};
use crate::cli::admin_token::admin_token;
use crate::cli::http::{HttpError, Origin, Trust};
use crate::cli::runtime::block_on;
use crate::config::{Config, TlsSource};
use crate::output::{Failure, json as pretty};

/// How long one answer of the process may take, which is more than a CPU profile takes.
const PATIENCE: Duration = Duration::from_secs(10);
const PROFILE: Duration = Duration::from_secs(5);
/// Answers that come too late before the rest is given up.
const MOST_LATE: usize = 2;
/// The lines that are taken from the journal.
const LINES: &str = "20000";
/// The most files of evidence, of all events together.
const MOST_EVIDENCE: usize = 200;

/// The file for each page of the admin endpoints, and the page's path.
const PAGES: [(&str, &str); 9] = [
    ("inflight.json", "/debug/inflight?format=json&limit=10000"),
    ("stalls.json", "/debug/stalls?format=json"),
    ("locks.json", "/debug/locks?format=json"),
    ("stacks.txt", "/debug/stacks"),
    ("metrics.txt", "/metrics"),
    ("readyz.txt", "/readyz"),
    ("livez.txt", "/livez"),
    ("log-level.txt", "/debug/log"),
    ("heap.pb.gz", "/debug/pprof/heap"),
];

/// The contents of every file that the settings name as secret, and of the local token.
pub(super) fn secrets(config: &Config) -> Vec<Vec<u8>> {
    let files = [
        Some(config.data.join("token")),
        config.admin.token_file.clone(),
        config.sense.token_file.clone(),
        config.sense.identity_token_file.clone(),
    ];
    let files = files.into_iter().flatten().filter_map(|file| fs::read(file).ok());
    let given = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_string_lossy().to_uppercase();
        let secret = ["TOKEN", "PASSWORD", "SECRET"].iter().any(|word| name.ends_with(word));
        secret.then(|| value.as_encoded_bytes().to_vec())
    });
    files.chain(given).collect()
}

pub(super) fn collect(
    config: &Config,
    settings: Result<Value, String>,
    log: Option<&Path>,
    archive: &mut Archive,
) -> Result<(), Failure> {
    archive.add("version.json", document("the program that wrote this", &version()))?;
    let settings = settings.map(|rows| document("the settings", &json!({ "settings": rows })));
    archive.take("settings.json", settings)?;
    pages(config, archive)?;
    evidence(&config.data.join("evidence"), archive)?;
    let pid = fs::read_to_string(config.data.join("lock")).ok();
    let pid = pid.and_then(|pid| pid.trim().parse().ok()).filter(|pid| is_fairlead(*pid));
    archive.take("process.txt", pid.map(process).ok_or_else(|| no_process(config)))?;
    archive.take("data.txt", listing(&config.data))?;
    match log {
        Some(log) => archive.take("log.txt", tail(log)),
        None => archive.take("log.txt", log_of(pid)),
    }
}

fn version() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": env!("FAIRLEAD_COMMIT"),
        "target": env!("FAIRLEAD_TARGET"),
        "profile": env!("FAIRLEAD_PROFILE"),
        "taken": jiff::Timestamp::now().to_string(),
        "host": rustix::system::uname().nodename().to_string_lossy(),
        "kernel": rustix::system::uname().release().to_string_lossy(),
    })
}

/// JSON that begins with a field by which the doctor knows it.
pub(super) fn document(what: &str, content: &Value) -> Vec<u8> {
    let body = pretty(content).unwrap_or_default();
    let what = Value::from(what);
    match body.strip_prefix('{') {
        Some(rest) => format!("{{\"fairlead_support\": {what},{rest}\n").into_bytes(),
        None => format!("{{\"fairlead_support\": {what}, \"content\": {body}}}\n").into_bytes(),
    }
}

fn pages(config: &Config, archive: &mut Archive) -> Result<(), Failure> {
    let admin = &config.admin;
    let address = admin.listen.local();
    // A certificate of our own making is for other machines; on loopback there is none.
    let plain = admin.tls_cert.is_none()
        && (admin.tls == TlsSource::Files
            || admin.listen.is_loopback()
            || address.ip().is_loopback());
    let scheme = if plain { "http" } else { "https" };
    let token = admin_token(config);
    let base = format!("{scheme}://{address}");
    // The address is this machine's own, and nothing is sent to it but the token of its own file.
    let url = base.parse().map_err(|e| Failure(format!("{base} cannot be asked: {e}")))?;
    let origin = Origin::of(&url, Trust::Anything, Duration::from_secs(2));
    let origin = origin.map_err(|e| Failure(format!("{base} cannot be asked: {e}")))?;
    block_on(pages_of(&origin, &base, token.as_deref(), archive))
}

async fn pages_of(
    origin: &Origin,
    base: &str,
    token: Option<&str>,
    archive: &mut Archive,
) -> Result<(), Failure> {
    let cpu = ("cpu.pb.gz", format!("/debug/pprof/profile?seconds={}", PROFILE.as_secs()));
    let pages = PAGES.iter().map(|(name, path)| (*name, (*path).to_owned())).chain([cpu]);
    let mut late = 0;
    for (name, path) in pages {
        let answer = page(origin, &path, token).await;
        late += usize::from(matches!(answer, Err(NoPage::Late(_))));
        // Where nobody answers, or nobody in time, the rest is not waited for.
        if let Err(NoPage::Unreachable(why) | NoPage::Late(why)) = &answer
            && (matches!(answer, Err(NoPage::Unreachable(_))) || late >= MOST_LATE)
        {
            let why = format!(
                "{base} does not answer: {why}; is Fairlead running, and there? (--admin-listen)"
            );
            archive.missing("process", why);
            return Ok(());
        }
        match answer {
            Ok(body) if name.ends_with("z.txt") => {
                let page = [b"# fairlead support: ", path.as_bytes(), b"\n", &body[..]].concat();
                archive.add(name, page)?;
            }
            Ok(body) if name == "log-level.txt" => {
                archive.add(name, [b"# fairlead support: ", &body[..]].concat())?;
            }
            Ok(body) if name.ends_with(".gz") => archive.add_masked(name, &body)?,
            Ok(body) => archive.add(name, body)?,
            Err(NoPage::Refused(why) | NoPage::Late(why) | NoPage::Unreachable(why)) => {
                archive.missing(name, why);
            }
        }
    }
    Ok(())
}

/// Why the process did not give a page.
enum NoPage {
    Unreachable(String),
    Late(String),
    Refused(String),
}

async fn page(origin: &Origin, path: &str, token: Option<&str>) -> Result<Vec<u8>, NoPage> {
    let answer = origin.get(path, token.map(str::trim), PATIENCE, LARGEST_FILE).await;
    let (status, body) = answer.map_err(|error| match error {
        HttpError::AnswerTimeout(_) => NoPage::Late(error.to_string()),
        HttpError::TooLarge(_) => NoPage::Refused(error.to_string()),
        _ => NoPage::Unreachable(error.to_string()),
    })?;
    // Probes say in their status whether all is well; both are worth keeping.
    if status == 200 || matches!(path, "/livez" | "/readyz") {
        return Ok(body);
    }
    let text: String = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
    Err(NoPage::Refused(format!("{status}: {text}")))
}

/// Every event of the evidence, the newest first.
fn evidence(dir: &Path, archive: &mut Archive) -> Result<(), Failure> {
    let mut events: Vec<PathBuf> = match fs::read_dir(dir) {
        Ok(events) => events.filter_map(|event| Some(event.ok()?.path())).collect(),
        // None was ever saved.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            archive.missing("evidence", error.to_string());
            return Ok(());
        }
    };
    events.sort();
    let mut files = 0;
    for event in events.iter().rev().filter(|event| event.is_dir()) {
        let name =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Ok(inside) = fs::read_dir(event) else { continue };
        let mut inside: Vec<PathBuf> = inside.filter_map(|file| Some(file.ok()?.path())).collect();
        inside.sort();
        for file in inside {
            files += 1;
            if files > MOST_EVIDENCE {
                archive.missing("evidence", format!("of {MOST_EVIDENCE} files no more are taken"));
                return Ok(());
            }
            archive.take(&format!("evidence/{}/{}", name(event), name(&file)), tail(&file))?;
        }
    }
    Ok(())
}

/// A lock file outlives its process, whose number may be another's by now.
fn is_fairlead(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim() == "fairlead"
}

fn no_process(config: &Config) -> String {
    format!("no fairlead holds {}; name its data directory with --data", config.data.display())
}

/// The process as the kernel shows it, with the variables that are settings.
fn process(pid: u32) -> Vec<u8> {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let mut page = format!("# fairlead support: process {pid}\n");
    let words = |bytes: &[u8]| -> Vec<String> {
        let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    };
    let _ = writeln!(page, "\ncommand line\n  {}", words(&read("cmdline")).join(" "));
    page.push_str("\nenvironment\n");
    for variable in words(&read("environ")) {
        let name = variable.split('=').next().unwrap_or_default().to_uppercase();
        if name.starts_with("FAIRLEAD_") || name.ends_with("_PROXY") || name == "KUBECONFIG" {
            let _ = writeln!(page, "  {variable}");
        }
    }
    for file in ["status", "limits", "cgroup", "mountinfo"] {
        let _ = write!(page, "\n{file}\n{}", String::from_utf8_lossy(&read(file)));
    }
    if let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) {
        let _ = writeln!(page, "\nopen files: {}", open.count());
    }
    page.into_bytes()
}

/// The names and sizes of the files in the data directory, not their content.
fn listing(data: &Path) -> Result<Vec<u8>, String> {
    let mut page = format!("# fairlead support: what is in {}\n\n", data.display());
    let mut left = vec![(data.to_owned(), 0)];
    let mut seen = 0;
    while let Some((dir, depth)) = left.pop() {
        let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()));
        let entries = match entries {
            Ok(entries) => entries,
            Err(why) if depth == 0 => return Err(why),
            Err(why) => {
                let _ = writeln!(page, "{why}");
                continue;
            }
        };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            seen += 1;
            if seen > 10_000 {
                page.push_str("and more\n");
                return Ok(page.into_bytes());
            }
            let Ok(meta) = entry.metadata() else { continue };
            let shown = entry.path();
            let shown = shown.strip_prefix(data).unwrap_or(&shown).display();
            if meta.is_dir() {
                if depth < 3 {
                    left.push((entry.path(), depth + 1));
                }
            } else {
                let time = meta.modified().ok().and_then(|t| jiff::Timestamp::try_from(t).ok());
                let time = time.map_or_else(String::new, |time| time.to_string());
                let _ = writeln!(page, "{:>12}  {time:<32}  {shown}", meta.len());
            }
        }
    }
    Ok(page.into_bytes())
}

/// The end of a file.
pub(super) fn tail(path: &Path) -> Result<Vec<u8>, String> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let from = length.saturating_sub(LARGEST_FILE as u64);
        file.seek(SeekFrom::Start(from))?;
        let mut content = Vec::new();
        file.take(LARGEST_FILE as u64).read_to_end(&mut content)?;
        Ok(content)
    };
    read().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))
}

/// The log of the process, from the file that it writes to, or else from the journal.
fn log_of(pid: Option<u32>) -> Result<Vec<u8>, String> {
    if let Some(pid) = pid {
        let stderr = PathBuf::from(format!("/proc/{pid}/fd/2"));
        if fs::metadata(&stderr).is_ok_and(|meta| meta.is_file()) {
            return tail(&stderr);
        }
    }
    let args = ["--no-pager", "--quiet", "-o", "short-iso-precise", "-n", LINES];
    let units = ["-u", "fairlead.service", "-u", "fairlead-agent.service"];
    let lines = output_of(Command::new("journalctl").args(args).args(units));
    match lines {
        Ok(lines) if !lines.is_empty() => Ok(lines),
        Ok(_) => Err("the process writes to no file, and the journal has no line of it; name a file with --log".to_owned()),
        Err(why) => Err(format!("the process writes to no file, and there is no journal ({why}); name a file with --log")),
    }
}

/// The output of a program that ends in time.
fn output_of(command: &mut Command) -> Result<Vec<u8>, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| e.to_string())?;
    let stdout = child.stdout.take();
    let reading = std::thread::spawn(move || {
        let mut lines = Vec::new();
        // What was read before it broke off still counts.
        let _ = stdout.map(|out| out.take(LARGEST_FILE as u64).read_to_end(&mut lines));
        lines
    });
    let until = Instant::now() + PATIENCE;
    while !reading.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    // It may still write to a pipe that nobody reads.
    let _ = child.kill();
    let _ = child.wait();
    reading.join().map_err(|_| "its output could not be read".to_owned())
}
