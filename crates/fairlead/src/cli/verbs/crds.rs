use std::process::ExitCode;

use crate::output::{self, Failure, Verdict};

/// Print the definitions of Fairlead's own kinds, as YAML
///
/// A server that keeps its objects in Kubernetes needs them there.
///
/// Example:
///   fairlead crds | kubectl apply -f -
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> Verdict {
    output::line(text()?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn text() -> Result<String, Failure> {
    let mut text = String::new();
    for definition in objects::kinds::definitions() {
        text.push_str("---\n");
        let manifest =
            objects::kinds::manifest(&definition).map_err(|error| Failure(error.to_string()))?;
        text.push_str(&output::yaml(&manifest)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
