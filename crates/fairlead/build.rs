//! Tells the binary which commit and compiler made it.

use std::env;
use std::process::Command;

fn main() {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
    println!("cargo:rustc-env=FAIRLEAD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let rustc = output(&env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()), &["--version"]);
    println!("cargo:rustc-env=FAIRLEAD_RUSTC={}", rustc.as_deref().unwrap_or("unknown"));
    for name in ["TARGET", "PROFILE"] {
        println!("cargo:rustc-env=FAIRLEAD_{name}={}", env::var(name).unwrap_or_default());
    }
    println!("cargo:rerun-if-changed=build.rs");
    // The branch's own file changes with each commit; HEAD only when another branch is taken.
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(path) = output("git", &["rev-parse", "--git-path", path]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
