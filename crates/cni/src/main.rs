//! The executable that a container runtime calls.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var_os("CNI_COMMAND").is_none() {
        eprintln!(
            "fairlead-cni {}: a CNI plugin; a container runtime calls it. `fairlead net install` sets it up.",
            env!("CARGO_PKG_VERSION")
        );
    }
    let output = cni::plugin::run(|name| std::env::var_os(name), std::io::stdin().lock());
    let printed = output.stdout.map_or(Ok(()), |text| writeln!(std::io::stdout(), "{text}"));
    if output.success && printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
