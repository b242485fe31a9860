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
    let answer = cni::plugin::run(|name| std::env::var_os(name), std::io::stdin().lock());
    let printed = answer.output.map_or(Ok(()), |output| writeln!(std::io::stdout(), "{output}"));
    if answer.success && printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
