//! Installs Fairlead into a cluster, from the Helm chart in `deploy/chart`.
//!
//! ```text
//! values.yaml + files + --set ──► Values ──► schema ──► templates ──► YAML ──► objects, in order
//! ```
//!
//! - The chart is embedded: `fairlead install` applies the objects of the same version's chart.
//! - The templates are in Helm's language, of which `template` has a strict subset. Anything else is an
//!   error with file and line, never a result that differs from Helm's; a test renders the chart with
//!   Go's `text/template` as well and compares the objects.
//! - Rendering needs no cluster. [`check`] inspects one, [`rollout`] installs and upgrades, [`status`]
//!   reports, [`remove`] uninstalls; all of them use [`cluster`], where each call has a deadline.
//!
//! ```
//! use install::chart::{Chart, Release};
//! use install::values::Values;
//!
//! let chart = Chart::embedded();
//! let mut values = Values::default();
//! values.set("components.net=false,controller.replicas=1")?;
//! let rendered = chart.render(&Release::default(), &values)?;
//! assert!(rendered.objects.iter().any(|object| object["kind"] == "Deployment"));
//! # Ok::<(), install::Error>(())
//! ```

pub mod chart;
pub mod check;
pub mod cluster;
pub mod on_nodes;
pub mod ready;
pub mod record;
pub mod remove;
pub mod rollout;
pub mod status;
mod template;
pub mod values;

pub use values::schema::Problem;

/// Why a chart could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template uses something outside of the subset, or a value that does not exist.
    #[error("{file}, line {line}: {message}")]
    Template { file: String, line: usize, message: String },
    /// The chart refuses these values.
    #[error("{0}")]
    Refused(String),
    /// All values that the schema does not allow.
    #[error("the values cannot be used:{}", list(.0))]
    Values(Vec<Problem>),
    /// A `--set` that cannot be parsed.
    #[error("--set {text}: {message}")]
    Set { text: String, message: String },
    /// A file that is not the expected YAML or JSON.
    #[error("{file}: {message}")]
    Yaml { file: String, message: String },
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
